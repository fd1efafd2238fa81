// The elements of weights that may be sparse, for references and cases.
#pragma once

#include <tessera/graph.h>
#include <tessera/sparse.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

namespace tessera::graph {

/// Calls visit(row, column, position) for each stored element of a weight.
template <class Visit>
void each_weight(const TensorType& w, const Visit& visit) {
  if (!w.pattern) {
    for (uint64_t i = 0; i < w.elements(); ++i)
      visit(static_cast<uint32_t>(i / w.shape[1]), static_cast<uint32_t>(i % w.shape[1]), i);
    return;
  }
  const Pattern& p = *w.pattern;
  const uint32_t b = p.block_size;
  for (uint32_t row = 0; row < p.block_rows(); ++row)
    for (uint64_t block = p.crow_indices[row]; block < p.crow_indices[row + 1]; ++block)
      for (uint32_t i = 0; i < b * b; ++i) {
        const uint32_t r = row * b + i / b, c = p.col_indices[block] * b + i % b;
        if (r < p.rows && c < p.cols) visit(r, c, block * b * b + i);
      }
}

/// A weight of a regular pattern; a dynamic one has room for more.
inline TensorType sparse_type(uint32_t m, uint32_t k, uint32_t block_size, bool dynamic) {
  Pattern pattern{m, k, block_size, {0}, {}};
  for (uint32_t row = 0; row < pattern.block_rows(); ++row) {
    for (uint32_t col = 0; col < pattern.block_cols(); ++col)
      if ((row * 7 + col * 5) % 3 == 0) pattern.col_indices.push_back(col);
    pattern.crow_indices.push_back(pattern.col_indices.size());
  }
  const uint64_t blocks = pattern.blocks();
  TensorType type{Type::f32, {m, k}, std::make_shared<const Pattern>(std::move(pattern)), {}};
  if (dynamic) type.capacity = blocks + 3;
  return type;
}

}  // namespace tessera::graph
