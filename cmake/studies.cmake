# The published numbers that studies compare with; each file begins with its source.
function(tessera_published study variable)
  set(tables "")
  foreach(name IN LISTS ARGN)
    list(APPEND tables ${name} ${PROJECT_SOURCE_DIR}/src/studies/${study}/published/${name})
  endforeach()
  tessera_embed(tessera_studies studies/${study}/study.h tessera::studies::${study} ${variable} ${tables})
endfunction()

tessera_published(popsparse kPublishedFiles figure-2.csv figure-7.csv figures-3a-4a.csv sections-5-6.csv table-3.csv)
tessera_published(butterfly kPublishedTables section-3.csv section-4.csv table-1.csv table-2.csv table-4.csv table-5.csv)
tessera_published(packing kPackings packings.csv)
tessera_published(mlperf kSlides slides.csv logs.csv steps.csv)
tessera_published(snn kGains gains.csv)
