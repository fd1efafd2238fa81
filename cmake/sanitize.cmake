# TESSERA_SANITIZE applies to the whole build, library and tests.
if(TESSERA_SANITIZE)
  add_compile_options(-fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
  # The address sanitizer already catches accesses to null and beyond objects, and type checks would take a
  # third of the compile time. With g++'s null checks, no function address is non-null in a constant
  # expression, which the codelets' list asserts.
  if(TESSERA_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute,object-size,vptr)
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      add_compile_options(-fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/cmake/sanitizer_ignorelist.txt)
    endif()
  endif()
  # g++ does so by default.
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND TESSERA_SANITIZE STREQUAL thread)
    add_compile_definitions(__SANITIZE_THREAD__)
  endif()
endif()
# libFuzzer is guided by the coverage of the library, not only of its own targets.
if(TESSERA_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TESSERA_FUZZ needs clang: configure with -DCMAKE_CXX_COMPILER=clang++-16")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
