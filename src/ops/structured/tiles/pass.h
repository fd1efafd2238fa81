// Passes of structured maps on tiled machines: Kronecker-sparse factors, and butterfly factors merged so that
// only passes exchange.
//
// Features are rows, samples columns. A pass works on groups of features that are closed under it: group i·d
// + t has the inputs (i·c + q)·d + t and the outputs (i·b + r)·d + t. Tiles take ranges of groups and of
// columns, and where there are fewer groups than tiles, of the outputs of a group.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "machine/model/machine.h"
#include "ops/builder.h"
#include "ops/plan.h"
#include "ops/product_problem.h"

namespace tessera::ops {

/// The factor (a, b, c, d); or with levels > 0 the butterfly factors of strides d, 2d, … 2^(levels − 1)·d, or
/// the other way round if `decreasing`, on groups of b = c = 2^levels features. Those of butterflies may be
/// complex numbers: two rows each.
struct TilePass {
  uint32_t a = 1, b = 1, c = 1, d = 1;
  uint32_t levels = 0;
  bool decreasing = false;
  uint32_t width = 1;  ///< rows of a feature

  /// Butterfly factors from stride d on, of `size` features.
  static TilePass butterfly(uint32_t size, uint32_t d, uint32_t levels, bool decreasing = false,
                            uint32_t width = 1) {
    const uint32_t features = 1U << levels;
    return {size / d / features, features, features, d, levels, decreasing, width};
  }
  uint32_t groups() const { return a * d; }
  /// Rows.
  uint32_t inputs() const { return a * c * d * width; }
  uint32_t outputs() const { return a * b * d * width; }
  /// Of a group: b × c, row by row; or for each level and each pair of features in order a 2 × 2 matrix of
  /// numbers as wide as features.
  uint32_t weights() const;
  uint32_t all_weights() const { return groups() * weights(); }
};

/// Of a factor each product is computed by itself, of butterfly factors both gradients together.
enum class TilePassProduct : uint8_t { forward, input_gradient, weight_gradient, gradients };

struct TilePassProblem {
  TilePass pass;
  uint32_t n = 0;  ///< samples
  TiledNumbers numbers = {};
  TilePassProduct product = TilePassProduct::forward;
};

/// Tiles: group_parts × n_parts × output_parts; more than one of the last only for one group each.
struct TilePassPartition {
  uint32_t group_parts = 1;
  uint32_t n_parts = 1;
  uint32_t output_parts = 1;

  uint32_t tiles() const { return group_parts * n_parts * output_parts; }
  bool operator==(const TilePassPartition&) const = default;
};
std::string to_string(const TilePassPartition& partition);

using TilePassPlan = Plan<TilePassPartition>;

/// Throws UsageError for impossible sizes, types and machines, and Error if nothing fits.
TilePassPlan plan_tile_pass(const TilePassProblem& problem, const machine::Machine& machine);

/// The order of features as rows: by themselves, or group by group of a pass, of which each has `size`
/// features that are d apart. The rows of a feature stay side by side.
struct FeatureOrder {
  uint32_t size = 1;
  uint32_t d = 1;
  uint32_t width = 1;

  static FeatureOrder inputs_of(const TilePass& pass) { return {pass.c, pass.d, pass.width}; }
  static FeatureOrder outputs_of(const TilePass& pass) { return {pass.b, pass.d, pass.width}; }
  bool is_plain() const { return size == 1 || d == 1; }
  bool operator==(const FeatureOrder& other) const {
    return (is_plain() && other.is_plain()) || (size == other.size && d == other.d && width == other.width);
  }
  uint32_t rows_of_group() const { return size * width; }
  /// Of a row in the order of features by themselves.
  uint32_t row_of(uint32_t plain) const {
    if (is_plain()) return plain;
    const uint32_t feature = plain / width;
    return ((feature / (size * d) * d + feature % d) * size + feature / d % size) * width + plain % width;
  }
  uint32_t plain_of(uint32_t row) const {
    if (is_plain()) return row;
    const uint32_t at = row / width;
    return ((at / size / d * size + at % size) * d + at / size % d) * width + row % width;
  }
};

/// Samples, a feature a row, in some order. What passes leave in their own order the next ones gather without
/// a copy between.
struct FeatureOperand {
  Operand operand;
  FeatureOrder order = {};
};

/// Where a pass's results lie on the tiles that compute them, for a variable in the order of its outputs (of
/// an input gradient: inputs); and the weights on those that use them, as one row.
std::vector<program::MappedBox> pass_result_mapping(const TilePassProblem& problem,
                                                    const TilePassPartition& partition);
std::vector<program::MappedBox> pass_weight_mapping(const TilePassProblem& problem,
                                                    const TilePassPartition& partition);

/// The product reads what it needs of weight (1 × all), x and y (for gradients dy), and writes y, dx or
/// dweight.
struct TilePassOperands {
  std::optional<Operand> weight = {};
  std::optional<FeatureOperand> x = {};
  std::optional<FeatureOperand> y = {};
  std::optional<FeatureOperand> dx = {};
  std::optional<Operand> dweight = {};
};

program::StepId build_tile_pass(const Builder& builder, const TilePassProblem& problem,
                                const TilePassPartition& partition, const TilePassOperands& operands);

}  // namespace tessera::ops
