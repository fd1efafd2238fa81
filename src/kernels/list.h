// All codelets. Tests, benchmarks and the check of costs come from this list.
#pragma once

#include <span>
#include <string_view>

#include "kernels/sample.h"

namespace tessera::kernels {

/// Every codelet of every family, each once.
std::span<const ListedCodelet> all_codelets();

/// The codelet with that name. Throws UsageError for any other.
const ListedCodelet& find_codelet(std::string_view name);

}  // namespace tessera::kernels
