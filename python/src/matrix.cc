// Sparse matrices: files, generators, and arrays in place.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <tessera/convolution.h>
#include <tessera/error.h>
#include <tessera/io.h>
#include <tessera/sparse.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "sparse/pattern.h"

namespace tessera::python {
namespace {

using namespace nb::literals;

SparseMatrix matrix_from(const std::pair<nb::object, nb::object>& shape, nb::handle block_size,
                         nb::handle crow_indices, nb::handle col_indices, nb::handle values) {
  const auto rows = static_cast<uint32_t>(whole_number(shape.first, "m", 0, sparse::kMaxDimension)),
             cols = static_cast<uint32_t>(whole_number(shape.second, "k", 0, sparse::kMaxDimension)),
             b = static_cast<uint32_t>(whole_number(block_size, "block_size", 1, sparse::kMaxBlockSize));
  const std::span<const float> stored = floats_of(values, "values");
  SparseMatrix matrix{{rows, cols, b, integers_of<uint64_t>(crow_indices, "crow_indices"),
                       integers_of<uint32_t>(col_indices, "col_indices")},
                      {stored.begin(), stored.end()}};
  sparse::validate(matrix);
  return matrix;
}

/// A new instance of `type`, a subclass of Matrix, that takes the contents of a matrix over.
nb::object adopt(nb::handle type, SparseMatrix& emptied) {
  nb::object adopted = nb::inst_alloc(type);
  new (nb::inst_ptr<SparseMatrix>(adopted)) SparseMatrix(std::move(emptied));
  nb::inst_mark_ready(adopted);
  return adopted;
}

SparseMatrix& of(nb::handle_t<SparseMatrix> self) { return nb::cast<SparseMatrix&>(self); }

PatternKind kind_named(const std::string& name) {
  if (name == "random") return PatternKind::random;
  if (name == "banded") return PatternKind::banded;
  if (name == "power_law") return PatternKind::power_law;
  if (name == "shuffled") return PatternKind::shuffled;
  throw UsageError("unknown kind of pattern '" + name +
                   "' (choose from random, banded, power_law, shuffled)");
}

SparseMatrix generated(std::pair<uint32_t, uint32_t> shape, double density, uint32_t block_size,
                       const std::string& kind, uint64_t seed) {
  return generate({kind_named(kind), shape.first, shape.second, density, block_size, seed});
}

/// Which blocks a pattern has: booleans [block rows, block columns].
Rows<bool> active_blocks(const Pattern& pattern) {
  const size_t width = pattern.block_cols(), count = pattern.block_rows() * width;
  auto active = std::make_unique<bool[]>(count);
  for (size_t row = 0; row < pattern.block_rows(); ++row)
    for (uint64_t i = pattern.crow_indices[row]; i < pattern.crow_indices[row + 1]; ++i)
      active[row * width + pattern.col_indices[i]] = true;
  bool* values = active.release();
  const nb::capsule owner(values, [](void* p) noexcept { delete[] static_cast<bool*>(p); });
  return Rows<bool>(values, {pattern.block_rows(), width}, owner);
}

Rows<bool> flat_butterfly_blocks(uint32_t rows, uint32_t cols, uint32_t block_size, uint32_t butterfly_size,
                                 uint32_t num_factors, bool stretch) {
  return active_blocks(flat_butterfly(rows, cols, block_size, butterfly_size, {num_factors, stretch}));
}

std::vector<Rows<bool>> block_butterfly_blocks(uint32_t rows, uint32_t cols, uint32_t block_size) {
  std::vector<Rows<bool>> factors;
  for (const Pattern& pattern : block_butterfly(rows, cols, block_size))
    factors.push_back(active_blocks(pattern));
  return factors;
}

}  // namespace

void bind_matrix(nb::module_& m) {
  nb::class_<SparseMatrix>(
      m, "Matrix", "A sparse matrix in CSR (block size 1) or BSR. Its arrays are views of its memory.")
      .def(
          "__init__",
          [](SparseMatrix* self, const std::pair<nb::object, nb::object>& shape, nb::object block_size,
             nb::object crow_indices, nb::object col_indices, nb::object values) {
            new (self) SparseMatrix(matrix_from(shape, block_size, crow_indices, col_indices, values));
          },
          "shape"_a, "block_size"_a, "crow_indices"_a, "col_indices"_a, "values"_a,
          nb::sig("def __init__(self, shape: tuple[int, int], block_size: int, crow_indices: object, "
                  "col_indices: object, "
                  "values: object) -> None"))
      .def(nb::init<const SparseMatrix&>(), "matrix"_a, "A copy.")
      .def_prop_ro("shape", [](const SparseMatrix& w) { return std::pair(w.pattern.rows, w.pattern.cols); })
      .def_prop_ro("block_size", [](const SparseMatrix& w) { return w.pattern.block_size; })
      .def_prop_ro(
          "crow_indices",
          [](nb::handle_t<SparseMatrix> self) {
            return view_of(std::span(of(self).pattern.crow_indices), self);
          },
          kOwned)
      .def_prop_ro(
          "col_indices",
          [](nb::handle_t<SparseMatrix> self) {
            return view_of(std::span(of(self).pattern.col_indices), self);
          },
          kOwned)
      .def_prop_ro(
          "values", [](nb::handle_t<SparseMatrix> self) { return view_of(std::span(of(self).values), self); },
          kOwned);
  m.def("adopt_matrix", &adopt, "type"_a, "emptied"_a,
        nb::sig("def adopt_matrix(type: type[T], emptied: Matrix) -> T"),
        "The contents of a matrix of which there are no views, as an instance of a subclass of Matrix.");
  m.def("read_matrix", &read_matrix, "path"_a, "tensor"_a = "", "seed"_a = 0,
        nb::call_guard<nb::gil_scoped_release>());
  m.def("generate", &generated, "shape"_a, "density"_a, "block_size"_a = 1, "kind"_a = "random", "seed"_a = 0,
        nb::call_guard<nb::gil_scoped_release>());
  m.def("block_butterfly", &block_butterfly_blocks, "rows"_a, "cols"_a, "block_size"_a);
  m.def("flat_butterfly", &flat_butterfly_blocks, "rows"_a, "cols"_a, "block_size"_a, "butterfly_size"_a,
        "num_factors"_a, "stretch"_a);
  m.def(
      "ungrouped_weight",
      [](const SparseMatrix& weight, uint32_t groups, uint32_t taps) {
        return graph::ungrouped_convolution_weight(weight, {groups, taps});
      },
      "weight"_a, "groups"_a, "taps"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def("cover_with_blocks", &cover_with_blocks, "matrix"_a, "block_size"_a,
        nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace tessera::python
