// Prepacked weights, their packed order, and changes of a dynamic weight's pattern.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <tessera/drop_grow.h>
#include <tessera/error.h>
#include <tessera/weight.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"

namespace tessera::python {
namespace {

using namespace nb::literals;
using Released = nb::call_guard<nb::gil_scoped_release>;

Type type_named(const std::string& name) {
  for (const Type type : {Type::f32, Type::f16, Type::bf16})
    if (name == tessera::name_of(type)) return type;
  throw UsageError(fmt::format("unknown type of a weight '{}' (choose from f32, f16, bf16)", name));
}

Weight make_weight(const SparseMatrix& matrix, const std::string& dtype, std::optional<uint64_t> capacity) {
  const Type type = type_named(dtype);
  const nb::gil_scoped_release released;
  return capacity ? Weight::dynamic(matrix, *capacity, type) : Weight(matrix, type);
}

/// An operand's strides, as the library's own views have them.
MatrixView<const float> matrix_view(const Operand& w, uint32_t rows, uint32_t cols) {
  if (w.layout == Layout::row_major) return row_major<const float>(w.data, w.leading != 0 ? w.leading : cols);
  return column_major<const float>(w.data, w.leading != 0 ? w.leading : rows);
}

Weight make_dense(nb::handle values, std::pair<uint32_t, uint32_t> shape, const std::string& dtype) {
  const auto [m, k] = shape;
  const Operand w = operand_of(values, "W", m, k);
  const Type type = type_named(dtype);
  const nb::gil_scoped_release released;
  return Weight::dense(matrix_view(w, m, k), m, k, type);
}

Weight make_without_values(std::pair<uint32_t, uint32_t> shape, uint32_t block_size, nb::handle crow_indices,
                           nb::handle col_indices, const std::string& dtype,
                           std::optional<uint64_t> capacity) {
  const Pattern pattern{shape.first, shape.second, block_size,
                        integers_of<uint64_t>(crow_indices, "crow_indices"),
                        integers_of<uint32_t>(col_indices, "col_indices")};
  const Type type = type_named(dtype);
  const nb::gil_scoped_release released;
  return capacity ? Weight::without_values(pattern, *capacity, type) : Weight::without_values(pattern, type);
}

Weight with_type(const Weight& like, const std::string& dtype) {
  const Type type = type_named(dtype);
  const nb::gil_scoped_release released;
  return like.is_dynamic() ? Weight::without_values(like.pattern(), like.capacity(), type)
                           : Weight::without_values(like.pattern(), type);
}

Pattern pattern_from(const Weight& like, nb::handle crow_indices, nb::handle col_indices) {
  return {like.rows(), like.cols(), like.block_size(), integers_of<uint64_t>(crow_indices, "crow_indices"),
          integers_of<uint32_t>(col_indices, "col_indices")};
}

/// The number of values in the order of SparseMatrix::values, or row-major for a dense weight.
uint64_t stored_values(const Weight& w) {
  if (w.is_dense()) return uint64_t{w.rows()} * w.cols();
  return w.pattern().blocks() * w.block_size() * w.block_size();
}

SparseMatrix stored_matrix(const Weight& w) {
  if (w.is_dense()) throw UsageError("a dense weight has no sparse matrix; use values()");
  SparseMatrix matrix{w.pattern(), {}};
  matrix.values.resize(stored_values(w));
  w.get_values(matrix.values);
  return matrix;
}

std::vector<BlockPosition> positions_of(nb::handle blocks, const char* name) {
  const std::vector<uint32_t> numbers = integers_of<uint32_t>(blocks, name, 2);
  std::vector<BlockPosition> positions(numbers.size() / 2);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = {numbers[2 * i], numbers[2 * i + 1]};
  return positions;
}

uint64_t count_of(nb::handle count) { return whole_number(count, "count", 0, INT64_MAX); }

Rows<uint32_t> array_of(const std::vector<BlockPosition>& positions) {
  std::vector<uint32_t> numbers;
  numbers.reserve(2 * positions.size());
  for (const BlockPosition& p : positions) numbers.insert(numbers.end(), {p.row, p.col});
  return rows_from(std::move(numbers), 2);
}

/// An array of `size` that a conversion fills.
template <class Fill>
Numbers<float> filled(uint64_t size, const Fill& fill) {
  std::vector<float> out;
  {
    const nb::gil_scoped_release released;
    out.resize(size);
    fill(std::span(out));
  }
  return array_from(std::move(out));
}

void bind_packed_order(nb::class_<Weight>& weight) {
  weight.def_prop_ro("packed_size", &Weight::packed_size)
      .def_prop_ro("packed_format", [](const Weight& w) { return static_cast<uint32_t>(w.packed_format()); })
      .def_prop_ro(
          "packed_values",
          [](nb::handle_t<Weight> self) { return view_of(nb::cast<Weight&>(self).packed_values(), self); },
          kOwned)
      .def(
          "pack",
          [](const Weight& w, nb::object values) {
            const auto from = floats_of(values, "values");
            return filled(w.packed_size(), [&](std::span<float> packed) { w.pack(from, packed); });
          },
          "values"_a)
      .def(
          "unpack",
          [](const Weight& w, nb::object packed) {
            const auto from = floats_of(packed, "packed");
            return filled(stored_values(w), [&](std::span<float> values) { w.unpack(from, values); });
          },
          "packed"_a);
}

void bind_changes(nb::class_<Weight>& weight) {
  weight.def("set_matrix", &Weight::set_matrix, "matrix"_a, Released())
      .def(
          "set_pattern",
          [](Weight& w, nb::object crow_indices, nb::object col_indices) {
            const Pattern pattern = pattern_from(w, crow_indices, col_indices);
            const nb::gil_scoped_release released;
            return w.set_pattern(pattern);
          },
          "crow_indices"_a, "col_indices"_a)
      .def(
          "replace",
          [](Weight& w, nb::object drop, nb::object grow) {
            const auto dropped = positions_of(drop, "drop");
            const auto grown = positions_of(grow, "grow");
            const nb::gil_scoped_release released;
            return w.replace(dropped, grown);
          },
          "drop"_a, "grow"_a)
      .def("compact", &Weight::compact, Released());
  weight
      .def(
          "weakest_blocks",
          [](const Weight& w, nb::object count) { return array_of(weakest_blocks(w, count_of(count))); },
          "count"_a, nb::sig("def weakest_blocks(self, count: int) -> numpy.typing.NDArray[numpy.uint32]"))
      .def(
          "random_empty_blocks",
          [](const Weight& w, nb::object count, nb::object seed, nb::object step) {
            return array_of(random_empty_blocks(w, count_of(count), whole_number(seed, "seed", 0, UINT64_MAX),
                                                static_cast<uint32_t>(whole_number(step, "step"))));
          },
          "count"_a, "seed"_a, "step"_a,
          nb::sig("def random_empty_blocks(self, count: int, seed: int, step: int) -> "
                  "numpy.typing.NDArray[numpy.uint32]"))
      .def(
          "strongest_empty_blocks",
          [](const Weight& w, nb::object count, nb::object gradient) {
            const Operand g = operand_of(gradient, "the gradient", w.rows(), w.cols());
            return array_of(strongest_empty_blocks(w, count_of(count), matrix_view(g, w.rows(), w.cols())));
          },
          "count"_a, "gradient"_a,
          nb::sig("def strongest_empty_blocks(self, count: int, gradient: object) -> "
                  "numpy.typing.NDArray[numpy.uint32]"));
}

}  // namespace

void bind_weight(nb::module_& m) {
  nb::class_<Relocation>(m, "Relocation", "The change of packed order with a dynamic weight's pattern.")
      .def(
          "apply",
          [](const Relocation& r, nb::object state) {
            const auto array = writable_floats_of(state, "the state");
            const nb::gil_scoped_release released;
            r.apply(array);
          },
          "state"_a);

  nb::class_<Weight> weight(m, "Weight", "A weight prepacked for the kernels.");
  weight
      .def(
          "__init__",
          [](Weight* self, const SparseMatrix& matrix, const std::string& dtype,
             std::optional<uint64_t> capacity) { new (self) Weight(make_weight(matrix, dtype, capacity)); },
          "matrix"_a, "dtype"_a = "f32", "capacity"_a = nb::none())
      .def(
          "__init__",
          [](Weight* self, nb::object values, std::pair<uint32_t, uint32_t> shape, const std::string& dtype) {
            new (self) Weight(make_dense(values, shape, dtype));
          },
          "values"_a, "shape"_a, "dtype"_a = "f32")
      .def_static("without_values", &make_without_values, "shape"_a, "block_size"_a, "crow_indices"_a,
                  "col_indices"_a, "dtype"_a = "f32", "capacity"_a = nb::none(),
                  "A weight whose values the caller keeps, and passes to products in packed order.")
      .def("with_type", &with_type, "dtype"_a, "This weight without values, for values of another type.")
      .def_prop_ro("shape", [](const Weight& w) { return std::pair(w.rows(), w.cols()); })
      .def_prop_ro("block_size", &Weight::block_size)
      .def_prop_ro("dtype", [](const Weight& w) { return std::string(tessera::name_of(w.type())); })
      .def_prop_ro("is_dense", &Weight::is_dense)
      .def_prop_ro("has_values", &Weight::has_values)
      .def_prop_ro("is_dynamic", &Weight::is_dynamic)
      .def_prop_ro("capacity", &Weight::capacity)
      .def_prop_ro("non_zeros", &Weight::non_zeros)
      .def_prop_ro("nbytes", &Weight::bytes)
      .def_prop_ro(
          "pattern",
          [](const Weight& w) {
            Pattern pattern = w.pattern();
            return std::pair(array_from(std::move(pattern.crow_indices)),
                             array_from(std::move(pattern.col_indices)));
          },
          kOwned)
      .def("matrix", &stored_matrix, Released())
      .def("values",
           [](const Weight& w) {
             return filled(stored_values(w), [&](std::span<float> values) { w.get_values(values); });
           })
      .def(
          "set_values",
          [](Weight& w, nb::object values) {
            const auto array = floats_of(values, "values");
            const nb::gil_scoped_release released;
            w.set_values(array);
          },
          "values"_a);
  bind_packed_order(weight);
  bind_changes(weight);

  m.def(
      "permute_packed",
      [](nb::object from, nb::object to, const SparseMatrix& pattern, nb::object values) {
        const auto source = floats_of(values, "values");
        const auto old = static_cast<PackedFormat>(whole_number(from, "from_format"));
        const auto target = static_cast<PackedFormat>(whole_number(to, "to_format"));
        return filled(packed_size(target, pattern.pattern), [&](std::span<float> permuted) {
          permute_packed(old, target, pattern.pattern, source, permuted);
        });
      },
      "from_format"_a, "to_format"_a, "pattern"_a, "values"_a,
      nb::sig("def permute_packed(from_format: int, to_format: int, pattern: Matrix, values: object) -> "
              "numpy.typing.NDArray[numpy.float32]"),
      "Convert values of a matrix from one packed format to another.\n\n"
      "It reads values of a weight that were saved with another instruction set, whose packed order may "
      "differ. Formats are numbers as in `Weight.packed_format`; 0 is the order of CSR or BSR "
      "(`Matrix.values`). "
      "`pattern` is a matrix with the weight's pattern, such as `Weight.matrix()` returns; its values are "
      "ignored. `values` is float32, one-dimensional and contiguous. Padding of a format is 0.\n\n"
      "Raises ValueError for a format that does not apply to the matrix (the format of a dynamic weight "
      "applies to none: save `Weight.unpack(…)` instead) and for a wrong number of values; TypeError "
      "for another type.");
  m.def(
      "packed_size",
      [](uint32_t format, const SparseMatrix& pattern) {
        return packed_size(static_cast<PackedFormat>(format), pattern.pattern);
      },
      "format"_a, "pattern"_a);
}

}  // namespace tessera::python
