// Structured maps as plain PyTorch computes them: several operations of a graph for each factor.
//
// These forms ran on an IPU in Shekofteh et al. 2023 ("Reducing Memory Requirements for the IPU using
// Butterfly Factorizations"), which had no kernels of its own: the public PyTorch forms of Dao et al. 2019
// (butterflies, Hadamard transforms) and of pixelfly. Gradients are the operations' gradients.
#pragma once

#include <tessera/graph.h>

namespace tessera::graph {

/// Each factor as a broadcast product of the features and the 2 × 2 matrices, and a sum. Throws UsageError
/// for complex numbers.
Value unfused_butterfly(Value x, Value twiddle, const Butterfly& of);

/// Each step of the Hadamard transforms as a sum and a difference of halves, diagonals as products.
Value unfused_fastfood(Value x, Value s, Value g, Value b, const Fastfood& of);

/// A batched product of the blocks of each column with their inputs, and for each row the sum of its results,
/// which are gathered. The weight is [block columns, 1, blocks per column · block size · block size], with
/// the blocks of each block column by row. Throws UsageError unless all block rows have equally many blocks,
/// and all block columns.
Value unfused_block_product(Value x, Value weight, const Pattern& pattern);
/// The weight's shape, and its elements from the elements of the pattern's blocks.
Shape unfused_block_shape(const Pattern& pattern);
std::vector<float> unfused_block_values(const Pattern& pattern, std::span<const float> blocks);

/// A Kronecker-sparse factor as permutation, batched product and permutation.
Value unfused_kronecker(Value x, Value weight, const Kronecker& of);

/// x with `features` features: adds zeros for those that it lacks.
Value with_features(Value x, uint32_t features);

}  // namespace tessera::graph
