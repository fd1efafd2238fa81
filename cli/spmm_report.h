// The files that `tessera spmm` writes: --report and --trace.
#pragma once

#include <span>

#include "cli/spmm_case.h"

namespace tessera::cli {

/// Throws Error where a file that is asked for could not be written.
void require_writable(const SpmmRequest& request);

/// Writes the files that are asked for, each whole or not at all. Throws Error where that fails.
void write_files(const SpmmRequest& request, std::span<const SpmmResult> results);

}  // namespace tessera::cli
