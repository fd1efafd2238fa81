// Arrays that sessions of networks read and return.
#pragma once

#include <tessera/graph.h>
#include <tessera/optimizers.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arrays.h"

namespace tessera::python {

/// The type of values with that name. Throws ValueError for names other than f32, f16, bf16 and u32.
Type type_named(const std::string& name);

/// How something is rounded, if that is said.
std::optional<graph::Rounding> rounding_of(std::optional<bool> is_stochastic);

/// The element type of arrays for values of a type.
nb::dlpack::dtype dtype_of(Type type);

/// An array of the caller for an input of a network: its own memory if type and layout allow, otherwise a
/// copy in the input's type. Throws TypeError for integers instead of other numbers or the reverse,
/// ValueError for another shape and for integers that the type does not hold.
class TensorInput {
 public:
  TensorInput(nb::handle array, const std::string& name, const graph::TensorType& type);

  void* data() { return copy_.empty() ? const_cast<void*>(array_.data()) : copy_.data(); }
  bool is_copy() const { return !copy_.empty(); }

 private:
  nb::ndarray<nb::ro> array_;
  std::vector<std::byte> copy_;
};

/// Converts integers of 64 bits to an input's 32 bits. Throws ValueError, naming the input, for an integer
/// beyond the limits.
std::vector<int32_t> narrowed(std::span<const int64_t> integers, const std::string& name, int32_t least,
                              int32_t most);

/// Memory for an output, which becomes a NumPy array; float32 for bf16, which NumPy lacks.
class TensorOutput {
 public:
  explicit TensorOutput(const graph::TensorType& type);

  void* data() { return bytes_.data(); }
  nb::object array() &&;

 private:
  graph::TensorType type_;
  std::vector<std::byte> bytes_;
};

/// An array that takes a vector over, of any shape.
nb::object array_from(std::vector<float> values, const std::vector<size_t>& shape);

}  // namespace tessera::python
