# The built-in machines: machines/NAME.toml.
set(named_machines "")
foreach(name IN ITEMS
    gc2 gc200 bow m2000 pod16 pod64 pod128 pod256 bow2000 bow_pod16 bow_pod64 bow_pod128 bow_pod256)
  list(APPEND named_machines ${name} ${PROJECT_SOURCE_DIR}/machines/${name}.toml)
endforeach()
tessera_embed(tessera_machine machine/model/builtin.h tessera::machine kBuiltinFiles ${named_machines})

install(DIRECTORY ${PROJECT_SOURCE_DIR}/machines DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera FILES_MATCHING PATTERN *.toml)
