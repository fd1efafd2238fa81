// The epilogue of a product on the tiles that own its result: a bias per row, and an activation.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// y = activation(y + bias[row]), in FP32 and rounded once, in place. y (f32 or f16) holds a run of elements
/// of a matrix with rows of `row_elements`; the first is element `first` of its row. bias (f32, one row each;
/// may be empty) has a number for each of these rows; rows past its end get none. Parameters: the activation,
/// row_elements, first.
#define TESSERA_ROW_EPILOGUE_FIELDS(X) X(bias, .optional = true) X(y, .access = program::Access::inout)
#define TESSERA_ROW_EPILOGUE_PARAMS(X) X(activation) X(row_elements) X(first)

#define TESSERA_ROW_EPILOGUE_CODELETS(X) \
  X(row_epilogue, TESSERA_ROW_EPILOGUE_FIELDS, TESSERA_ROW_EPILOGUE_PARAMS, nullptr, 320)
TESSERA_DECLARE_FAMILY(row_epilogue, TESSERA_ROW_EPILOGUE_CODELETS)
TESSERA_POSITIONS(row_epilogue_param, TESSERA_ROW_EPILOGUE_PARAMS)

}  // namespace tessera::kernels
