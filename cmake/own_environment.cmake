# own_environment(TEST...): tests that run other programs neither read nor write the user's files. (The test
# programs themselves see to this in tests/support/main.cc.)
function(own_environment)
  set(folder ${PROJECT_BINARY_DIR}/tests/own)
  set_tests_properties(${ARGN} PROPERTIES
    ENVIRONMENT "HOME=${folder};TESSERA_CACHE=${folder}/cache"
    ENVIRONMENT_MODIFICATION "TESSERA_THREADS=unset:;TESSERA_ISA=unset:;OMP_NUM_THREADS=unset:;XDG_CACHE_HOME=unset:")
endfunction()
