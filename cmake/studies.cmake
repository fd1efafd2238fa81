# The published numbers that studies compare with; each file begins with its source.
set(popsparse_tables "")
foreach(name IN ITEMS dense-bow.csv static-vs-dense-bow-fp16.csv)
  list(APPEND popsparse_tables ${name} ${PROJECT_SOURCE_DIR}/src/studies/popsparse/published/${name})
endforeach()
tessera_embed(tessera_studies studies/popsparse/published.h tessera::studies::popsparse PublishedFile kPublishedFiles
  ${popsparse_tables})
