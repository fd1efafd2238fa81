# TESSERA_INSTRUCTION_SETS: the instruction sets for which kernels are compiled. With `host`, which takes half
# of the time, the library runs on other processors too, but without the instruction sets that this one lacks.
# With `best`, it has the best set of this host and the portable kernels, which are slow.
set(TESSERA_INSTRUCTION_SETS all CACHE STRING "Kernels for all instruction sets of the processor family, for those of this host, or for its best one")
set_property(CACHE TESSERA_INSTRUCTION_SETS PROPERTY STRINGS all host best)
if(NOT TESSERA_INSTRUCTION_SETS MATCHES "^(all|host|best)$")
  message(FATAL_ERROR "TESSERA_INSTRUCTION_SETS: invalid value '${TESSERA_INSTRUCTION_SETS}' (choose from all, host, best)")
endif()
if(NOT TESSERA_INSTRUCTION_SETS STREQUAL all AND CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64 AND NOT CMAKE_CROSSCOMPILING)
  include(CheckCXXSourceRuns)
  # All that Highway asks for.
  string(CONCAT source
    "int main() { return __builtin_cpu_supports(\"avx512f\") && __builtin_cpu_supports(\"avx512bw\") && "
    "__builtin_cpu_supports(\"avx512cd\") && __builtin_cpu_supports(\"avx512dq\") && "
    "__builtin_cpu_supports(\"avx512vl\") ? 0 : 1; }")
  check_cxx_source_runs("${source}" TESSERA_HOST_HAS_AVX512)
  if(NOT TESSERA_HOST_HAS_AVX512)
    add_compile_definitions(TESSERA_NO_AVX512)
  elseif(TESSERA_INSTRUCTION_SETS STREQUAL best)
    add_compile_definitions(TESSERA_NO_AVX2)
  endif()
endif()
