# What `cmake --install` installs: library, headers, the tool, and files for CMake and pkg-config.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)

install(TARGETS tessera EXPORT tessera-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN *.h)
install(EXPORT tessera-targets NAMESPACE tessera:: DESTINATION ${package_dir})

# The tool finds a shared library relative to itself, so that the prefix can be moved.
file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(tessera-cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
install(TARGETS tessera-cli DESTINATION ${CMAKE_INSTALL_BINDIR})

# Consumers of a static library link its private dependencies themselves.
get_target_property(library_type tessera TYPE)
if(library_type STREQUAL STATIC_LIBRARY)
  set(TESSERA_IS_STATIC ON)
  set(TESSERA_PKG_CONFIG_REQUIRES "libhwy fmt tomlplusplus zlib protobuf-lite")
  list(JOIN TESSERA_OPTIONAL_LIBRARIES " " TESSERA_PKG_CONFIG_LIBS)
else()
  set(TESSERA_IS_STATIC OFF)
  set(TESSERA_PKG_CONFIG_REQUIRES "")
endif()

configure_package_config_file(cmake/tessera-config.cmake.in ${PROJECT_BINARY_DIR}/tessera-config.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tessera-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/tessera-config.cmake
  ${PROJECT_BINARY_DIR}/tessera-config-version.cmake
  DESTINATION ${package_dir})

file(RELATIVE_PATH pkg_config_to_prefix
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/tessera.pc.in ${PROJECT_BINARY_DIR}/tessera.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tessera.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
