#include "kernels/map/rearrange/codelet.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/common/lines.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

constexpr size_t kDimensions = 5;
constexpr size_t kRows = kDimensions - 1;  ///< dimensions that count rows; the last one counts columns

/// The array, and where its elements come from. Its lines are those of the last dimension.
struct Source {
  std::array<int64_t, kDimensions> sizes = {};  ///< of the first dimension, as far as it is needed
  std::array<int64_t, kDimensions> steps = {};  ///< in elements of the memory that holds `in`
  int64_t lines_per_row = 1;
  int64_t line = 0, lines = 0;  ///< lines of `out`
  int64_t col = 0, cols = 0;    ///< of each line

  explicit Source(const Vertex& v) {
    const FieldView& in = v.fields[rearrange_field::in];
    const FieldView& out = v.fields[rearrange_field::out];
    int64_t weight = 1;
    for (size_t d = 1; d < kDimensions; ++d) {
      sizes[d] = v.params[rearrange_param::size_1 + d - 1];
      if (d < kRows) weight *= sizes[d];
    }
    const int64_t line_size = sizes[kRows];
    if (line_size > 0 && out.cols > line_size) lines_per_row = out.cols / line_size;
    line = v.params[rearrange_param::row] * lines_per_row;
    lines = out.rows * lines_per_row;
    col = v.params[rearrange_param::col];
    cols = lines_per_row > 1 ? line_size : out.cols;
    sizes[0] = weight == 0 ? 0 : (line + lines + weight - 1) / weight;
    for (size_t d = 0; d < kDimensions; ++d)
      steps[d] = v.params[rearrange_param::row_step_0 + d] * in.row_stride +
                 v.params[rearrange_param::col_step_0 + d] * in.col_stride;
  }

  int64_t step_of_columns() const { return steps[kRows]; }
  /// The dimension of rows along which neighbours lie side by side.
  std::optional<size_t> contiguous_rows() const {
    for (size_t d = 0; d < kRows; ++d)
      if (steps[d] == 1 && sizes[d] > 1) return d;
    return {};
  }
};

/// Positions of lines in the source, one after the other.
class LineWalk {
 public:
  explicit LineWalk(const Source& s) : s_(s), offset_(s.col * s.step_of_columns()) {
    int64_t line = s.line;
    for (size_t d = kRows; d-- > 0;) {
      digits_[d] = line % s.sizes[d];
      line /= s.sizes[d];
      offset_ += digits_[d] * s.steps[d];
    }
  }

  int64_t offset() const { return offset_; }
  void next() {
    for (size_t d = kRows; d-- > 0;) {
      offset_ += s_.steps[d];
      if (++digits_[d] < s_.sizes[d]) return;
      offset_ -= s_.sizes[d] * s_.steps[d];
      digits_[d] = 0;
    }
  }

 private:
  const Source& s_;
  std::array<int64_t, kRows> digits_ = {};
  int64_t offset_;
};

const std::byte* element_of(const FieldView& in, int64_t offset) {
  return in.data + offset * static_cast<int64_t>(size_of(in.type));
}

/// Element c of line i of `out`.
std::byte* place_of(const Source& s, const FieldView& out, int64_t i, int64_t c) {
  return address_of(out, i / s.lines_per_row, i % s.lines_per_row * s.cols + c);
}

void rearrange_reference(const Vertex& v) {
  const FieldView& in = v.fields[rearrange_field::in];
  const FieldView& out = v.fields[rearrange_field::out];
  if (out.empty()) return;
  const Source source(v);
  LineWalk walk(source);
  for (int64_t i = 0; i < source.lines; ++i, walk.next())
    for (int64_t c = 0; c < source.cols; ++c)
      std::memcpy(place_of(source, out, i, c), element_of(in, walk.offset() + c * source.step_of_columns()),
                  size_of(out.type));
}

