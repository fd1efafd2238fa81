# Warnings of the project's own targets. Installing the Python package shows none, and looking for them takes
# compile time.
add_library(tessera_warnings INTERFACE)
if(NOT TESSERA_PYTHON OR TESSERA_PREBUILT)
  target_compile_options(tessera_warnings INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wcast-qual)
endif()
