// Lowering of products with a weight, for the operations that contain one.
#pragma once

#include <optional>

#include "graph/operation.h"
#include "kernels/common/window.h"

namespace tessera::graph {

/// Lowers the product of a node's first input, or on hosts of the elements under a window in it, with the
/// weight that is the second input.
void lower_product(Lowering& lowering, const Node& node, const std::optional<kernels::Window>& window);

/// The same for the gradient of the first input: of the product with the weight that is the second input, or
/// on hosts of the images to which it is added under a window; it is 0 where the third input, if there is
/// one, is not positive.
void lower_product_input_gradient(Lowering& lowering, const Node& node,
                                  const std::optional<kernels::Window>& window);

/// The same for the gradient of the weight that is the third input, by the gradient of the product, the
/// second input.
void lower_product_gradient(Lowering& lowering, const Node& node,
                            const std::optional<kernels::Window>& window);

}  // namespace tessera::graph
