// Gradients of functions, each of which is differentiated once, however often it is called.
#pragma once

#include <tessera/graph.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace tessera::graph {

/// A function and its gradient.
struct FunctionGradient {
  /// The function, with the results that its gradient needs as further outputs "stash…".
  std::shared_ptr<const Graph> forward;
  /// The function's gradient: its inputs are `taken` and then the gradients of outputs; its outputs
  /// "gradient…" are the gradients of the inputs.
  std::shared_ptr<const Graph> backward;
  /// An input or output of `forward`, by position.
  struct Taken {
    bool is_output = false;
    size_t position = 0;
  };
  std::vector<Taken> taken;
  std::vector<std::optional<size_t>> gradients;  ///< by input: output of `backward` that is its gradient
};

class FunctionGradients {
 public:
  /// `sums_in_f32`: whether gradients of 16 bits are summed over the passes of loops in FP32.
  explicit FunctionGradients(bool sums_in_f32) : sums_in_f32_(sums_in_f32) {}

  bool sums_in_f32() const { return sums_in_f32_; }
  /// The gradient of a function, where `given` says which outputs have gradients.
  const FunctionGradient& of(const std::shared_ptr<const Graph>& function, const std::vector<bool>& given);

 private:
  bool sums_in_f32_;
  std::map<std::pair<std::shared_ptr<const Graph>, std::vector<bool>>, FunctionGradient> known_;
};

struct Differentiation;

/// Adds the gradient of a node by its decomposition, which replaces the node if the operation has no
/// lowering. Otherwise the values that the gradient needs are recomputed.
std::vector<std::optional<Value>> differentiate_decomposition(const Differentiation& d);

}  // namespace tessera::graph
