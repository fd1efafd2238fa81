// Filling with a constant.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// Fills "out", of any type, with a value; the parameter has its bits as FP32 (param_of).
#define TESSERA_FILL_FIELDS(X) X(out, .access = program::Access::out)
#define TESSERA_FILL_PARAMS(X) X(value)

#define TESSERA_FILL_CODELETS(X) X(fill, TESSERA_FILL_FIELDS, TESSERA_FILL_PARAMS, fill_simd, 96)
TESSERA_DECLARE_FAMILY(fill, TESSERA_FILL_CODELETS)
TESSERA_POSITIONS(fill_param, TESSERA_FILL_PARAMS)

}  // namespace tessera::kernels
