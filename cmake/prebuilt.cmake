# The library of another build folder: tests of the Python package do not compile it again.
add_library(tessera STATIC IMPORTED GLOBAL)
set_target_properties(tessera PROPERTIES
  IMPORTED_LOCATION ${TESSERA_PREBUILT}/src/libtessera.a
  INTERFACE_INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/include
  INTERFACE_COMPILE_FEATURES cxx_std_20
  INTERFACE_LINK_LIBRARIES "hwy::hwy;fmt::fmt;tomlplusplus::tomlplusplus;ZLIB::ZLIB;protobuf::libprotobuf-lite;Threads::Threads;${TESSERA_OPTIONAL_LIBRARIES}")
