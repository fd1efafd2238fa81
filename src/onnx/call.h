// An operator of a file, applied to its inputs, as far as these are known.
#pragma once

#include <fmt/format.h>
#include <tessera/error.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx/known.h"
#include "onnx/tensor_file.h"
#include "onnx/wire.pb.h"

namespace tessera::onnx {

/// Throws UsageError that says why this use of an operator is not supported.
template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

/// Inputs and attributes of a node. Throws UsageError, without the node's name, for invalid ones.
class Call {
 public:
  Call(Context& context, const wire::NodeProto& node, std::vector<std::optional<Known>> inputs, int64_t opset,
       const DataFolder& folder);

  Context& context;
  graph::Graph& graph;
  const wire::NodeProto& node;
  const int64_t opset;

  // Inputs.
  size_t size() const { return inputs_.size(); }
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i]; }
  const Known& operator[](size_t i) const;
  /// An input as a value of the graph, in the shape that the file states.
  graph::Value value(size_t i) const { return value_of((*this)[i]); }
  graph::Value value_of(const Known& known) const;
  std::optional<graph::Value> value_if(size_t i) const;
  /// An input that bounds values of its type, as in_range().
  graph::Value bound(size_t i, Bound side) const;
  /// The contents of an input that must be constant.
  const Constant& constant(size_t i) const;
  /// The integers of a constant input.
  const std::vector<int64_t>& integers(size_t i) const;
  int64_t integer_of(size_t i) const;
  double number_of(size_t i) const;
  /// Throws UsageError if an input is missing, or is not of truth values.
  void require_truth(size_t i) const;
  /// Throws UsageError for inputs of truth values.
  void require_numbers() const;
  /// Throws UsageError unless both inputs are truth values, or both are numbers.
  void require_one_kind(size_t i, size_t j) const;

  // Attributes.
  const wire::AttributeProto* attribute(std::string_view name) const;
  int64_t integer(std::string_view name, std::optional<int64_t> otherwise = {}) const;
  double number(std::string_view name, std::optional<double> otherwise = {}) const;
  std::string text(std::string_view name, const std::string& otherwise) const;
  std::optional<std::vector<int64_t>> integers_if(std::string_view name) const;
  ConstantPointer tensor(const wire::TensorProto& tensor) const { return read_tensor(tensor, folder_); }
  ConstantPointer tensor(const wire::SparseTensorProto& tensor) const {
    return read_sparse_tensor(tensor, folder_);
  }

  /// Integers that are an input in recent operator sets, and an attribute in older ones.
  std::optional<std::vector<int64_t>> integers_of(size_t input, std::string_view name) const;
  /// The index of a dimension of an input with `rank` dimensions; a negative `axis` counts from the end.
  static size_t dimension(int64_t axis, size_t rank);
  /// The dimensions that axes name, each once; without axes, the first `count`.
  static std::vector<size_t> dimensions(std::vector<int64_t> axes, size_t count, size_t rank);
  size_t axis(size_t rank, std::optional<int64_t> otherwise = {}) const;
  /// The attribute "perm", which names each dimension once; without it, or empty: the dimensions in reverse.
  std::vector<int64_t> permutation(size_t rank) const;
  /// A name for a weight that is computed, which has none in the file.
  std::string weight_name() const;
  /// Counts what an operator computes, a product of sizes, if that happens while the model is read.
  template <class... Sizes>
  void count_work(Sizes... sizes) const {
    if (context.weights == nullptr) context.count_work((static_cast<double>(sizes) * ...));
  }
  void note(std::string text) const { context.notes.insert(std::move(text)); }

 private:
  std::vector<std::optional<Known>> inputs_;
  const DataFolder& folder_;
};

using Results = std::vector<Known>;
/// Adds the operations of an operator to the graph.
using Handler = Results (*)(Call&);

inline constexpr size_t kAnyNumber = SIZE_MAX;

struct Operator {
  std::string_view name;
  Handler handler;
  size_t most_inputs = 1;  ///< in any operator set that is read
};

// The operators, by subject.
std::span<const Operator> elementwise_operators();
std::span<const Operator> comparison_operators();
std::span<const Operator> shape_operators();
std::span<const Operator> selection_operators();
std::span<const Operator> reduction_operators();
std::span<const Operator> product_operators();
std::span<const Operator> convolution_operators();
std::span<const Operator> norm_operators();
std::span<const Operator> image_operators();
std::span<const Operator> attention_operators();
std::span<const Operator> quantised_operators();
/// Operators that are computed on constants in 64 bits, or only on constants. The lists above say how many
/// inputs the former have.
std::span<const Operator> constant_operators();

}  // namespace tessera::onnx
