// Gradients of functions: each differentiated once, however often it is called.
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
  /// Takes `taken` and then the gradients of outputs; its outputs "gradient…" are those of the inputs.
  std::shared_ptr<const Graph> backward;
  /// An input or output of `forward`, by position.
  struct Taken {
    bool is_output = false;
    size_t position = 0;
  };
  std::vector<Taken> taken;
  std::vector<std::optional<size_t>> gradients;  ///< by input: which output of `backward`
};

class FunctionGradients {
 public:
  /// With gradients given for some of the outputs.
  const FunctionGradient& of(const std::shared_ptr<const Graph>& function, const std::vector<bool>& given);

 private:
  std::map<std::pair<std::shared_ptr<const Graph>, std::vector<bool>>, FunctionGradient> known_;
};

struct Differentiation;

/// Adds the gradient of a node by its decomposition, which takes the node's place if nothing lowers it.
/// Otherwise what the gradient needs is computed again.
std::vector<std::optional<Value>> differentiate_decomposition(const Differentiation& d);

}  // namespace tessera::graph
