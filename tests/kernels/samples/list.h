// The samples of all codelets, for their test, their benchmark and the check of their costs.
#pragma once

#include <span>
#include <vector>

#include "kernels/list.h"
#include "kernels/samples/sample.h"

namespace tessera::kernels {

// NAME_samples() of each family.
#define TESSERA_DECLARE(family) std::span<const CodeletSamples> family##_samples();
TESSERA_CODELET_FAMILIES(TESSERA_DECLARE)
#undef TESSERA_DECLARE

/// The samples of every codelet that has any.
std::vector<CodeletSamples> all_samples();

/// The samples of one codelet; may be empty.
std::span<const NamedSample> samples_of(const program::Codelet& codelet);

}  // namespace tessera::kernels
