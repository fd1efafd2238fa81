// Dense products on tiled machines: partitioned over m, k and n, with partial sums and serial slices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "machine/model/machine.h"
#include "ops/builder.h"
#include "ops/layout.h"
#include "ops/product_operands.h"
#include "ops/tiles/expected.h"
#include "program/program.h"

namespace tessera::ops {

/// Y = W·X, with W of m × k and X of k × n; or a gradient of that product, in its partition.
struct DenseShape {
  uint32_t m = 0;
  uint32_t k = 0;
  uint32_t n = 0;
  TiledNumbers numbers;
  ProductKind product = ProductKind::forward;
};

/// A grid of m_parts × k_parts × n_parts tiles. Each tile uses a part of W and a part of X; the tiles that
/// use the same part hold it in slices and broadcast these. Partial sums over k are added on the tiles over
/// which Y is distributed. Slices of m or of n are computed one after another in a loop. Neighbouring tiles,
/// which receive the same data at twice the rate, share their part of X (pairs_share_x) or of W.
///
/// A gradient can be partitioned in two ways. In its own partition it is an ordinary product with the left
/// factor Wᵀ or dY. In its forward product's partition (mirrored) every tile has the same parts of W, X and Y
/// as in that product, and reads one of them as its transpose: W stays in place, and dW has the layout of W.
/// Partial sums are then over m or n. Slices are not mirrored.
struct DensePartition {
  uint32_t m_parts = 1;
  uint32_t k_parts = 1;
  uint32_t n_parts = 1;
  uint32_t m_slices = 1;
  uint32_t n_slices = 1;
  bool pairs_share_x = true;
  bool mirrored = false;
  bool staged_sums = false;  ///< many partial sums are added in the stages of vendor_sum_depths()

  uint32_t tiles() const { return m_parts * k_parts * n_parts; }
  uint32_t slices() const { return m_slices * n_slices; }
  bool operator==(const DensePartition&) const = default;
};

inline constexpr uint32_t kMostSumStages = 3;
/// Numbers of partial sums that are left after each stage but the last when PopLibs (SDK 3.4) adds `partials`
/// partial sums of a dense product; empty if there is one stage.
std::vector<uint32_t> vendor_sum_depths(uint32_t partials);

/// Rows and columns of W that the multipliers process at once.
inline constexpr uint32_t kDenseRowGrain = 16;
inline uint32_t dense_inner_grain(Type type) { return type == Type::f16 ? 16 : 8; }

std::string to_string(const DensePartition& partition);

/// All candidate partitions, those expected to fit first, and among these the expected fastest first.
/// Non-zero parts and slices of `forced` are fixed. Throws TooLarge for an operand of 2³² elements or more.
std::vector<Expected<DensePartition>> dense_partitions(const DenseShape& shape, Planner planner,
                                                       const machine::Machine& machine,
                                                       const DensePartition& forced);

/// Partitions of a forward product, without slices, in which its gradients are computed too: the one with
/// which all three are expected to be fastest, then those which hardly take longer, fewest bytes first.
std::vector<DensePartition> partitions_with_gradients(const DenseShape& shape,
                                                      const machine::Machine& machine);

/// Layouts of W, X and Y, and of their gradients in a mirrored partition: parts are distributed over tiles
/// that use them.
ProductLayouts dense_layouts(const DenseShape& shape, const DensePartition& partition);

/// Adds a product to a program, with a left operand (`values`) of m × k, a right operand (`x`) and a result
/// (`y`); in a mirrored partition, the shape's product determines which two of them are read. All are stored
/// part by part as in dense_layouts(), with any mapping.
program::StepId build_dense(const Builder& builder, const DenseShape& shape, const DensePartition& partition,
                            const ProductOperands& operands);

}  // namespace tessera::ops
