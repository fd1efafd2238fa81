# Installs the build, moves the prefix (nothing installed may know where it was put), and builds
# and runs the consumer, found by CMake and then by pkg-config.
set(installed ${work_dir}/installed)
set(prefix ${work_dir}/moved)
set(consumer_build ${work_dir}/consumer)

function(run)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${output}\nexit status ${status}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${installed} ${prefix} ${consumer_build})
run(${CMAKE_COMMAND} --install ${build_dir} --prefix ${installed})
file(RENAME ${installed} ${prefix})

run(${CMAKE_COMMAND} -S ${consumer_dir} -B ${consumer_build} -G Ninja
  -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_PREFIX_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${consumer_build})
run(${consumer_build}/consumer)

set(ENV{PKG_CONFIG_PATH} ${prefix}/${libdir}/pkgconfig)
run(${pkg_config} --cflags --libs tessera)
separate_arguments(flags UNIX_COMMAND "${output}")
run(${compiler} -std=c++20 ${consumer_dir}/main.cc -o ${work_dir}/consumer_by_pkg_config ${flags}
  -Wl,-rpath,${prefix}/${libdir})
run(${work_dir}/consumer_by_pkg_config)

run(${prefix}/bin/tessera --version)
if(NOT output MATCHES "${version}")
  message(FATAL_ERROR "The installed tool says \"${output}\", not version ${version}.")
endif()
run(${prefix}/bin/tessera machines show bow)
if(NOT output MATCHES "1,472 tiles" OR NOT EXISTS ${prefix}/share/tessera/machines/bow.toml)
  message(FATAL_ERROR "The installed tool does not know its machines: ${output}")
endif()
