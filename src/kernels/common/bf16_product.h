// Micro-kernels of products of BF16 values with FP32 sums, on processors with instructions for them: AMX
// tiles (tdpbf16ps), or AVX-512 dot products of pairs (vdpbf16ps). Subnormal values count as zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/half.h"

namespace tessera::kernels {

/// Columns of a panel of B, and terms of a step: pairs of consecutive terms of all columns are one vector,
/// and a step is one tile.
inline constexpr uint32_t kBf16Columns = 16, kBf16Step = 32;

/// Values of a step of a panel.
inline constexpr size_t kBf16StepValues = size_t{kBf16Columns} * kBf16Step;

/// Maximum number of rows of A for Bf16Product::run().
inline constexpr uint32_t kBf16Rows = 32;

/// Whether the active instruction set has such instructions. This alone decides whether sparse products use
/// them, and has_fast_bf16_products() whether dense products and attention do, never the number of rows, so
/// that results do not depend on a product's partition.
bool has_bf16_products();

/// sums = A·B, or sums += A·B.
struct Bf16Tile {
  const base::Bfloat16* a;  ///< [row][term]
  size_t a_step;            ///< values from row to row
  uint32_t rows;            ///< 1 to kBf16Rows
  const base::Bfloat16* b;  ///< [step][panel][pair of terms][column][2]
  uint32_t panels;          ///< 1 or 2
  uint32_t steps;
  float* sums;  ///< [row][column] of each panel
  size_t sums_step;
  size_t sums_panel;  ///< floats from panel to panel
  bool adds;
};

/// Panels of B for a later product, prepacked during a product with equally many panels and steps: rows
/// [term][column] of kBf16Columns columns become pairs.
struct Bf16Packing {
  const base::Bfloat16* from[2];  ///< rows of each panel
  base::Bfloat16* to;             ///< in the order of Bf16Tile::b
};

/// Rows of a product with blocks, and maximum number of tiles of columns that are computed at once.
inline constexpr uint32_t kBf16BlockRows = 16, kBf16BlockTiles = 4;

/// sums = the sum of blocks times their parts of X.
struct Bf16Blocks {
  const base::Bfloat16*
      blocks;  ///< rows of kBf16Step terms: one block of 32 × 32, or two of 16 × 16 side by side
  const uint32_t* columns;  ///< column of each block, in blocks
  uint32_t count;
  uint32_t block_size;      ///< 16 or 32: terms of a block
  const base::Bfloat16* x;  ///< [tile of columns][pair of terms][column][2]
  size_t x_step;            ///< values from tile to tile
  uint32_t tiles;           ///< 1 to kBf16BlockTiles
  float* sums;              ///< [kBf16BlockRows][kBf16BlockTiles][column]
};

/// Products of one thread, which owns the processor's tiles from the first one until this is destroyed.
class Bf16Product {
 public:
  Bf16Product();
  ~Bf16Product();
  Bf16Product(const Bf16Product&) = delete;
  Bf16Product& operator=(const Bf16Product&) = delete;

  /// The processor packs while its tiles multiply.
  void run(const Bf16Tile& tile, const Bf16Packing* beside = nullptr);
  void run(const Bf16Blocks& blocks);

 private:
  const bool has_tiles_;
  uint32_t tile_rows_ = 0;  // rows for which the tiles are configured
  uint32_t block_size_ = 0;
};

/// Makes a panel of B of rows [term][column]: pairs of `terms` rows, `from_step` apart, of up to kBf16Columns
/// columns; zeros up to whole steps and to all columns. Steps of the result are `to_step` values apart.
void pack_bf16_pairs(const base::Bfloat16* from, size_t from_step, uint32_t terms, uint32_t columns,
                     base::Bfloat16* to, size_t to_step);

/// pack_bf16_pairs() for two panels of kBf16Columns columns each, side by side; the second panel is written
/// `to_panel` after the first.
void pack_two_bf16_panels(const base::Bfloat16* from, size_t from_step, uint32_t terms, base::Bfloat16* to,
                          size_t to_step, size_t to_panel);

/// Rounds rows of sums. The processor must have the instructions, as for all functions in this header.
void round_to_bf16(const float* from, size_t from_step, uint32_t rows, uint32_t cols, base::Bfloat16* to,
                   int64_t to_step);

/// pack_bf16_pairs() for contiguous FP32 sums, [term][column], which are rounded.
void pack_bf16_sums(const float* from, uint32_t terms, base::Bfloat16* to, size_t to_step);

}  // namespace tessera::kernels
