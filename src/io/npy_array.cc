#include "io/npy_array.h"

#include <bit>
#include <cstddef>

#include "base/half.h"
#include "base/memory.h"
#include "io/atomic_file.h"
#include "io/fail.h"
#include "io/npy_header.h"
#include "io/npy_integers.h"
#include "io/stored_value.h"

namespace tessera::io {
namespace {

double value_at(Element element, const std::byte* at, bool swap) {
  switch (element) {
    case Element::f16: return base::to_float(base::Half(load<uint16_t>(at, swap)));
    case Element::f32: return load<float>(at, swap);
    default: return load<double>(at, swap);
  }
}

template <class T>
void write_as(AtomicFile& file, std::span<const double> values) {
  const std::vector<T> converted(values.begin(), values.end());
  file.write(std::as_bytes(std::span(converted)));
}

}  // namespace

NpyArray read_npy_array(const Source& source, uint64_t most) {
  const NpyHeader header = read_npy_header(source);
  NpyArray array{header.element, header.shape, {}};
  if (header.element <= Element::u64) {
    const NpyIntegers integers = read_npy_integers(source, most);
    array.values.assign(integers.values.begin(), integers.values.end());
    return array;
  }
  if (header.fortran_order && header.shape.size() > 1)
    fail(source.name(), "its elements are in Fortran order: save numpy.ascontiguousarray of it");
  uint64_t count = 1;
  for (const uint64_t size : header.shape) {
    if (size != 0 && count > most / size) fail(source.name(), "more than {} values", most);
    count *= size;
  }
  const uint64_t bytes = source.size() - header.data_offset;
  if (count * header.element_bytes != bytes)
    fail(source.name(), "{} bytes of data; its header promises {}", bytes, count * header.element_bytes);
  base::require_memory(bytes + count * sizeof(double), source.name() + ": reading the array");
  std::vector<std::byte> content(bytes);
  source.read(header.data_offset, content);
  const bool swap = header.big_endian != (std::endian::native == std::endian::big);
  array.values.resize(count);
  for (uint64_t i = 0; i < count; ++i)
    array.values[i] = value_at(header.element, content.data() + i * header.element_bytes, swap);
  return array;
}

void write_npy_array(const std::string& path, std::span<const uint64_t> shape, std::span<const double> values,
                     bool integers) {
  const std::string header = npy_header_text(integers ? Element::i64 : Element::f32, shape);
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(header)));
  if (integers)
    write_as<int64_t>(file, values);
  else
    write_as<float>(file, values);
  file.commit();
}

}  // namespace tessera::io
