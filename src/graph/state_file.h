// Parameters and state of a session in a .safetensors file.
#pragma once

#include <tessera/graph.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace tessera::graph {

class StateFile {
 public:
  StateFile() = default;
  /// Reads a file. Throws Error if it is malformed, or has a checksum of other contents.
  explicit StateFile(const io::Source& source);

  /// Add a parameter or state, by its values or by its elements as bytes, and a pattern. Throw UsageError for
  /// a name that the file already has.
  void add(const ValueInfo& info, const std::vector<float>& values);
  void add(const ValueInfo& info, std::vector<std::byte> elements);
  void add_pattern(const std::string& name, const Pattern& pattern);
  void write(const std::string& path) const;

  const std::string& path() const { return path_; }
  /// The file's texts by name.
  io::TensorMetadata& metadata() { return metadata_; }
  const io::TensorMetadata& metadata() const { return metadata_; }
  /// Whether the file that was read has a checksum, as files of Tessera have.
  bool has_checksum() const { return has_checksum_; }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  bool has_pattern(const std::string& name) const;

  /// The values of a parameter or state; for a sparse one, of the blocks of a pattern. Throws Error if the
  /// file lacks it, or has it with another type or shape than the graph.
  std::vector<float> values(const ValueInfo& info, const Pattern* pattern) const;
  const std::vector<std::byte>& elements(const ValueInfo& info, const Pattern* pattern) const;
  /// Whether the file has a value in its own type.
  bool has_type_of(const ValueInfo& info) const;
  /// The values of a dense array of F32, F16, BF16 or a value's own type, with its shape.
  std::vector<float> dense_values(const ValueInfo& info) const;
  /// The pattern of a parameter. Throws Error if it has another shape than in the graph or, without a
  /// capacity, other blocks.
  Pattern pattern(const std::string& name, const Pattern& of_graph,
                  const std::optional<uint64_t>& capacity) const;

 private:
  struct Tensor {
    std::string dtype;
    std::vector<uint64_t> shape;
    std::vector<std::byte> bytes;
  };
  void insert(const std::string& name, Tensor tensor);
  /// The checksum of the arrays and of all texts but itself.
  std::string checksum() const;
  const Tensor& find(const std::string& name) const;
  template <class T>
  std::vector<T> integers(const std::string& name) const;

  std::string path_;
  std::map<std::string, Tensor> tensors_;
  io::TensorMetadata metadata_;
  bool has_checksum_ = false;
};

}  // namespace tessera::graph
