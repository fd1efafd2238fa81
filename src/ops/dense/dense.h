// Dense products on tiled machines: a grid over m, k and n, with partial sums and serial slices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "machine/model/machine.h"
#include "ops/dense/parted_matrix.h"
#include "ops/sparse/tiled_plan.h"
#include "program/program.h"

namespace tessera::ops {

/// Names of a product's variables in its program.
struct DenseNames {
  const char* left = "W.values";
  const char* right = "X";
  const char* result = "Y";
};

struct DenseShape {
  uint32_t m = 0;
  uint32_t k = 0;
  uint32_t n = 0;
  TiledNumbers numbers;
  DenseNames names = {};
};

/// A grid of m_parts × k_parts × n_parts tiles. Each has a part of W and of X, which the tiles that
/// use it hold together and broadcast; partial sums over k are added on the tiles that share out Y.
/// Slices of m or of n are computed one after another, by a loop. Neighbouring tiles, which receive
/// the same data at twice the rate, share their part of X (pairs_share_x) or of W.
struct DensePartition {
  uint32_t m_parts = 1;
  uint32_t k_parts = 1;
  uint32_t n_parts = 1;
  uint32_t m_slices = 1;
  uint32_t n_slices = 1;
  bool pairs_share_x = true;

  uint32_t tiles() const { return m_parts * k_parts * n_parts; }
  uint32_t slices() const { return m_slices * n_slices; }
  bool operator==(const DensePartition&) const = default;
};

std::string to_string(const DensePartition& partition);

/// All cuts worth weighing, the fastest expected first, those that are expected to fit before
/// others. Parts and slices that `forced` does not leave at 0 are kept.
std::vector<Expected<DensePartition>> dense_partitions(const DenseShape& shape, Planner planner,
                                                       const machine::Machine& machine,
                                                       const DensePartition& forced);

struct DenseLayouts {
  PartedMatrix w, x, y;
};
DenseLayouts dense_layouts(const DenseShape& shape, const DensePartition& partition);

struct DenseProgram {
  program::Program program;
  program::VariableId w = 0, x = 0, y = 0;
};
DenseProgram build_dense(const DenseShape& shape, const DensePartition& partition);

}  // namespace tessera::ops
