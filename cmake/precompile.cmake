# TESSERA_PRECOMPILE: precompiles the headers that most files include. No file relies on it: each includes
# what it uses, as a build without it shows. Not for builds without optimisation: after precompiled headers
# GCC 12 then rejects the intrinsics with constant arguments.
option(TESSERA_PRECOMPILE "Precompile the headers that most files include" OFF)

# tessera_precompile(TARGET HEADERS...): HEADERS and the most expensive standard ones. Those for JSON and
# option parsing are excluded: every file would pay for their definitions, unless nothing is compiled.
function(tessera_precompile target)
  if(TESSERA_PRECOMPILE)
    if(TESSERA_SYNTAX_ONLY)
      list(APPEND ARGN <nlohmann/json.hpp>)
    endif()
    target_precompile_headers(${target} PRIVATE
      <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <cstdint> <cstring> <filesystem> <fstream> <functional>
      <map> <memory> <mutex> <numeric> <optional> <set> <span> <string> <string_view> <thread> <tuple> <variant> <vector>
      <fmt/format.h> ${ARGN})
  endif()
endfunction()

# tessera_precompiled_as(TARGET OTHER): reuses the headers of another target with the same options.
function(tessera_precompiled_as target other)
  if(TESSERA_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${other})
  endif()
endfunction()
