// Filling with a constant.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

#define TESSERA_FILL_FIELDS(X) X(out, .access = program::Access::out)
#define TESSERA_FILL_PARAMS(X) X(value)

namespace fill_field {
enum : size_t { TESSERA_FILL_FIELDS(TESSERA_POSITION) count };
}
namespace fill_param {
enum : size_t { TESSERA_FILL_PARAMS(TESSERA_POSITION) count };
}

/// Every element of "out", of any type, is the value, of which the parameter has the bits as FP32 (param_of).
extern const program::Codelet fill_codelet;

std::span<const ListedCodelet> fill_codelets();

}  // namespace tessera::kernels
