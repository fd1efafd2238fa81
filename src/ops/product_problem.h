// A product with a weight, on any machine: what its planners and builders are told.
#pragma once

#include <tessera/spmm.h>
#include <tessera/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera::ops {

/// The products of training with a weight W of m × k: Y = W·X, dX = Wᵀ·dY, and dW = dY·Xᵀ at W's
/// pattern. X and dX are k × n, Y and dY m × n.
enum class Product : uint8_t { forward, input_gradient, sddmm };
std::string_view name_of(Product product);

/// Who plans: Tessera as it finds best, or as the vendor's libraries are known to.
enum class Planner : uint8_t { best, published };

/// Number types of a product: of its operands, and of partial sums that leave a tile.
struct TiledNumbers {
  Type operands = Type::f32;
  Type partials = Type::f32;
};

/// A product, but for its weight.
struct ProductProblem {
  uint32_t n = 0;
  Type type = Type::f32;      ///< of W; on tiles of X and Y too, and there f32 or f16
  Type partials = Type::f32;  ///< on tiles, of sums that leave a tile: `type`, or f32
  Planner planner = Planner::best;
  bool dense = false;  ///< whether W is taken as full, whatever its pattern
  Product product = Product::forward;
  /// Of a dynamic W, the most blocks that it may have; none: the pattern is fixed.
  std::optional<uint64_t> capacity = {};
  Activation activation = Activation::none;  ///< of what is written, after the bias
  bool bias = false;                         ///< one number is added to each row of what is written
  // Of hosts.
  Layout x_layout = Layout::row_major;  ///< of X and dX
  Layout y_layout = Layout::row_major;  ///< of Y and dY

  TiledNumbers numbers() const { return {type, partials}; }
};

}  // namespace tessera::ops
