// The forward product, for the operations that have one.
#pragma once

#include <optional>

#include "graph/operation.h"
#include "kernels/common/window.h"

namespace tessera::graph {

/// Lowers a product with the weight that is the node's second input: of its first, or, on hosts, of what a
/// window sees of that.
void lower_product(Lowering& lowering, const Node& node, const std::optional<kernels::Window>& window);

}  // namespace tessera::graph
