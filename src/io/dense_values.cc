#include "io/dense_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/half.h"
#include "base/memory.h"
#include "io/fail.h"
#include "io/limits.h"
#include "io/stored_value.h"
#include "sparse/pattern.h"

namespace tessera::io {
namespace {

template <class T>
float rounded(T value) {
  if constexpr (std::is_same_v<T, base::Half> || std::is_same_v<T, base::Bfloat16>) {
    return base::to_float(value);
  } else {
    return static_cast<float>(value);
  }
}

template <class T>
void convert_all(const std::byte* bytes, bool swap, std::span<float> out) {
  if (swap) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = rounded(load<T>(bytes + i * sizeof(T), true));
  } else {
    for (size_t i = 0; i < out.size(); ++i) out[i] = rounded(load<T>(bytes + i * sizeof(T), false));
  }
}

// Every non-zero byte is true.
void convert_booleans(const std::byte* bytes, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = bytes[i] == std::byte{0} ? 0.0F : 1.0F;
}

void convert(Element element, const std::byte* bytes, bool swap, std::span<float> out) {
  switch (element) {
    case Element::boolean: return convert_booleans(bytes, out);
    case Element::i8: return convert_all<int8_t>(bytes, swap, out);
    case Element::u8: return convert_all<uint8_t>(bytes, swap, out);
    case Element::i16: return convert_all<int16_t>(bytes, swap, out);
    case Element::u16: return convert_all<uint16_t>(bytes, swap, out);
    case Element::i32: return convert_all<int32_t>(bytes, swap, out);
    case Element::u32: return convert_all<uint32_t>(bytes, swap, out);
    case Element::i64: return convert_all<int64_t>(bytes, swap, out);
    case Element::u64: return convert_all<uint64_t>(bytes, swap, out);
    case Element::f16: return convert_all<base::Half>(bytes, swap, out);
    case Element::bf16: return convert_all<base::Bfloat16>(bytes, swap, out);
    case Element::f32: return convert_all<float>(bytes, swap, out);
    case Element::f64: return convert_all<double>(bytes, swap, out);
  }
}

// The array's elements in file order, in pieces.
class PieceReader {
 public:
  PieceReader(const Source& source, const DenseArray& array)
      : source_(source),
        array_(array),
        swap_(array.big_endian != (std::endian::native == std::endian::big)),
        elements_(array.rows * array.cols) {}

  // The next elements, at most 64 Ki, valid until the next call; none at the end.
  std::span<const float> next() {
    constexpr uint64_t kPiece = 1 << 16;
    const size_t count = std::min(kPiece, elements_ - done_);
    const size_t size = size_of(array_.element);
    bytes_.resize(count * size);
    floats_.resize(count);
    source_.read(array_.offset + done_ * size, bytes_);
    convert(array_.element, bytes_.data(), swap_, floats_);
    if (array_.element == Element::f64) require_in_range();
    done_ += count;
    return floats_;
  }

 private:
  void require_in_range() const {
    for (size_t i = 0; i < floats_.size(); ++i) {
      if (!std::isinf(floats_[i])) continue;
      const auto value = load<double>(bytes_.data() + i * sizeof(double), swap_);
      if (std::isinf(value)) continue;
      fail(source_.name(), "element {} is {}, which FP32 cannot hold; scale the weights down", done_ + i,
           value);
    }
  }

