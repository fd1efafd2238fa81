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

using tessera::Planner;

/// Number types of a product on tiles: of its operands, and of partial sums sent between tiles.
struct TiledNumbers {
  Type operands = Type::f32;
  Type partials = Type::f32;
  /// Seed of the random numbers by which partial sums of 16 bits are rounded stochastically; none: to
  /// nearest.
  std::optional<uint64_t> rounding = {};
};

/// A product, without its weight.
struct ProductProblem {
  uint32_t n = 0;
  Type type = Type::f32;      ///< type of W; on tiles f32 or f16, also of X and Y
  Type partials = Type::f32;  ///< on tiles, type of partial sums sent between tiles: `type`, or f32
  std::optional<uint64_t> rounding = {};  ///< of partial sums; see TiledNumbers
  /// On hosts, type of X and Y: f32, or bf16 where takes_bf16() holds.
  Type activations = Type::f32;
  Planner planner = Planner::best;
  bool dense = false;  ///< whether W is treated as full, whatever its pattern
  ProductKind product = ProductKind::forward;
  /// For a dynamic W, the maximum number of blocks; none: the pattern is fixed.
  std::optional<uint64_t> capacity = {};
  Activation activation = Activation::none;  ///< applied to the result, after the bias
  bool bias = false;                         ///< one number is added to each row of the result
  bool uses_beta = false;  ///< on hosts, beta · the previous value is added; otherwise the previous value is
                           ///< never read

  bool operator==(const ProductProblem&) const = default;

  TiledNumbers numbers() const { return {type, partials, rounding}; }
};

/// Throws UsageError for a value that is not a ProductKind.
void check_kind(ProductKind product);
/// Throws UsageError for a bias or an activation of an SDDMM, and an unknown activation.
void check_epilogue(const ProductProblem& problem);

}  // namespace ops
}  // namespace tessera
