// Types of the values of a graph, and initial contents.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::graph {

/// Sizes of a value's dimensions, at most five; a scalar has none. The last dimension counts features, the
/// others count rows.
using Shape = std::vector<uint32_t>;
inline constexpr size_t kMaxDimensions = 5;

/// Type and shape of a value.
struct TensorType {
  Type type = Type::f32;
  Shape shape = {};
  /// The pattern of a sparse matrix, of its gradient, or of an optimizer's state for it: only the pattern's
  /// blocks are stored. Null for a dense value.
  std::shared_ptr<const Pattern> pattern = {};
  /// Maximum number of blocks, if the pattern may change.
  std::optional<uint64_t> capacity = {};
  /// Whether each of the graph's replicas has only an equal part of the elements.
  bool sharded = false;

  uint64_t elements() const;
  uint64_t bytes() const;
  /// The value as a matrix: the last dimension gives the columns, the product of the other dimensions the
  /// rows.
  uint32_t cols() const { return shape.empty() ? 1 : shape.back(); }
  uint32_t rows() const;
  bool operator==(const TensorType& other) const;
};

/// "f32[50, 1024]"
std::string to_string(const TensorType& type);

/// The kind of a value.
enum class Kind : uint8_t {
  input,      ///< given on each run
  parameter,  ///< stays between runs; training changes it
  state,      ///< stays between runs, such as an optimizer's momentum
  constant,
  result,  ///< computed by an operation
};

/// Initial contents of a parameter or state.
struct Initial {
  enum class Kind : uint8_t { zeros, constant, normal, uniform, values };
  Kind kind = Kind::zeros;
  /// The constant, the standard deviation, or the bound of uniform values in (-scale, scale); finite.
  double scale = 0;
  /// Row-major; for a sparse matrix, the values of its blocks as in SparseMatrix::values.
  std::shared_ptr<const std::vector<float>> values = {};

  static Initial constant(double value) { return {Kind::constant, value, {}}; }
  static Initial normal(double deviation) { return {Kind::normal, deviation, {}}; }
  static Initial uniform(double bound) { return {Kind::uniform, bound, {}}; }
  static Initial from(std::vector<float> values);
};

}  // namespace tessera::graph
