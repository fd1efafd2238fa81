# The published numbers that studies compare with; each file begins with its source.
set(popsparse_tables "")
foreach(name IN ITEMS dense-bow.csv static-vs-dense-bow-fp16.csv)
  list(APPEND popsparse_tables ${name} ${PROJECT_SOURCE_DIR}/src/studies/popsparse/published/${name})
endforeach()
tessera_embed(tessera_studies studies/popsparse/published.h tessera::studies::popsparse PublishedFile kPublishedFiles
  ${popsparse_tables})

set(butterfly_tables "")
foreach(name IN ITEMS section-3.csv section-4.csv table-1.csv table-2.csv table-4.csv table-5.csv)
  list(APPEND butterfly_tables ${name} ${PROJECT_SOURCE_DIR}/src/studies/butterfly/published/${name})
endforeach()
tessera_embed(tessera_studies studies/butterfly/study.h tessera::studies::butterfly PublishedFile kPublishedTables
  ${butterfly_tables})

tessera_embed(tessera_studies studies/snn/study.h tessera::studies::snn PublishedFile kGains
  gains.csv ${PROJECT_SOURCE_DIR}/src/studies/snn/published/gains.csv)
