// Output of `tessera spmm`: a table, details of one row, or JSON.
#pragma once

#include <span>
#include <string>

#include "report/table.h"
#include "studies/spmm/case.h"

namespace tessera::studies::spmm {

/// One row per result.
report::Table table(std::span<const SpmmResult> results);

/// Plan, phases, memory and error of one result.
std::string details(const SpmmResult& result);

/// The memory categories of the fullest tile of a result that does not fit.
std::string overflow(const SpmmResult& result);

/// {"schema": 2, "command": "spmm", "results": […]}
std::string json(std::span<const SpmmResult> results);

}  // namespace tessera::studies::spmm
