# Without ccache, which who changes sources has, several of a target are compiled as one file, in two thirds of the time.
# clang's reading of the sources takes all of a target together.
set(unity ON)
if(TESSERA_CCACHE)
  set(unity OFF)
endif()
option(TESSERA_UNITY "Compile several sources as one" ${unity})

# tessera_unity(TARGET): its sources share no names.
function(tessera_unity target)
  if(TESSERA_SYNTAX_ONLY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  elseif(TESSERA_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
    # Sources then count as headers, whose types had better not have members of unnamed namespaces.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()
