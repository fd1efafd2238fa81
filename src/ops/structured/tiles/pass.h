// Passes of structured maps on tiled machines: Kronecker-sparse factors, and merged butterfly factors, so
// that tiles exchange data only between passes.
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

/// The factor (a, b, c, d); or with levels > 0 the butterfly factors of strides d, 2d, … 2^(levels − 1)·d, in
/// the reverse order if `decreasing`, on groups of b = c = 2^levels features. Features of butterflies may be
/// complex numbers, with two rows each.
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
  /// Number of rows of the inputs, and of the outputs.
  uint32_t inputs() const { return a * c * d * width; }
  uint32_t outputs() const { return a * b * d * width; }
  /// Number of weights of a group: b × c, stored row by row; or for butterfly factors a 2 × 2 matrix, of
  /// numbers as wide as features, for each level and pair of features in order.
  uint32_t weights() const;
  uint32_t all_weights() const { return groups() * weights(); }
};

/// The products of a pass. A Kronecker-sparse factor computes each gradient separately, butterfly factors
/// compute both together.
enum class TilePassProduct : uint8_t { forward, input_gradient, weight_gradient, gradients };

struct TilePassProblem {
  TilePass pass;
  uint32_t n = 0;  ///< samples
  TiledNumbers numbers = {};
  TilePassProduct product = TilePassProduct::forward;

  /// What the product reads besides y, or dy, and what it writes.
  bool is_forward() const { return product == TilePassProduct::forward; }
  bool reads_weight() const { return product != TilePassProduct::weight_gradient; }
  bool reads_x() const { return product != TilePassProduct::input_gradient; }
  bool gives_dx() const {
    return product == TilePassProduct::input_gradient || product == TilePassProduct::gradients;
  }
  bool gives_dweight() const {
    return product == TilePassProduct::weight_gradient || product == TilePassProduct::gradients;
  }
};

/// A partition over group_parts × n_parts × output_parts tiles. Several output_parts require tiles with one
/// group each.
struct TilePassPartition {
  uint32_t group_parts = 1;
  uint32_t n_parts = 1;
  uint32_t output_parts = 1;

  uint32_t tiles() const { return group_parts * n_parts * output_parts; }
  bool operator==(const TilePassPartition&) const = default;
};
std::string to_string(const TilePassPartition& partition);

using TilePassPlan = Plan<TilePassPartition>;

/// Plans a pass. Throws UsageError for impossible sizes, types and machines, and Error if no partition fits.
TilePassPlan plan_tile_pass(const TilePassProblem& problem, const machine::Machine& machine);

/// The order of features as rows: plain, or by groups of a pass, each with `size` features that are d apart.
/// The rows of a feature stay adjacent.
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
  /// The row in this order of a row in plain order, and the reverse.
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

/// Samples with a feature per row, in some order. A pass gathers its inputs directly from the order of the
/// pass before, without a copy in between.
struct FeatureOperand {
  Operand operand;
  FeatureOrder order = {};
};

/// The mapping of a pass's results to the tiles that compute them, for a variable in the order of the outputs
/// (for an input gradient: inputs); and the mapping of the weights, as one row, to the tiles that use them.
std::vector<program::MappedBox> pass_result_mapping(const TilePassProblem& problem,
                                                    const TilePassPartition& partition);
std::vector<program::MappedBox> pass_weight_mapping(const TilePassProblem& problem,
                                                    const TilePassPartition& partition);

/// Operands of a pass. The product reads what it needs of weight (1 × all_weights()), x and y (for gradients
/// dy), and writes y, dx or dweight.
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