void copy_lines(const Source& source, const FieldView& in, const FieldView& out) {
  const size_t element = size_of(out.type);
  const auto count = static_cast<size_t>(source.cols);
  LineWalk walk(source);
  for (int64_t i = 0; i < source.lines; ++i, walk.next()) {
    const std::byte* const from = element_of(in, walk.offset());
    std::byte* const to = place_of(source, out, i, 0);
    if (source.step_of_columns() == 1 && out.col_stride == 1)
      std::memcpy(to, from, count * element);
    else
      copy_strided(element, from, source.step_of_columns(), to, out.col_stride, count);
  }
}

/// Squares of columns and of the lines that lie side by side in the source, so that the lines of both sides
/// stay in the L1 cache.
class Transposition {
 public:
  Transposition(const Source& source, size_t rows, const FieldView& in, const FieldView& out)
      : s_(source), side_(rows), in_(in), out_(out) {
    for (size_t d = kRows, weight = 1; d-- > 0;) {
      weights_[d] = static_cast<int64_t>(weight);
      weight *= static_cast<size_t>(s_.sizes[d]);
    }
  }

  void run() { along(0, 0, s_.col * s_.step_of_columns()); }

 private:
  static constexpr int64_t kSide = 16;

  void along(size_t d, int64_t line, int64_t offset) const {
    if (d == kRows) return plane(line, offset);
    if (d == side_) return along(d + 1, line, offset);
    for (int64_t i = 0; i < s_.sizes[d]; ++i) along(d + 1, line + i * weights_[d], offset + i * s_.steps[d]);
  }

  /// The first of the side's lines, the others being fixed, that comes at or after a line of the array.
  int64_t first_from(int64_t wanted, int64_t line) const {
    const int64_t weight = weights_[side_];
    return std::clamp((wanted - line + weight - 1) / weight, int64_t{0}, s_.sizes[side_]);
  }

  void plane(int64_t line, int64_t offset) const {
    const int64_t begin = first_from(s_.line, line), end = first_from(s_.line + s_.lines, line);
    for (int64_t i = begin; i < end; i += kSide)
      for (int64_t c = 0; c < s_.cols; c += kSide)
        for (int64_t k = i; k < std::min(i + kSide, end); ++k)
          copy_strided(size_of(out_.type), element_of(in_, offset + k + c * s_.step_of_columns()),
                       s_.step_of_columns(), place_of(s_, out_, line + k * weights_[side_] - s_.line, c),
                       out_.col_stride, static_cast<size_t>(std::min(kSide, s_.cols - c)));
  }

  const Source& s_;
  size_t side_;
  const FieldView& in_;
  const FieldView& out_;
  std::array<int64_t, kRows> weights_ = {};
};

void rearrange_simd(const Vertex& v) {
  const FieldView& in = v.fields[rearrange_field::in];
  const FieldView& out = v.fields[rearrange_field::out];
  if (out.empty()) return;
  const Source source(v);
  const std::optional<size_t> rows = source.contiguous_rows();
  if (source.step_of_columns() > 1 && rows)
    Transposition(source, *rows, in, out).run();
  else
    copy_lines(source, in, out);
}

// Costs beside those of copies: vector operations per element that is not contiguous, and cycles per line.
constexpr double kStridedOperations = 16;
constexpr double kLineCycles = 8;

program::PhaseTimes rearrange_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& out = v.fields[rearrange_field::out];
  const Source source(v);
  const bool strided = source.step_of_columns() != 1 || out.col_stride != 1;
  const HostWork work{bytes_of(out), bytes_of(out),
                      strided ? kStridedOperations * static_cast<double>(out.elements()) : 0};
  return in_phase(Phase::rearrange, host_cycles(m, work) + kLineCycles * static_cast<double>(source.lines));
}

}  // namespace

TESSERA_DEFINE_FAMILY(rearrange, TESSERA_REARRANGE_CODELETS, TESSERA_CODELET)

}  // namespace tessera::kernels
