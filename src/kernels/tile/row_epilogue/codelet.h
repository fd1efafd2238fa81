// The epilogue of a product on the tiles that own its result: a bias per row, and an activation.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

#define TESSERA_ROW_EPILOGUE_FIELDS(X) X(bias, .optional = true) X(y, .access = program::Access::inout)
#define TESSERA_ROW_EPILOGUE_PARAMS(X) X(activation) X(row_elements) X(first)

namespace row_epilogue_field {
enum : size_t { TESSERA_ROW_EPILOGUE_FIELDS(TESSERA_POSITION) count };
}
namespace row_epilogue_param {
enum : size_t { TESSERA_ROW_EPILOGUE_PARAMS(TESSERA_POSITION) count };
}

/// y = activation(y + bias[row]), in FP32 and rounded once, in place. y (f32 or f16) holds a run of elements
/// of a matrix with rows of `row_elements`; the first is element `first` of its row. bias (f32, one row each;
/// may be empty) has a number for each of these rows; rows past its end get none. Parameters: the activation,
/// row_elements, first.
extern const program::Codelet row_epilogue_codelet;

std::span<const ListedCodelet> row_epilogue_codelets();

}  // namespace tessera::kernels
