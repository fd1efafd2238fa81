# ccache, if installed, is shared by all build folders. It relies on the compiler's list of included files
# instead of preprocessing first, and must ignore the time stamps of precompiled headers.
find_program(TESSERA_CCACHE ccache)
if(TESSERA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT TESSERA_SYNTAX_ONLY)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    ${TESSERA_CCACHE})
endif()
