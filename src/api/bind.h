// Callers' arrays as bindings of a program's variables.
#pragma once

#include <tessera/spmm.h>

#include <cstdint>
#include <string_view>

#include "engine/engine.h"

namespace tessera {

/// A caller's matrix of floats, leading dimension 0 being one without gaps. Throws UsageError for a
/// null array or a leading dimension that is too small.
engine::Binding bind_matrix(program::VariableId variable, const float* data, std::string_view name,
                            uint32_t rows, uint32_t cols, Layout layout, int64_t leading);

}  // namespace tessera
