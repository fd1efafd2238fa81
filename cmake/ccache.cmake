# ccache, where it is installed, serves all build folders. It takes the compiler's word for what a file
# includes instead of preprocessing it first, and must not mind that a precompiled header has a date.
find_program(TESSERA_CCACHE ccache)
if(TESSERA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT TESSERA_SYNTAX_ONLY)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    ${TESSERA_CCACHE})
endif()
