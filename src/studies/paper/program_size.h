// The size of a program in the terms of the vendor's profiler (figures 5 and 7).
#pragma once

#include "compiler/executable.h"
#include "studies/paper/study.h"

namespace tessera::studies {

/// Enters figures of a compiled program: "variables", "compute_sets", "vertices", "edges" (pieces of
/// variables that vertices take), "exchanges" (with data between tiles), "total_bytes" and "tile_bytes" (of
/// all tiles, and of the fullest tile), and parts of the total: "always_live_bytes", "data_bytes" (inputs,
/// outputs, state and constants), "temporary_bytes" and "code_bytes" (all code and vertex state).
void enter_size(const compiler::Executable& executable, Result& result);

}  // namespace tessera::studies
