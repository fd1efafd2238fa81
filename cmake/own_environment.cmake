# own_environment(TEST...): tests of other programs than the test programs, which see to it themselves
# (tests/support/main.cc), neither read nor write what belongs to the user.
function(own_environment)
  set(folder ${PROJECT_BINARY_DIR}/tests/own)
  set_tests_properties(${ARGN} PROPERTIES
    ENVIRONMENT "HOME=${folder};TESSERA_CACHE=${folder}/cache"
    ENVIRONMENT_MODIFICATION "TESSERA_THREADS=unset:;TESSERA_ISA=unset:;OMP_NUM_THREADS=unset:;XDG_CACHE_HOME=unset:")
endfunction()
