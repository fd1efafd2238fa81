// The instruction sets to which kernels are dispatched.
#pragma once

#include <string_view>
#include <vector>

namespace tessera {

/// Instruction sets, the portable fallback first. If a processor has several, the last is preferred. Each x86
/// instruction set includes the x86 sets before it: avx512_bf16 has dot products of BF16 pairs, amx also
/// products of tiles of BF16. avx512_bf16_sparse is the avx512_bf16 of processors whose dot products are
/// slower than FP32 multiply-adds: only sparse products use them.
enum class Isa { generic, neon, avx2, avx512, avx512_bf16, avx512_bf16_sparse, amx };

/// "generic", "neon", "avx2", "avx512", "avx512_bf16", "avx512_bf16_sparse", "amx".
std::string_view name_of(Isa isa);

/// The instruction set of that name. Throws UsageError for any other.
Isa isa_of(std::string_view name);

/// Whether the instruction set multiplies BF16 values faster than FP32 values. If not, dense products widen
/// BF16 values to FP32.
bool has_fast_bf16_products(Isa isa);

/// The instruction sets of this processor and build, best last.
std::vector<Isa> available_isas();

/// The best instruction set of this processor, if the build has kernels for none of its sets; or nothing.
std::string_view missing_isa();

/// The instruction set that kernels currently use: the best available, unless restricted by restrict_isa or,
/// from the first call on, by the environment variable TESSERA_ISA.
Isa active_isa();

/// Restricts every kernel of this process to `highest`. Must not be called while kernels run. Throws
/// UsageError if the processor or the build lacks it.
void restrict_isa(Isa highest);

}  // namespace tessera
