# Warnings of the project's own targets. Who installs the Python package sees none, and the compiler takes time to look for them.
add_library(tessera_warnings INTERFACE)
if(NOT TESSERA_PYTHON OR TESSERA_PREBUILT)
  target_compile_options(tessera_warnings INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wcast-qual)
endif()
