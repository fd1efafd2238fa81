// The product of a tile with a memory of its own: the blocks of some rows of W times some columns
// of X.
#pragma once

#include "kernels/sample.h"
#include "program/codelet.h"

namespace tessera::kernels {

/// Fields and parameters of tile_product, by position.
namespace tile_field {
enum : size_t { values, blocks, x, y, count };
}

/// Y = W·X. values: blocks × b², each block row-major, f32, f16 or bf16; blocks: block row and block
/// column of each, u16 or u32; x: k × n and y: m × n of one type, f32 or f16. Sums are kept in FP32
/// and rounded when stored. What a last block overhangs takes part in nothing.
extern const program::Codelet tile_product_codelet;

std::span<const ListedCodelet> tile_product_codelets();

}  // namespace tessera::kernels
