// The samples of all codelets, from which their test, their benchmark and the check of their costs come.
#pragma once

#include <span>
#include <vector>

#include "kernels/list.h"
#include "kernels/samples/sample.h"

namespace tessera::kernels {

// Of each family, NAME_samples().
#define TESSERA_DECLARE(family) std::span<const CodeletSamples> family##_samples();
TESSERA_CODELET_FAMILIES(TESSERA_DECLARE)
#undef TESSERA_DECLARE

/// Of every codelet that has samples.
std::vector<CodeletSamples> all_samples();

/// Those of one codelet; none where it has none.
std::span<const NamedSample> samples_of(const program::Codelet& codelet);

}  // namespace tessera::kernels
