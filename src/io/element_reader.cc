#include "io/element_reader.h"

#include <algorithm>
#include <bit>

#include "base/memory.h"
#include "io/dense_values.h"
#include "io/fail.h"
#include "io/limits.h"
#include "io/stored_value.h"

namespace tessera::io {
namespace {

constexpr bool kSwap = std::endian::native == std::endian::big;  // files are little-endian

Element element_in(const StoredTensor& tensor) {
  const std::optional<Element> element = element_of(tensor.info.dtype);
  if (!element)
    fail(tensor.source->name(), "tensor {} has elements of type {}, which are not read",
         excerpt(tensor.info.name), excerpt(tensor.info.dtype));
  return *element;
}

sparse::ElementForm form_of(Element element) {
  const bool is_float = element == Element::f16 || element == Element::bf16 || element == Element::f32 ||
                        element == Element::f64;
  return {static_cast<uint32_t>(size_of(element)), is_float};
}

/// Calls visit(bytes, row, first column, count) for all elements in order: whole rows, or parts that begin
/// with a multiple of 64 columns.
template <class Visit>
void for_each_row_part(const StoredTensor& tensor, uint64_t rows, uint64_t cols, const Visit& visit) {
  constexpr uint64_t kPiece = 1 << 18;
  const size_t size = size_of(element_in(tensor));
  const uint64_t width = std::min(cols, kPiece);
  const uint64_t height = cols == 0 ? 0 : std::max<uint64_t>(1, kPiece / cols);
  std::vector<std::byte> bytes;
  for (uint64_t r = 0; r < rows && cols > 0; r += height)
    for (uint64_t c = 0; c < cols; c += width) {
      const uint64_t in_rows = std::min(height, rows - r), in_cols = std::min(width, cols - c);
      bytes.resize(in_rows * in_cols * size);
      tensor.source->read(tensor.info.begin + (r * cols + c) * size, bytes);
      for (uint64_t i = 0; i < in_rows; ++i)
        visit(bytes.data() + i * in_cols * size, static_cast<uint32_t>(r + i), c, in_cols);
    }
}

void require_elements(const StoredTensor& tensor, uint64_t rows, uint64_t cols) {
  const std::string& file = tensor.source->name();
  require_sane_sides(file, rows, cols);
  if (elements_of(tensor) != rows * cols)
    fail(file, "tensor {} has {} elements; the weight that it belongs to needs {} x {}",
         excerpt(tensor.info.name), elements_of(tensor), rows, cols);
}

template <class T>
void convert(const StoredTensor& tensor, uint64_t most, const std::vector<std::byte>& bytes,
             std::vector<uint64_t>& out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const T value = load<T>(bytes.data() + i * sizeof(T), kSwap);
    if (value < 0 || static_cast<uint64_t>(value) > most)
      fail(tensor.source->name(), "element {} of tensor {} is {}; it must be from 0 to {}", i,
           excerpt(tensor.info.name), value, most);
    out[i] = static_cast<uint64_t>(value);
  }
}

}  // namespace

uint64_t elements_of(const StoredTensor& tensor) {
  return (tensor.info.end - tensor.info.begin) / size_of(element_in(tensor));
}

sparse::BitMatrix read_bits(const StoredTensor& tensor, uint64_t rows, uint64_t cols) {
  require_elements(tensor, rows, cols);
  base::require_memory(sparse::BitMatrix::bytes_of(rows, cols),
                       tensor.source->name() + ": the non-zeros of a tensor");
  sparse::BitMatrix bits(static_cast<uint32_t>(rows), static_cast<uint32_t>(cols));
  const sparse::ElementForm form = form_of(element_in(tensor));
  for_each_row_part(tensor, rows, cols, [&](const std::byte* from, uint32_t r, uint64_t c, uint64_t count) {
    sparse::set_non_zeros(form, from, count, bits.row(r).subspan(c / 64, (count + 63) / 64));
  });
  return bits;
}

void clear_zeros(const StoredTensor& tensor, sparse::BitMatrix& bits) {
  require_elements(tensor, bits.rows(), bits.cols());
  const sparse::ElementForm form = form_of(element_in(tensor));
  std::vector<uint64_t> others;
  for_each_row_part(tensor, bits.rows(), bits.cols(),
                    [&](const std::byte* from, uint32_t r, uint64_t c, uint64_t count) {
                      others.resize((count + 63) / 64);
                      sparse::set_non_zeros(form, from, count, others);
                      const auto row = bits.row(r).subspan(c / 64);
                      for (size_t w = 0; w < others.size(); ++w) row[w] &= others[w];
                    });
}

std::vector<uint64_t> read_integers(const StoredTensor& tensor, uint64_t most) {
  const Element element = element_in(tensor);
  const uint64_t count = elements_of(tensor);
  base::require_memory(count * (8 + size_of(element)), tensor.source->name() + ": a tensor of integers");
  std::vector<std::byte> bytes(count * size_of(element));
  tensor.source->read(tensor.info.begin, bytes);
  std::vector<uint64_t> integers(count);
  switch (element) {
    case Element::u8: convert<uint8_t>(tensor, most, bytes, integers); break;
    case Element::i8: convert<int8_t>(tensor, most, bytes, integers); break;
    case Element::u16: convert<uint16_t>(tensor, most, bytes, integers); break;
    case Element::i16: convert<int16_t>(tensor, most, bytes, integers); break;
    case Element::u32: convert<uint32_t>(tensor, most, bytes, integers); break;
    case Element::i32: convert<int32_t>(tensor, most, bytes, integers); break;
    case Element::u64: convert<uint64_t>(tensor, most, bytes, integers); break;
    case Element::i64: convert<int64_t>(tensor, most, bytes, integers); break;
    default:
      fail(tensor.source->name(), "tensor {} is {}; it must have integers", excerpt(tensor.info.name),
           tensor.info.dtype);
  }
  return integers;
}

}  // namespace tessera::io
