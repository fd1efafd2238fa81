#include "graph/state_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>
#include <zlib.h>

#include <cstring>

#include "kernels/common/numbers.h"
#include "sparse/pattern.h"

namespace tessera::graph {
namespace {

using io::dtype_of;

// What follows a parameter's name in the names of its pattern's arrays.
constexpr const char* kCrowIndices = ".crow_indices";
constexpr const char* kColIndices = ".col_indices";
constexpr const char* kShapeName = ".shape";  // for other readers of the file: the graph has the shape
// Names in files of earlier versions.
constexpr const char* kOldCrowIndices = ".row_begin";
constexpr const char* kOldColIndices = ".columns";

constexpr const char* kChecksum = "tessera_checksum";

/// Whether an array has the elements of a type. Files written before integers had types of their own call
/// them F32.
bool has_type(const std::string& dtype, Type type) {
  const bool is_word = type == Type::u32 || type == Type::i32;
  return dtype == dtype_of(type) || (is_word && dtype == dtype_of(Type::f32));
}

std::vector<uint64_t> shape_of(const ValueInfo& info, const Pattern* pattern) {
  if (pattern != nullptr) return {pattern->blocks(), pattern->block_size, pattern->block_size};
  return {info.type.shape.begin(), info.type.shape.end()};
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

StateFile::StateFile(const io::Source& source) : path_(source.name()) {
  for (const io::TensorInfo& info : io::list_safetensors(source, &metadata_)) {
    Tensor& tensor = tensors_[info.name];
    tensor = {info.dtype, info.shape, std::vector<std::byte>(info.end - info.begin)};
    source.read(info.begin, tensor.bytes);
  }
  const auto written = metadata_.find(kChecksum);
  if (written == metadata_.end()) return;  // an earlier version, or another program, wrote the file
  if (const std::string own = checksum(); own != written->second)
    throw Error(
        fmt::format("{}: the checksum of its contents is {}, but it was written with {}: the file is "
                    "damaged, or another program changed it",
                    path_, own, written->second));
  metadata_.erase(written);
  has_checksum_ = true;
}

std::string StateFile::checksum() const {
  uLong sum = 0;
  const auto add = [&](const void* data, size_t size) {
    sum = crc32_z(sum, static_cast<const Bytef*>(data), size);
  };
  const auto add_text = [&](const std::string& text) { add(text.c_str(), text.size() + 1); };
  for (const auto& [name, tensor] : tensors_) {
    add_text(name);
    add_text(fmt::format("{} {}", tensor.dtype, fmt::join(tensor.shape, ",")));
    add(tensor.bytes.data(), tensor.bytes.size());
  }
  for (const auto& [name, text] : metadata_) {
    if (name == kChecksum) continue;
    add_text(name);
    add_text(text);
  }
  return fmt::format("crc32 {:08x}", sum);
}

void StateFile::add(const ValueInfo& info, const std::vector<float>& values) {
  add(info, kernels::as_type(values, info.type.type));
}

void StateFile::add(const ValueInfo& info, std::vector<std::byte> elements) {
  std::vector<uint64_t> shape(info.type.shape.begin(), info.type.shape.end());
  if (info.type.pattern) {
    const uint64_t b = info.type.pattern->block_size;
    shape = {elements.size() / size_of(info.type.type) / (b * b), b, b};
  }
  insert(info.name, {dtype_of(info.type.type), std::move(shape), std::move(elements)});
}

void StateFile::insert(const std::string& name, Tensor tensor) {
  if (!tensors_.emplace(name, std::move(tensor)).second)
    throw UsageError(
        fmt::format("'{}' is the name of two arrays, as a sparse parameter's pattern has its name with "
                    ".crow_indices, .col_indices and .shape: rename one",
                    name));
}

void StateFile::add_pattern(const std::string& name, const Pattern& pattern) {
  insert(name + kCrowIndices, {"U64", {pattern.crow_indices.size()}, bytes_of(pattern.crow_indices)});
  insert(name + kColIndices, {"U32", {pattern.col_indices.size()}, bytes_of(pattern.col_indices)});
  insert(name + kShapeName, {"U64", {2}, bytes_of(std::vector<uint64_t>{pattern.rows, pattern.cols})});
}

bool StateFile::has_pattern(const std::string& name) const {
  return has(name + kCrowIndices) || has(name + kOldCrowIndices);
}

void StateFile::write(const std::string& path) const {
  std::vector<io::TensorData> data;
  for (const auto& [name, tensor] : tensors_)
    data.push_back({name, tensor.dtype, tensor.shape, tensor.bytes});
  io::TensorMetadata metadata = metadata_;
  metadata[kChecksum] = checksum();
  io::write_safetensors(path, data, metadata);
}

const StateFile::Tensor& StateFile::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw Error(fmt::format("{}: it lacks '{}'", path_, name));
  return found->second;
}

std::vector<float> StateFile::values(const ValueInfo& info, const Pattern* pattern) const {
  return kernels::as_floats(elements(info, pattern), info.type.type);
}

const std::vector<std::byte>& StateFile::elements(const ValueInfo& info, const Pattern* pattern) const {
  const Tensor& tensor = find(info.name);
  const std::vector<uint64_t> shape = shape_of(info, pattern);
  if (!has_type(tensor.dtype, info.type.type) || tensor.shape != shape)
    throw Error(fmt::format("{}: '{}' is {} [{}]; the graph's is {} [{}]", path_, info.name, tensor.dtype,
                            fmt::join(tensor.shape, ", "), dtype_of(info.type.type), fmt::join(shape, ", ")));
  return tensor.bytes;
}

bool StateFile::has_type_of(const ValueInfo& info) const {
  return find(info.name).dtype == dtype_of(info.type.type);
}

std::vector<float> StateFile::dense_values(const ValueInfo& info) const {
  const Tensor& tensor = find(info.name);
  const std::vector<uint64_t> shape = shape_of(info, nullptr);
  for (const Type type : {Type::f32, Type::f16, Type::bf16, info.type.type})
    if (tensor.dtype == dtype_of(type) && tensor.shape == shape)
      return kernels::as_floats(tensor.bytes, type);
  throw Error(fmt::format("{}: '{}' is {} [{}]; it must be F32, F16 or BF16 of [{}]", path_, info.name,
                          tensor.dtype, fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
}

template <class T>
std::vector<T> StateFile::integers(const std::string& name) const {
  const Tensor& tensor = find(name);
  const char* dtype = sizeof(T) == 8 ? "U64" : "U32";
  if (tensor.dtype != dtype || tensor.shape.size() != 1)
    throw Error(fmt::format("{}: '{}' is {} with {} dimensions; it must be {} with one", path_, name,
                            tensor.dtype, tensor.shape.size(), dtype));
  std::vector<T> values(tensor.shape[0]);
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

Pattern StateFile::pattern(const std::string& name, const Pattern& of_graph,
                           const std::optional<uint64_t>& capacity) const {
  const bool is_old = !has(name + kCrowIndices) && has(name + kOldCrowIndices);
  Pattern pattern{of_graph.rows, of_graph.cols, of_graph.block_size,
                  integers<uint64_t>(name + (is_old ? kOldCrowIndices : kCrowIndices)),
                  integers<uint32_t>(name + (is_old ? kOldColIndices : kColIndices))};
  try {
    sparse::validate(pattern);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: the pattern of '{}': {}", path_, name, error.what()));
  }
  if (!capacity && pattern != of_graph)
    throw Error(fmt::format("{}: '{}' has another pattern than the graph, where it is fixed", path_, name));
  if (capacity && pattern.blocks() > *capacity)
    throw Error(
        fmt::format("{}: '{}' has {} blocks; its capacity is {}", path_, name, pattern.blocks(), *capacity));
  return pattern;
}

}  // namespace tessera::graph
