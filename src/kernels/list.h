// All codelets. Tests, benchmarks and the check of costs come from this list.
#pragma once

#include <span>
#include <string_view>

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// The families, each of which lists its codelets once: NAME_codelets().
#define TESSERA_CODELET_FAMILIES(X) \
  X(attention)                      \
  X(batched)                        \
  X(block_sparse)                   \
  X(bucket)                         \
  X(butterfly)                      \
  X(cast)                           \
  X(circulant)                      \
  X(cross_entropy)                  \
  X(dense)                          \
  X(depthwise)                      \
  X(dropout)                        \
  X(element_sparse)                 \
  X(elementwise)                    \
  X(expression)                     \
  X(fastfood)                       \
  X(fill)                           \
  X(gather)                         \
  X(kronecker)                      \
  X(layer_norm)                     \
  X(neurons)                        \
  X(optimizer)                      \
  X(patches)                        \
  X(pool)                           \
  X(rearrange)                      \
  X(reduce)                         \
  X(rounded_product)                \
  X(row_epilogue)                   \
  X(scalar_product)                 \
  X(sddmm)                          \
  X(softmax)                        \
  X(spike_counts)                   \
  X(spiking)                        \
  X(tile_kronecker)                 \
  X(tile_product)                   \
  X(tile_spiking)                   \
  X(weight_rows)

#define TESSERA_DECLARE(family) std::span<const ListedCodelet> family##_codelets();
TESSERA_CODELET_FAMILIES(TESSERA_DECLARE)
#undef TESSERA_DECLARE

/// Every codelet of every family, each once.
std::span<const ListedCodelet> all_codelets();

/// The codelet of that name; null for any other.
const program::Codelet* find_codelet(std::string_view name);

}  // namespace tessera::kernels
