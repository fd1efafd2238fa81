// Products as a first program on tiles has them: one worker, one multiply-accumulate after the other. They
// measure what the library's codelets gain; nothing plans with them.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

#define TESSERA_SCALAR_DOT_FIELDS(X) X(row) X(column) X(sum, .access = program::Access::out)

namespace scalar_dot_field {
enum : size_t { TESSERA_SCALAR_DOT_FIELDS(TESSERA_POSITION) count };
}

/// sum = row · column: both 1 × k, f32.
extern const program::Codelet scalar_dot_codelet;

#define TESSERA_SCALAR_BLOCK_FIELDS(X) X(a) X(b) X(c, .access = program::Access::inout)
#define TESSERA_SCALAR_BLOCK_PARAMS(X) X(adds)

namespace scalar_block_field {
enum : size_t { TESSERA_SCALAR_BLOCK_FIELDS(TESSERA_POSITION) count };
}
namespace scalar_block_param {
enum : size_t { TESSERA_SCALAR_BLOCK_PARAMS(TESSERA_POSITION) count };
}

/// c = a · b, added to c if the parameter `adds` is not 0: m × k, k × n and m × n, f32. One worker computes
/// the whole block, element by element.
extern const program::Codelet scalar_block_codelet;

std::span<const ListedCodelet> scalar_product_codelets();

}  // namespace tessera::kernels
