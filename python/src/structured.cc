// Structured maps of a batch of samples: butterflies, Kronecker-sparse factors, circulant and Toeplitz
// matrices, fastfood; with their gradients.
#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>
#include <tessera/error.h>
#include <tessera/structured.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"

namespace tessera::python {
namespace {

using namespace nb::literals;

/// A contiguous float32 array of any shape with `elements` elements.
const float* floats(nb::handle object, const std::string& name, uint64_t elements) {
  const nb::ndarray<nb::ro> array = array_of(object, name.c_str());
  if (array.dtype() != nb::dtype<float>())
    type_error(fmt::format("{} is {}; it must be float32", name, name_of(array.dtype())));
  if (!is_contiguous(array)) throw UsageError(fmt::format("{} is not contiguous in memory", name));
  if (array.size() != elements)
    throw UsageError(fmt::format("{} has {} elements; {} are needed", name, array.size(), elements));
  return static_cast<const float*>(array.data());
}

/// Zeros of a shape in memory that NumPy takes over.
struct Result {
  explicit Result(std::vector<size_t> of_shape) : shape(std::move(of_shape)) {
    values.resize(std::accumulate(shape.begin(), shape.end(), size_t{1}, std::multiplies<>()));
  }
  nb::object array() && {
    auto* kept = new std::vector<float>(std::move(values));
    return nb::ndarray<nb::numpy, float>(kept->data(), shape.size(), shape.data(), keep(kept)).cast();
  }

