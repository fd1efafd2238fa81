#include "cli/model_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "base/random.h"
#include "cli/option_parsing.h"
#include "cli/parse.h"
#include "io/npy_array.h"
#include "kernels/common/element.h"

namespace tessera::cli {
namespace {

constexpr uint64_t kMostValues = uint64_t{1} << 32;

/// Splits "name=text", where names may have "=" and texts may not.
std::pair<std::string, std::string> named(const std::string& option, const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0) throw invalid_value(option, text, "expected NAME=VALUE");
  return {text.substr(0, at), text.substr(at + 1)};
}

std::map<std::string, std::string> files_of(const ModelRequest& request) {
  std::map<std::string, std::string> files;
  for (const std::string& text : request.inputs) {
    const auto [name, file] = named("--input", text);
    if (!files.emplace(name, file).second) throw UsageError(fmt::format("--input names '{}' twice", name));
    if (file != "random") check_extension("--input", file, {".npy"});
  }
  return files;
}

io::NpyArray read_file(const std::string& path) {
  return io::read_npy_array(io::Source::open(path), kMostValues);
}

std::vector<double> random_values(const onnx::ValueType& type, uint64_t count, uint64_t seed,
                                  uint32_t number) {
  const base::RandomStream random(seed, 0, number);
  std::vector<float> values(count);
  random.fill_normal(values);
  if (!is_float(type))
    for (float& value : values) value = value > 0 ? 1 : 0;
  return {values.begin(), values.end()};
}

void require_range(const std::string& file, const io::NpyArray& array, const onnx::ValueType& type) {
  const auto [least, most] = onnx::range_of(type);
  for (const double value : array.values)
    if (value < static_cast<double>(least) || value > static_cast<double>(most))
      throw Error(fmt::format(
          "{}: the value {:.0f} is out of range; the input '{}' is {}, and takes integers from {} "
          "to {}",
          file, value, type.name, type.type, least, most));
}

std::vector<double> values_of(const std::string& file, const onnx::ValueType& type, const graph::Shape& shape,
                              Type to) {
  io::NpyArray array = read_file(file);
  if (!std::ranges::equal(array.shape, shape))
    throw Error(fmt::format("{}: its shape is [{}]; the input '{}' has the shape [{}]", file,
                            fmt::join(array.shape, ", "), type.name, fmt::join(shape, ", ")));
  const bool integers = to == Type::i32 || to == Type::u32;
  if (integers && array.element > io::Element::u64)
    throw Error(fmt::format("{}: its elements are floating-point numbers; the input '{}' is {}", file,
                            type.name, type.type));
  if (integers) require_range(file, array, type);
  if (type.type == "bool")
    for (double& value : array.values) value = value != 0 ? 1 : 0;
  return std::move(array.values);
}

}  // namespace

bool is_float(const onnx::ValueType& value) { return value.type.find("float") != std::string::npos; }

std::string names_of(const std::vector<onnx::ValueType>& values) {
  std::vector<std::string> names;
  for (const onnx::ValueType& each : values) names.push_back(each.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

void add_shape_option(CLI::App& command, std::vector<std::string>& shapes) {
  command.add_option(
      "--shape", shapes,
      "Shape of an input, or size of a named dimension, where the model leaves it open: NAME=1,128");
}

onnx::Shapes shapes_of(const std::vector<std::string>& texts) {
  onnx::Shapes shapes;
  for (const std::string& text : texts) {
    const auto [name, sizes] = named("--shape", text);
    if (shapes.contains(name)) throw UsageError(fmt::format("--shape names '{}' twice", name));
    graph::Shape& shape = shapes[name];
    for (const std::string& size : parse_names(sizes)) shape.push_back(parse_count("--shape", size, 1));
  }
  return shapes;
}

void add_model_options(CLI::App& command, ModelRequest& request) {
  command.add_option("model", request.path, "An .onnx file")->required();
  command.add_option("--input", request.inputs,
                     "Array for an input: NAME=FILE.npy, or NAME=random (default)");
  add_shape_option(command, request.shapes);
  command.add_flag("--dense", request.dense, "Keep all weights dense");
  add_seed(command, "--seed", request.seed, "Seed of random inputs");
}

onnx::ImportedModel import(const ModelRequest& request, uint32_t threads) {
  check_extension("the model", request.path, {".onnx"});
  const std::map<std::string, std::string> files = files_of(request);
  onnx::ImportOptions options{
      .shapes = shapes_of(request.shapes), .sparse = !request.dense, .threads = threads};
  const onnx::Model model = onnx::Model::read(request.path);
  for (const auto& [name, file] : files) {
    if (std::ranges::find(model.inputs(), name, &onnx::ValueType::name) == model.inputs().end())
      throw UsageError(fmt::format("--input: the model has no input '{}'; its inputs are {}", name,
                                   names_of(model.inputs())));
    if (file == "random" || options.shapes.contains(name)) continue;
    graph::Shape& shape = options.shapes[name];
    for (const uint64_t size : read_file(file).shape)
      shape.push_back(static_cast<uint32_t>(std::min<uint64_t>(size, UINT32_MAX)));
  }
  return model.import(options);
}

ModelArrays::ModelArrays(const graph::Session& session, const onnx::ImportedModel& model,
                         const ModelRequest& request) {
  const std::map<std::string, std::string> files = files_of(request);
  uint32_t number = 0;
  for (graph::ArrayType& type : session.arrays()) {
    Array& array = arrays_.emplace_back(Array{std::move(type), {}});
    const graph::TensorType& tensor = array.type.type;
    array.bytes.resize(tensor.bytes());
    if (!array.type.is_input) continue;
    const onnx::ValueType& input = *std::ranges::find(model.inputs, array.type.name, &onnx::ValueType::name);
    const auto file = files.find(array.type.name);
    const std::vector<double> values = file == files.end() || file->second == "random"
                                           ? random_values(input, tensor.elements(), request.seed, number++)
                                           : values_of(file->second, input, tensor.shape, tensor.type);
    for (size_t i = 0; i < values.size(); ++i)
      kernels::store_number(tensor.type, array.bytes.data() + i * size_of(tensor.type), values[i]);
  }
  for (Array& array : arrays_) addresses_.push_back(array.bytes.data());
}

void ModelArrays::run(graph::Session& session) { session.run_in_order(addresses_); }

graph::RunCost ModelArrays::measure(graph::Session& session) { return session.measure(tensors()); }

std::vector<graph::Tensor> ModelArrays::tensors() {
  std::vector<graph::Tensor> tensors;
  for (Array& array : arrays_) tensors.push_back({array.type.name, array.bytes.data(), {}});
  return tensors;
}

std::vector<double> ModelArrays::output(const std::string& name) const {
  const auto found = std::ranges::find_if(
      arrays_, [&](const Array& array) { return !array.type.is_input && array.type.name == name; });
  const Type type = found->type.type.type;
  std::vector<double> values(found->type.type.elements());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = kernels::load_number(type, found->bytes.data() + i * size_of(type));
  return values;
}

}  // namespace tessera::cli
