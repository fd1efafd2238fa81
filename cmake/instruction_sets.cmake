# TESSERA_INSTRUCTION_SETS: which of them the kernels are compiled for. With `host`, which takes half of the time, the
# library runs on other processors too, but without the instruction sets that this one lacks.
set(TESSERA_INSTRUCTION_SETS all CACHE STRING "Kernels for all instruction sets of the processor family, or those of this host")
set_property(CACHE TESSERA_INSTRUCTION_SETS PROPERTY STRINGS all host)
if(NOT TESSERA_INSTRUCTION_SETS MATCHES "^(all|host)$")
  message(FATAL_ERROR "TESSERA_INSTRUCTION_SETS: invalid value '${TESSERA_INSTRUCTION_SETS}' (choose from all, host)")
endif()
if(TESSERA_INSTRUCTION_SETS STREQUAL host AND CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64 AND NOT CMAKE_CROSSCOMPILING)
  include(CheckCXXSourceRuns)
  check_cxx_source_runs("int main() { return __builtin_cpu_supports(\"avx512f\") ? 0 : 1; }" TESSERA_HOST_HAS_AVX512)
  if(NOT TESSERA_HOST_HAS_AVX512)
    add_compile_definitions(TESSERA_NO_AVX512)
  endif()
endif()
