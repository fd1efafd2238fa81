#include "io/npy.h"

#include <vector>

#include "io/atomic_file.h"
#include "io/dense_values.h"
#include "io/fail.h"
#include "io/npy_header.h"

namespace tessera::io {
namespace {

void set_shape(const std::string& name, const std::vector<uint64_t>& shape, DenseArray& array) {
  if (shape.size() != 2) {
    fail(name, "an array of {} dimension{}; a weight matrix has 2 (reshape it)", shape.size(),
         shape.size() == 1 ? "" : "s");
  }
  array.rows = shape[0];
  array.cols = shape[1];
}

}  // namespace

SparseMatrix read_npy(const Source& source) {
  const NpyHeader header = read_npy_header(source);
  DenseArray array;
  array.element = header.element;
  array.big_endian = header.big_endian;
  array.column_major = header.fortran_order;
  array.offset = header.data_offset;
  set_shape(source.name(), header.shape, array);
  SparseMatrix matrix = read_dense(source, array);
  const uint64_t end = array.offset + array.rows * array.cols * size_of(array.element);
  if (end != source.size()) {
    fail(source.name(), "{} bytes follow the array of {} x {}; a file holds one array", source.size() - end,
         array.rows, array.cols);
  }
  return matrix;
}

void write_npy(const std::string& path, uint32_t rows, uint32_t cols, std::span<const float> values) {
  if (values.size() != uint64_t{rows} * cols) {
    throw UsageError(fmt::format("{}: {} values for an array of {} x {}", path, values.size(), rows, cols));
  }
  const uint64_t shape[] = {rows, cols};
  const std::string header = npy_header_text(Element::f32, shape);
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(header)));
  file.write(std::as_bytes(values));
  file.commit();
}

}  // namespace tessera::io
