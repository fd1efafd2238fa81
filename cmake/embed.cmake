# tessera_embed(TARGET HEADER NAMESPACE VARIABLE NAME FILE [NAME FILE]...): embeds files as text, so that an
# installed library includes them. HEADER declares VARIABLE, a span of base::EmbeddedFile, in NAMESPACE.
function(tessera_embed target header namespace variable)
  set(contents "")
  while(ARGN)
    list(POP_FRONT ARGN name file)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} content)
    string(APPEND contents "    {\"${name}\", R\"text(${content})text\"},\n")
  endwhile()
  set(generated ${PROJECT_BINARY_DIR}/embedded/${variable}.cc)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/embedded.cc.in ${generated} @ONLY)
  target_sources(${target} PRIVATE ${generated})
endfunction()
