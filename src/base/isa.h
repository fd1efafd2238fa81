// The instruction sets that kernels are dispatched to.
#pragma once

#include <string_view>
#include <vector>

namespace tessera {

/// Instruction sets, the portable fallback first. Of two on one processor the later is preferred.
enum class Isa { generic, neon, avx2, avx512 };

/// "generic", "neon", "avx2", "avx512".
std::string_view name_of(Isa isa);

/// The instruction set of that name. Throws UsageError for any other.
Isa isa_of(std::string_view name);

/// All that this processor and build have, best last.
std::vector<Isa> available_isas();

/// The one that kernels use now: the best available, unless restricted by restrict_isa or, from
/// the first call on, by the environment variable TESSERA_ISA.
Isa active_isa();

/// Lets every kernel of this process use `highest` at most. Not to be called while kernels run.
/// Throws UsageError where the processor or the build lacks it.
void restrict_isa(Isa highest);

}  // namespace tessera
