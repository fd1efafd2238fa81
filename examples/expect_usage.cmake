# Runs EXAMPLE with --help, and with ARGUMENTS that it must refuse, saying REASON.
# What is printed is one line with the usage.
function(expect arguments status stream text)
  execute_process(COMMAND ${EXAMPLE} ${arguments} RESULT_VARIABLE result OUTPUT_VARIABLE out ERROR_VARIABLE err
    TIMEOUT 60)
  if(NOT result EQUAL ${status} OR NOT "${${stream}}" MATCHES "^[^\n]*${text}usage: example_[^\n]*\n$")
    message(FATAL_ERROR "${EXAMPLE} ${arguments}: status ${result}, not ${status}, or its line lacks "
      "'${text}':\n${out}${err}")
  endif()
endfunction()

expect(--help 0 out "")
expect("${ARGUMENTS}" 2 err "${REASON}; ")
