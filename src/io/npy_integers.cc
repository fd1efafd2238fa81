#include "io/npy_integers.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

#include "base/memory.h"
#include "io/fail.h"
#include "io/npy_header.h"
#include "io/stored_value.h"

namespace tessera::io {
namespace {

bool is_whole(Element element) { return element <= Element::u64; }

/// One value of each element or record.
class IntegerColumn {
 public:
  IntegerColumn(const Source& source, Element element, bool big_endian, uint64_t offset)
      : name_(source.name()),
        element_(element),
        swap_(big_endian != (std::endian::native == std::endian::big)),
        offset_(offset) {
    if (!is_whole(element)) fail(name_, "values with a floating point; whole numbers are expected");
  }

  int64_t of(const std::byte* item) const {
    const std::byte* at = item + offset_;
    switch (element_) {
      case Element::boolean: return *at == std::byte{0} ? 0 : 1;
      case Element::i8: return load<int8_t>(at, swap_);
      case Element::u8: return load<uint8_t>(at, swap_);
      case Element::i16: return load<int16_t>(at, swap_);
      case Element::u16: return load<uint16_t>(at, swap_);
      case Element::i32: return load<int32_t>(at, swap_);
      case Element::u32: return load<uint32_t>(at, swap_);
      case Element::i64: return load<int64_t>(at, swap_);
      default: return checked(load<uint64_t>(at, swap_));
    }
  }

 private:
  int64_t checked(uint64_t value) const {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      fail(name_, "the value {}; values up to 2^63 - 1 are possible", value);
    return static_cast<int64_t>(value);
  }

  const std::string& name_;
  Element element_;
  bool swap_;
  uint64_t offset_;
};

/// The number of elements or records; throws if there are more values than allowed, or the file has another
/// number.
uint64_t items_of(const Source& source, const NpyHeader& header, uint64_t most) {
  const uint64_t values_each = std::max<uint64_t>(1, header.fields.size());
  uint64_t items = 1;
  for (const uint64_t side : header.shape) {
    if (side != 0 && items > most / side) fail(source.name(), "more than {} values", most);
    items *= side;
  }
  if (items > most / values_each) fail(source.name(), "more than {} values", most);
  const uint64_t bytes = source.size() - header.data_offset;
  if (items * header.element_bytes != bytes)
    fail(source.name(), "{} bytes of data; its header promises {}", bytes, items * header.element_bytes);
  return items;
}

/// Reorders values from Fortran order to C order.
std::vector<int64_t> in_c_order(const NpyIntegers& array, size_t values_each) {
  std::vector<int64_t> sorted(array.values.size());
  std::vector<uint64_t> index(array.shape.size());
  for (size_t from = 0; from < sorted.size(); from += values_each) {
    uint64_t to = 0;
    for (size_t i = 0; i < index.size(); ++i) to = to * array.shape[i] + index[i];
    std::copy_n(array.values.begin() + static_cast<std::ptrdiff_t>(from), values_each,
                sorted.begin() + static_cast<std::ptrdiff_t>(to * values_each));
    for (size_t i = 0; i < index.size() && ++index[i] == array.shape[i]; ++i) index[i] = 0;
  }
  return sorted;
}

}  // namespace

NpyIntegers read_npy_integers(const Source& source, uint64_t most) {
  const NpyHeader header = read_npy_header(source, NpyRecords::accepted);
  NpyIntegers array;
  std::vector<IntegerColumn> columns;
  for (const NpyField& field : header.fields) {
    array.fields.push_back(field.name);
    columns.emplace_back(source, field.element, field.big_endian, field.offset);
  }
  if (columns.empty()) columns.emplace_back(source, header.element, header.big_endian, 0);
  array.shape = header.shape;
  const uint64_t items = items_of(source, header, most);
  base::require_memory(items * columns.size() * sizeof(int64_t), source.name() + ": reading the array");
  array.values.reserve(items * columns.size());
  const uint64_t piece = std::max<uint64_t>(1, (uint64_t{1} << 20) / header.element_bytes);
  std::vector<std::byte> bytes;
  for (uint64_t first = 0; first < items; first += piece) {
    bytes.resize(std::min(piece, items - first) * header.element_bytes);
    source.read(header.data_offset + first * header.element_bytes, bytes);
    for (size_t at = 0; at < bytes.size(); at += header.element_bytes)
      for (const IntegerColumn& column : columns) array.values.push_back(column.of(&bytes[at]));
  }
  if (header.fortran_order && header.shape.size() > 1) array.values = in_c_order(array, columns.size());
  return array;
}

}  // namespace tessera::io
