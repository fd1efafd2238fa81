# The machines that the library knows by name: machines/NAME.toml, compiled in as text.
set(TESSERA_MACHINES gc2 gc200 bow)

set(builtin_files "")
foreach(name IN LISTS TESSERA_MACHINES)
  set(file ${PROJECT_SOURCE_DIR}/machines/${name}.toml)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} content)
  string(APPEND builtin_files "    {\"${name}\", R\"toml(${content})toml\"},\n")
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/builtin_machines.cc.in ${PROJECT_BINARY_DIR}/builtin_machines.cc @ONLY)
target_sources(tessera_machine PRIVATE ${PROJECT_BINARY_DIR}/builtin_machines.cc)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/machines DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera FILES_MATCHING PATTERN *.toml)