  std::vector<size_t> shape;
  std::vector<float> values;
};

/// Samples of x or of y.
std::vector<size_t> samples_of(const StructuredProduct& product, uint32_t features) {
  if (product.transposed()) return {features, product.batch()};
  return {product.batch(), features};
}

std::vector<const float*> parameters_from(const StructuredProduct& product, const nb::args& given) {
  const std::vector<StructuredParameter>& expected = product.parameters();
  if (given.size() != expected.size())
    throw UsageError(
        fmt::format("{} parameters; a {} has {}", given.size(), name_of(product.maps()[0]), expected.size()));
  std::vector<const float*> values;
  for (size_t i = 0; i < expected.size(); ++i)
    values.push_back(floats(given[i], std::string(expected[i].name), expected[i].elements()));
  return values;
}

nb::object call_structured(const StructuredProduct& product, nb::object x, nb::args parameters) {
  const float* from = floats(x, "x", uint64_t{product.batch()} * inputs_of(product.maps().front()));
  const std::vector<const float*> values = parameters_from(product, parameters);
  Result y(samples_of(product, outputs_of(product.maps().back())));
  {
    const nb::gil_scoped_release released;
    product(from, values, y.values.data());
  }
  return std::move(y).array();
}

nb::tuple gradients_of_structured(const StructuredProduct& product, nb::object x, nb::object dy,
                                  nb::args parameters) {
  const uint32_t inputs = inputs_of(product.maps().front()), outputs = outputs_of(product.maps().back());
  const float* from = floats(x, "x", uint64_t{product.batch()} * inputs);
  const float* of_y = floats(dy, "dy", uint64_t{product.batch()} * outputs);
  const std::vector<const float*> values = parameters_from(product, parameters);
  Result dx(samples_of(product, inputs));
  std::vector<Result> of_parameters;
  std::vector<float*> written;
  for (const StructuredParameter& parameter : product.parameters())
    of_parameters.emplace_back(std::vector<size_t>(parameter.shape.begin(), parameter.shape.end()));
  for (Result& result : of_parameters) written.push_back(result.values.data());
  {
    const nb::gil_scoped_release released;
    product.gradients(from, of_y, values, dx.values.data(), written);
  }
  nb::list all;
  all.append(std::move(dx).array());
  for (Result& result : of_parameters) all.append(std::move(result).array());
  return nb::tuple(all);
}

/// Runs a product on arrays given by their addresses.
void run_structured(const StructuredProduct& product, uintptr_t x, const std::vector<uintptr_t>& parameters,
                    uintptr_t y) {
  const nb::gil_scoped_release released;
  product(pointer<const float>(x), pointers<const float>(parameters), pointer<float>(y));
}

void run_gradients(const StructuredProduct& product, uintptr_t x, uintptr_t dy,
                   const std::vector<uintptr_t>& parameters, uintptr_t dx,
                   const std::vector<uintptr_t>& gradients) {
  const nb::gil_scoped_release released;
  product.gradients(pointer<const float>(x), pointer<const float>(dy), pointers<const float>(parameters),
                    pointer<float>(dx), pointers<float>(gradients));
}

void bind_structures(nb::module_& m) {
  nb::class_<Butterfly>(m, "Butterfly", "A product of log2(N) factors of 2 x 2 matrices.")
      .def(nb::init<uint32_t, uint32_t, uint32_t, bool, bool, bool>(), "inputs"_a, "outputs"_a,
           "nblocks"_a = 1, "tied"_a = false, "complex"_a = false, "decreasing"_a = false);
  nb::class_<Kronecker>(m, "Kronecker", "A Kronecker-sparse factor: I_a x (any b x c blocks) x I_d.")
      .def(nb::init<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>(), "a"_a, "b"_a, "c"_a, "d"_a,
           "inputs"_a = 0, "outputs"_a = 0);
  nb::class_<Circulant>(m, "Circulant", "A circulant matrix, by its first column.")
      .def(nb::init<uint32_t, uint32_t, uint32_t>(), "size"_a, "inputs"_a = 0, "outputs"_a = 0);
  nb::class_<Toeplitz>(m, "Toeplitz", "A matrix with equal elements along each diagonal.")
      .def(nb::init<uint32_t, uint32_t>(), "inputs"_a, "outputs"_a);
  nb::class_<Fastfood>(m, "Fastfood", "S * H * G * P * H * B, with a permutation of [stacks, N] indices.")
      .def(
          "__init__",
          [](Fastfood* self, uint32_t inputs, uint32_t outputs, nb::object permutation) {
            new (self) Fastfood{inputs, outputs, integers_of<uint32_t>(permutation, "permutation")};
          },
          "inputs"_a, "outputs"_a, "permutation"_a);
}

}  // namespace

void bind_structured(nb::module_& m) {
  bind_structures(m);
  nb::class_<StructuredProduct>(
      m, "StructuredProduct",
      "A structured map y = W*x of a batch of samples [batch, features], or [features, batch] if transposed, "
      "and its gradients; a bias is the last parameter. Safe to call from several threads.")
      .def(
          "__init__",
          [](StructuredProduct* self, const Structure& structure, uint32_t batch, bool transposed,
             uint32_t threads, bool bias) {
            new (self) StructuredProduct(structure, batch,
                                         {.transposed = transposed, .threads = threads, .bias = bias});
          },
          "structure"_a, "batch"_a, nb::kw_only(), "transposed"_a = false, "threads"_a = 0, "bias"_a = false)
      .def("__call__", &call_structured, "x"_a, "parameters"_a,
           nb::sig("def __call__(self, x: object, *parameters: object) -> object"),
           "y from x and the parameters, in order.")
      .def("gradients", &gradients_of_structured, "x"_a, "dy"_a, "parameters"_a,
           nb::sig("def gradients(self, x: object, dy: object, *parameters: object) -> tuple[object, ...]"),
           "dx and the gradients of the parameters, summed over the batch.")
      .def("run", &run_structured, "x"_a, "parameters"_a, "y"_a,
           "For callers that have checked their arrays: addresses of contiguous floats.")
      .def("run_gradients", &run_gradients, "x"_a, "dy"_a, "parameters"_a, "dx"_a, "gradients"_a,
           "The same for the gradients; dx may be 0, and gradients empty.")
      .def_prop_ro("batch", &StructuredProduct::batch)
      .def_prop_ro("parameters",
                   [](const StructuredProduct& product) {
                     nb::typed<nb::dict, nb::str, nb::typed<nb::tuple, int, nb::ellipsis>> shapes;
                     for (const StructuredParameter& parameter : product.parameters())
                       shapes[nb::str(parameter.name.data(), parameter.name.size())] =
                           nb::tuple(nb::cast(parameter.shape));
                     return shapes;
                   })
      .def("plan", &StructuredProduct::plan)
      .def("predicted_seconds", &StructuredProduct::predicted_seconds);
}

}  // namespace tessera::python