  const Source& source_;
  const DenseArray& array_;
  bool swap_;
  uint64_t elements_;
  uint64_t done_ = 0;
  std::vector<std::byte> bytes_;
  std::vector<float> floats_;
};

// Calls visit(values, row, first column) for each part of a row in the file; for a column-major array, "row"
// is a column.
template <class Visit>
void for_each_row_part(const Source& source, const DenseArray& array, uint64_t row_length, Visit visit) {
  PieceReader reader(source, array);
  uint64_t row = 0;
  uint64_t col = 0;
  for (auto piece = reader.next(); !piece.empty(); piece = reader.next()) {
    while (!piece.empty()) {
      const size_t length = std::min<uint64_t>(piece.size(), row_length - col);
      visit(piece.first(length), row, static_cast<uint32_t>(col));
      piece = piece.subspan(length);
      col += length;
      if (col < row_length) continue;
      col = 0;
      ++row;
    }
  }
}

uint64_t count_non_zeros(std::span<const float> values) {
  uint32_t count = 0;
  for (float value : values) count += static_cast<uint32_t>(value != 0);
  return count;
}

// The pattern with its row lengths counted, as row_begin.
Pattern count_pattern(const Source& source, const DenseArray& array, uint32_t rows, uint32_t cols) {
  Pattern p;
  p.rows = rows;
  p.cols = cols;
  p.crow_indices.assign(size_t{rows} + 1, 0);
  for_each_row_part(source, array, cols, [&](auto values, uint64_t row, uint32_t) {
    p.crow_indices[row + 1] += count_non_zeros(values);
  });
  for (size_t r = 0; r < rows; ++r) p.crow_indices[r + 1] += p.crow_indices[r];
  return p;
}

// Fills columns and values. Writes every element but advances only past non-zero ones, which avoids a
// mispredicted branch for each; this needs one extra slot meanwhile.
void fill(const Source& source, const DenseArray& array, SparseMatrix& m) {
  Pattern& p = m.pattern;
  const uint64_t non_zeros = p.crow_indices.back();
  p.col_indices.resize(non_zeros + 1);
  m.values.resize(non_zeros + 1);
  uint64_t at = 0;
  for_each_row_part(source, array, p.cols, [&](auto values, uint64_t row, uint32_t col) {
    if (at + count_non_zeros(values) > p.crow_indices[row + 1]) {
      fail(source.name(), "the file changed while it was read");
    }
    for (float value : values) {
      p.col_indices[at] = col++;
      m.values[at] = value;
      at += static_cast<uint64_t>(value != 0);
    }
  });
  if (at != non_zeros) fail(source.name(), "the file changed while it was read");
  p.col_indices.pop_back();
  m.values.pop_back();
}

void require_in_file(const Source& source, const DenseArray& array) {
  const uint64_t elements = array.rows * array.cols;
  const uint64_t left = array.offset > source.size() ? 0 : source.size() - array.offset;
  if (elements > left / size_of(array.element)) {
    fail(source.name(),
         "an array of {} x {} elements of {} bytes, and the file has only {} bytes for it; it may "
         "be truncated",
         array.rows, array.cols, size_of(array.element), left);
  }
}

}  // namespace

size_t size_of(Element element) {
  switch (element) {
    case Element::boolean:
    case Element::i8:
    case Element::u8: return 1;
    case Element::i16:
    case Element::u16:
    case Element::f16:
    case Element::bf16: return 2;
    case Element::i32:
    case Element::u32:
    case Element::f32: return 4;
    case Element::i64:
    case Element::u64:
    case Element::f64: return 8;
  }
  return 0;
}

SparseMatrix read_dense(const Source& source, const DenseArray& array) {
  require_sane_sides(source.name(), array.rows, array.cols);
  require_in_file(source, array);
  require_sane_sizes(source.name(), array.rows, array.cols, array.rows * array.cols);
  auto rows = static_cast<uint32_t>(array.rows);
  auto cols = static_cast<uint32_t>(array.cols);
  if (array.column_major) std::swap(rows, cols);
  SparseMatrix m{count_pattern(source, array, rows, cols), {}};
  const uint64_t bytes = m.pattern.crow_indices.back() * 8 + uint64_t{rows} * 8;
  // Transposing needs a second copy, and the permutation between the two.
  base::require_memory(array.column_major ? 3 * bytes : bytes,
                       fmt::format("{}: the {} x {} matrix with {} non-zeros", source.name(), array.rows,
                                   array.cols, m.pattern.crow_indices.back()));
  fill(source, array, m);
  return array.column_major ? sparse::transpose(m) : m;
}

}  // namespace tessera::io
