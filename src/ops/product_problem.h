// A product with a weight, on any machine: the input of its planners and builders.
#pragma once

#include <tessera/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

/// "forward", "input gradient" or "SDDMM".
std::string_view name_of(ProductKind kind);

namespace ops {

/// The planner: Tessera's own search, or what is published of the rules of the vendor's libraries.
enum class Planner : uint8_t { best, vendor };

/// Number types of a product: of its operands, and of partial sums sent between tiles.
struct TiledNumbers {
  Type operands = Type::f32;
  Type partials = Type::f32;
};

/// A product, without its weight.
struct ProductProblem {
  uint32_t n = 0;
  Type type = Type::f32;      ///< of W; on tiles also of X and Y, and there f32 or f16
  Type partials = Type::f32;  ///< on tiles, of sums sent between tiles: `type`, or f32
  /// On hosts, of X and Y: f32, or bf16 where the weight takes_bf16().
  Type activations = Type::f32;
  Planner planner = Planner::best;
  bool dense = false;  ///< whether W is treated as full, whatever its pattern
  ProductKind product = ProductKind::forward;
  /// For a dynamic W, the maximum number of blocks; none: the pattern is fixed.
  std::optional<uint64_t> capacity = {};
  Activation activation = Activation::none;  ///< of the result, after the bias
  bool bias = false;                         ///< one number is added to each row of the result
  bool uses_beta = false;  ///< on hosts, beta · the previous value is added; otherwise that
                           ///< is never read

  bool operator==(const ProductProblem&) const = default;

  TiledNumbers numbers() const { return {type, partials}; }
};

/// Throws UsageError for a number that is none of the products.
void check_kind(ProductKind product);
/// Throws UsageError for a bias or an activation of an SDDMM, and an unknown activation.
void check_epilogue(const ProductProblem& problem);

}  // namespace ops
}  // namespace tessera
