// Zeros of arrays, and of the files of models.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <tessera/error.h>
#include <tessera/inspect.h>
#include <tessera/onnx.h>
#include <tessera/sparse.h>

#include <algorithm>
#include <optional>
#include <string>

#include "arrays.h"
#include "bindings.h"
#include "io/atomic_file.h"
#include "ops/sparse/host/advise.h"
#include "report/inspect_report.h"
#include "sparse/pattern.h"
#include "tensors.h"

namespace tessera::python {
namespace {

using namespace nb::literals;

Type weight_type(const nb::ndarray<nb::ro>& array) {
  for (const Type type : {Type::f32, Type::f16, Type::bf16})
    if (array.dtype() == dtype_of(type)) return type;
  type_error(
      fmt::format("the weight has elements of type {}; zeros are found among float32, float16 and bfloat16",
                  name_of(array.dtype())));
}

Zeros zeros_of_array(nb::handle weight, uint32_t rows) {
  const nb::ndarray<nb::ro> array = array_of(weight, "the weight");
  const Type type = weight_type(array);
  if (array.ndim() != 2)
    throw UsageError(fmt::format("the weight has {} dimensions; a matrix has 2", array.ndim()));
  const size_t m = array.shape(0), k = array.shape(1);
  if (std::max(m, k) > INT32_MAX)
    throw UsageError(fmt::format("the weight is {} × {}, which is too large", m, k));
  if (m > 0 && k > 1 && array.stride(1) != 1)
    throw UsageError("the rows of the weight are not contiguous: copy it (numpy.ascontiguousarray)");
  const void* data = array.data();
  const int64_t stride = array.stride(0);
  const nb::gil_scoped_release released;
  return zeros_of(data, type, static_cast<uint32_t>(m), static_cast<uint32_t>(k), stride, {.n = rows});
}

Zeros zeros_of_matrix(const SparseMatrix& weight, uint32_t rows, const std::string& type, uint32_t groups,
                      uint32_t taps) {
  sparse::validate(weight.pattern);
  const Pattern elements = sparse::cover(weight.pattern, 1);
  if (groups == 1) return zeros_of(elements, type_named(type), {.n = rows});
  return zeros_of_groups(elements, type_named(type), {groups, taps}, {.n = rows});
}

/// Can be interrupted between tensors.
InspectedModel inspect_path(const std::string& path, const std::string& tensor, uint32_t rows) {
  const InspectProgress check = [](size_t, size_t, const std::string&) {
    const nb::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  };
  if (path.ends_with(".onnx")) return onnx::inspect(path, tensor, {.n = rows}, check);
  return tessera::inspect(path, tensor, {.n = rows}, check);
}

/// None for what is no product.
template <class T>
std::optional<T> if_product(const Zeros& zeros, T value) {
  return zeros.reason == NoGain::not_a_product ? std::nullopt : std::optional<T>(value);
}

void bind_zeros(nb::module_& m) {
  nb::class_<BlockZeros>(m, "BlockZeros", "The aligned blocks of a weight that have a non-zero.")
      .def_ro("block_size", &BlockZeros::block_size)
      .def_ro("blocks", &BlockZeros::blocks)
      .def_ro("density", &BlockZeros::density, "Fraction of the weight inside these blocks.")
      .def_ro("fill_in", &BlockZeros::fill_in, "Elements inside these blocks per non-zero.")
      .def_ro("seconds", &BlockZeros::seconds,
              "Predicted seconds of a product; None where this block size cannot be fastest.");
  nb::class_<Zeros>(
      m, "Zeros",
      "The zeros of a weight [outputs, inputs], and predicted times of products with it, None for a tensor "
      "without a product.")
      .def_prop_ro(
          "shape", [](const Zeros& z) { return nb::make_tuple(z.rows, z.cols); },
          nb::sig("def shape(self) -> tuple[int, int]"))
      .def_ro("non_zeros", &Zeros::non_zeros)
      .def_ro("density", &Zeros::density)
      .def_ro("blocks", &Zeros::blocks, "A BlockZeros for each of the block sizes 1, 4, 8, 16 and 32.")
      .def_ro("zero_rows", &Zeros::zero_rows)
      .def_ro("zero_cols", &Zeros::zero_cols)
      .def_ro("is_2_4", &Zeros::is_2_4,
              "Whether each aligned group of four elements in a row has at most two non-zeros.")
      .def_prop_ro("dense_seconds", [](const Zeros& z) { return if_product(z, z.dense_seconds); })
      .def_prop_ro("sparse_seconds", [](const Zeros& z) { return if_product(z, z.sparse_seconds); })
      .def_prop_ro("best_block_size", [](const Zeros& z) { return if_product(z, z.best_block_size); })
      .def_prop_ro("sparse_bytes", [](const Zeros& z) { return if_product(z, z.sparse_bytes); })
      .def_prop_ro("speedup",
                   [](const Zeros& z) { return if_product(z, z.dense_seconds / z.sparse_seconds); })
      .def_prop_ro("pays", &Zeros::pays,
                   "Whether the sparse product takes at most 0.9 of the dense product's time.")
      .def_prop_ro(
          "reason", [](const Zeros& z) { return std::string(name_of(z.reason)); },
          "Why the sparse product does not pay: \"too dense\", …; empty if it pays.")
      .def("__repr__", [](const Zeros& z) {
        return fmt::format("<zeros: {} × {}, density {:.3g}, {}>", z.rows, z.cols, z.density,
                           z.pays() ? fmt::format("speed-up {:.1f} with blocks of {}",
                                                  z.dense_seconds / z.sparse_seconds, z.best_block_size)
                                    : std::string(name_of(z.reason)));
      });
  m.attr("GAIN") = ops::kMostOfDense;
  m.def("zeros_of_array", &zeros_of_array, "weight"_a, "rows"_a);
  m.def("zeros_of_matrix", &zeros_of_matrix, "weight"_a, "rows"_a, "type"_a = "f32", "groups"_a = 1,
        "taps"_a = 1, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace

void bind_inspect(nb::module_& m) {
  bind_zeros(m);
  nb::class_<InspectedTensor>(m, "InspectedTensor", "A tensor in the files of a model.")
      .def_ro("name", &InspectedTensor::name)
      .def_ro("form", &InspectedTensor::form,
              "How the tensor is stored: \"dense\", \"masked\", \"CSR or BSR\", …")
      .def_ro("dtype", &InspectedTensor::dtype, "Type as the file names it: \"F32\", \"BF16\", …")
      .def_prop_ro(
          "shape", [](const InspectedTensor& t) { return nb::tuple(nb::cast(t.shape)); },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_ro("elements", &InspectedTensor::elements)
      .def_ro("dense_bytes", &InspectedTensor::dense_bytes)
      .def_ro("zeros", &InspectedTensor::zeros,
              "None for types other than F32, F16 and BF16, except for quantised weights of an ONNX model.")
      .def_prop_ro(
          "rows",
          [](const InspectedTensor& t) { return t.n == 0 ? std::nullopt : std::optional<uint32_t>(t.n); },
          "Number of rows of the layer's input, where an ONNX model gives it; None: `rows` of the model.");
  nb::class_<InspectedTotals>(m, "InspectedTotals",
                              "Sums over tensors with `zeros`; bytes are summed over all tensors.")
      .def_ro("elements", &InspectedTotals::elements)
      .def_ro("zeros", &InspectedTotals::zeros)
      .def_ro("dense_bytes", &InspectedTotals::dense_bytes)
      .def_ro("sparse_bytes", &InspectedTotals::sparse_bytes)
      .def_ro("dense_seconds", &InspectedTotals::dense_seconds)
      .def_ro("sparse_seconds", &InspectedTotals::sparse_seconds);
  nb::class_<InspectedModel>(m, "InspectedModel",
                             "The tensors of a model, and their sums; printing it gives a table.")
      .def_ro("path", &InspectedModel::path)
      .def_ro("rows", &InspectedModel::n)
      .def_ro("tensors", &InspectedModel::tensors)
      .def_ro("totals", &InspectedModel::totals)
      .def_prop_ro(
          "unsupported",
          [](const InspectedModel& model) {
            nb::list all;
            for (const UnsupportedOperator& each : model.unsupported)
              all.append(nb::make_tuple(each.op_type, each.node, each.reason));
            return all;
          },
          nb::sig("def unsupported(self) -> list[tuple[str, str, str]]"),
          "Operators because of which an ONNX model cannot be run: name, node and reason (may be empty).")
      .def(
          "to_json",
          [](const InspectedModel& model) {
            return report::json({&model, 1});
          },
          "The object that `tessera inspect --json` prints.")
      .def(
          "report",
          [](const InspectedModel& model, nb::handle path) {
            const nb::object text = nb::module_::import_("os").attr("fspath")(path);
            io::write_text(nb::cast<std::string>(text), report::page_of({&model, 1}));
          },
          "path"_a, nb::sig("def report(self, path: str | os.PathLike[str]) -> None"),
          "Write the page of `tessera inspect --report`.")
      .def("__repr__", [](const InspectedModel& model) { return report::text_of(model); });
  m.def("inspect", &inspect_path, "path"_a, "tensor"_a, "rows"_a, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace tessera::python
