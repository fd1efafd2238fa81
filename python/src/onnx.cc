// Models in ONNX files.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>
#include <tessera/onnx.h>

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bindings.h"

namespace nb = nanobind;

namespace tessera::python {
namespace {

using namespace nb::literals;
using Released = nb::call_guard<nb::gil_scoped_release>;

/// A size, a name, or neither.
using Size = std::variant<uint32_t, std::string, std::monostate>;

std::vector<Size> shape_of(const onnx::ValueType& type) {
  std::vector<Size> shape;
  for (const onnx::Dimension& dimension : type.shape) {
    if (dimension.size)
      shape.emplace_back(*dimension.size);
    else if (!dimension.name.empty())
      shape.emplace_back(dimension.name);
    else
      shape.emplace_back(std::monostate());
  }
  return shape;
}

/// A text of a file, which may not be UTF-8.
nb::str decoded(const std::string& text) {
  PyObject* found = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (found == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(found);
}

template <std::string onnx::Description::*text>
nb::str text_in(const onnx::Description& description) {
  return decoded(description.*text);
}

nb::dict properties_of(const onnx::Description& description) {
  nb::dict all;
  for (const auto& [name, text] : description.properties) all[decoded(name)] = decoded(text);
  return all;
}

/// A model, of which graphs for several shapes share weights.
class OnnxModel {
 public:
  explicit OnnxModel(onnx::Model model) : model_(std::move(model)) {}

  const onnx::Model& model() const { return model_; }
  onnx::ImportedModel import(std::map<std::string, graph::Shape> shapes, bool sparse, uint32_t threads,
                             uint64_t most_computed) const {
    return model_.import(
        {.shapes = std::move(shapes), .sparse = sparse, .threads = threads, .most_computed = most_computed});
  }

 private:
  onnx::Model model_;
};

OnnxModel parse(nb::bytes content, const std::string& name, const std::string& folder) {
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(content.data()), content.size());
  const nb::gil_scoped_release released;
  return OnnxModel(onnx::Model::parse(bytes, name, folder));
}

}  // namespace

void bind_onnx(nb::module_& m) {
  nb::exception<onnx::UnsupportedModelError>(m, "UnsupportedModelError", PyExc_RuntimeError);
  nb::class_<onnx::ValueType>(m, "OnnxValue", "An input or output of a model in an ONNX file.")
      .def_ro("name", &onnx::ValueType::name)
      .def_ro("dtype", &onnx::ValueType::type, "NumPy's name of the type.")
      .def_prop_ro("shape", &shape_of, "Sizes, names of sizes, or None.")
      .def_ro("has_shape", &onnx::ValueType::has_shape, "Whether the file says how many dimensions it has.")
      .def("__repr__", [](const onnx::ValueType& type) { return type.name + ": " + to_string(type); });
  nb::class_<onnx::LayerChoice>(m, "OnnxLayer", "A product with a weight, and what became of the weight.")
      .def_ro("name", &onnx::LayerChoice::name)
      .def_ro("rows", &onnx::LayerChoice::rows)
      .def_ro("zeros", &onnx::LayerChoice::zeros)
      .def_ro("is_sparse", &onnx::LayerChoice::is_sparse)
      .def_ro("copy_bytes", &onnx::LayerChoice::copy_bytes)
      .def_prop_ro("why_dense",
                   [](const onnx::LayerChoice& layer) { return std::string(layer.why_dense()); });
  nb::class_<onnx::ImportedModel>(m, "ImportedModel", "A graph for inputs of certain shapes.")
      .def(
          "take_graph", [](onnx::ImportedModel& imported) { return std::move(imported.graph); },
          "The graph, once.")
      .def_ro("inputs", &onnx::ImportedModel::inputs)
      .def_ro("outputs", &onnx::ImportedModel::outputs)
      .def_ro("layers", &onnx::ImportedModel::layers)
      .def_ro("notes", &onnx::ImportedModel::notes);
  nb::class_<onnx::Description>(m, "OnnxDescription", "What a file says about its model.")
      .def_prop_ro("producer", &text_in<&onnx::Description::producer>)
      .def_prop_ro("domain", &text_in<&onnx::Description::domain>)
      .def_ro("version", &onnx::Description::version)
      .def_prop_ro("text", &text_in<&onnx::Description::text>)
      .def_prop_ro("graph_name", &text_in<&onnx::Description::graph_name>)
      .def_prop_ro("graph_text", &text_in<&onnx::Description::graph_text>)
      .def_prop_ro("properties", &properties_of, nb::sig("def properties(self) -> dict[str, str]"));
  nb::class_<OnnxModel>(m, "OnnxModel", "A model in an ONNX file.")
      .def_static(
          "read", [](const std::string& path) { return OnnxModel(onnx::Model::read(path)); }, "path"_a,
          Released())
      .def_static("parse", &parse, "content"_a, "name"_a, "folder"_a)
      .def_prop_ro("inputs", [](const OnnxModel& model) { return model.model().inputs(); })
      .def_prop_ro("outputs", [](const OnnxModel& model) { return model.model().outputs(); })
      .def_prop_ro("description", [](const OnnxModel& model) { return model.model().description(); })
      .def_prop_ro("operators", [](const OnnxModel& model) { return model.model().operators(); })
      .def("imported", &OnnxModel::import, "shapes"_a, "sparse"_a, "threads"_a, "most_computed"_a,
           Released());
}

}  // namespace tessera::python
