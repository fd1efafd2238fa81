// The files that `tessera spmm` writes: --report and --trace.
#pragma once

#include <span>
#include <string>

#include "studies/spmm/case.h"

namespace tessera::studies::spmm {

/// The page of --report.
std::string page_of(const SpmmRequest& request, std::span<const SpmmResult> results);

/// Throws Error if a requested file cannot be written.
void require_writable(const SpmmRequest& request);

/// Writes the requested files, each completely or not at all. Throws Error on failure.
void write_files(const SpmmRequest& request, std::span<const SpmmResult> results);

}  // namespace tessera::studies::spmm
