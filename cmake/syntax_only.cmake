# TESSERA_SYNTAX_ONLY: clang checks every file without generating code, in a fraction of the time of a build.
option(TESSERA_SYNTAX_ONLY "Have clang check the sources without compiling them" OFF)
if(TESSERA_SYNTAX_ONLY)
  # -Xclang, and before the flags: the flags of a precompiled header request its file, and the last flag
  # counts.
  set(CMAKE_CXX_COMPILE_OBJECT
    "<CMAKE_CXX_COMPILER> -Xclang -fsyntax-only <DEFINES> <INCLUDES> <FLAGS> -o <OBJECT> -c <SOURCE>"
    "<CMAKE_COMMAND> -E touch <OBJECT>")
  set(CMAKE_CXX_ARCHIVE_CREATE "<CMAKE_COMMAND> -E touch <TARGET>")
  set(CMAKE_CXX_ARCHIVE_APPEND "<CMAKE_COMMAND> -E touch <TARGET>")
  set(CMAKE_CXX_ARCHIVE_FINISH "<CMAKE_COMMAND> -E touch <TARGET>")
  set(CMAKE_CXX_LINK_EXECUTABLE "<CMAKE_COMMAND> -E touch <TARGET>")
  # A part is read without the parts that it depends on.
  set(CMAKE_OPTIMIZE_DEPENDENCIES ON)
  # Kernels of one instruction set, which differ little from the kernels of the others.
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
    add_compile_options(-march=skylake-avx512)
  endif()
endif()
