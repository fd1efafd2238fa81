#include "kernels/samples/sample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/integer_types.h"
#include "base/random.h"
#include "kernels/common/element.h"

namespace tessera::kernels {
namespace {

constexpr std::byte kUnset{0xFF};
constexpr size_t kAlignment = 64;
constexpr size_t kGuardBytes = 128;

/// Every 13th element, in turn.
constexpr float kSpecials[] = {std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN(),
                               0.0F,
                               -0.0F,
                               1e-7F,
                               65519.0F,
                               65520.0F,
                               -3e38F};
constexpr uint64_t kSpecialPeriod = 13;

/// Row-major elements into a view that is not empty.
void copy_elements(const std::byte* from, const program::FieldView& to) {
  const size_t element = size_of(to.type), row_bytes = to.cols * element;
  for (uint32_t r = 0; r < to.rows; ++r, from += row_bytes)
    if (has_contiguous_rows(to))
      std::memcpy(address_of(to, r, 0), from, row_bytes);
    else
      for (uint32_t c = 0; c < to.cols; ++c) std::memcpy(address_of(to, r, c), from + c * element, element);
}

}  // namespace

Sample& Sample::random(Type type, uint32_t rows, uint32_t cols, uint64_t seed, float range,
                       bool with_specials) {
  std::vector<float> numbers(size_t{rows} * cols);
  base::RandomStream(seed, 0, static_cast<uint32_t>(fields_.size())).fill_symmetric(numbers);
  const bool is_unsigned = is_integer(type) && type != Type::i32;
  return values(type, rows, cols, [&](uint64_t i) -> double {
    if (with_specials && !is_integer(type) && i % kSpecialPeriod == kSpecialPeriod - 1)
      return kSpecials[i / kSpecialPeriod % std::size(kSpecials)];
    return is_unsigned ? std::abs(range * numbers[i]) : range * numbers[i];
  });
}

Sample& Sample::unset(Type type, uint32_t rows, uint32_t cols) {
  const size_t bytes = size_t{rows} * cols * size_of(type);
  return field({type, rows, cols, std::vector<std::byte>(bytes, kUnset), false});
}

Sample& Sample::values(Type type, uint32_t rows, uint32_t cols,
                       const std::function<double(uint64_t)>& value_at) {
  Field made{type, rows, cols, std::vector<std::byte>(size_t{rows} * cols * size_of(type)), false};
  for (uint64_t i = 0; i < uint64_t{rows} * cols; ++i)
    store_number(type, made.contents.data() + i * size_of(type), value_at(i));
  return field(std::move(made));
}

Tolerance product_tolerance(Type in, Type out, double terms) {
  if (in == Type::f16) return {};
  return {epsilon_of(out), terms * epsilon_of(Type::f32)};
}

Sample& Sample::field(Field field) {
  fields_.push_back(std::move(field));
  return *this;
}

Sample& Sample::packed() {
  fields_.back().packed = true;
  return *this;
}

Sample& Sample::param(int64_t value) {
  params_.push_back(value);
  return *this;
}

Sample& Sample::of(const program::Codelet& codelet) {
  codelet_ = &codelet;
  return *this;
}

Sample& Sample::tolerance(Tolerance tolerance) {
  tolerance_ = tolerance;
  return *this;
}

Sample& Sample::flops(double flops) {
  flops_ = flops;
  return *this;
}

double Sample::bytes() const {
  double sum = 0;
  for (const Field& field : fields_) sum += static_cast<double>(field.contents.size());
  return sum;
}

SampleVertex::SampleVertex(const Sample& sample, const SampleLayout& layout) : params_(sample.params()) {
  for (size_t f = 0; f < sample.fields().size(); ++f)
    place(sample.fields()[f], sample.codelet().fields[f], layout);
}

void SampleVertex::place(const Sample::Field& field, const program::FieldSpec& spec,
                         const SampleLayout& wanted) {
  const SampleLayout layout = field.packed ? SampleLayout{} : wanted;
  const size_t element = size_of(field.type);
  const uint32_t lines = layout.column_major ? field.cols : field.rows;
  const uint32_t length = layout.column_major ? field.rows : field.cols;
  const int64_t stride = int64_t{length} + layout.padding;

  Buffer& buffer = buffers_.emplace_back();
  const size_t bytes = (layout.shift + size_t{lines} * stride) * element + 2 * kGuardBytes;
  buffer.storage.assign(bytes + kAlignment, kUnset);
  const auto address = reinterpret_cast<uintptr_t>(buffer.storage.data());
  const size_t alignment = std::max<size_t>(kAlignment, spec.alignment);
  buffer.begin = buffer.storage.data() + (alignment - address % alignment) % alignment;
  buffer.bytes = bytes;
  buffer.first_line = kGuardBytes + layout.shift * element;
  buffer.line_bytes = length * element;
  buffer.stride_bytes = static_cast<size_t>(stride) * element;
  buffer.lines = buffer.line_bytes == 0 ? 0 : lines;

  program::FieldView view{
      buffer.begin + buffer.first_line, field.type, field.rows, field.cols, layout.column_major ? 1 : stride,
      layout.column_major ? stride : 1};
  if (view.empty())
    view.data = nullptr;
  else
    copy_elements(field.contents.data(), view);
  views_.push_back(view);
}

bool SampleVertex::has_bits_of(const SampleVertex& other, size_t field) const {
  const Buffer &mine = buffers_[field], &its = other.buffers_[field];
  for (size_t line = 0; line < mine.lines; ++line) {
    const size_t begin = mine.first_line + line * mine.stride_bytes;
    if (std::memcmp(mine.begin + begin, its.begin + begin, mine.line_bytes) != 0) return false;
  }
  return true;
}

double SampleVertex::at(size_t field, uint32_t row, uint32_t col) const {
  return number_at(views_[field], row, col);
}

bool SampleVertex::surroundings_untouched() const {
  return std::ranges::all_of(buffers_, [](const Buffer& buffer) {
    size_t reached = 0;
    const auto is_unset_to = [&](size_t end) {
      return std::all_of(buffer.begin + std::exchange(reached, end), buffer.begin + end,
                         [](std::byte b) { return b == kUnset; });
    };
    for (size_t line = 0; line < buffer.lines; ++line) {
      const size_t begin = buffer.first_line + line * buffer.stride_bytes;
      if (!is_unset_to(begin)) return false;
      reached = begin + buffer.line_bytes;
    }
    return is_unset_to(buffer.bytes);
  });
}

}  // namespace tessera::kernels
