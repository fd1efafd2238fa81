# lld, if installed, links in a quarter of the time of GNU's linker, and there is one program for each folder of tests.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=lld TESSERA_HAS_LLD)
if(TESSERA_HAS_LLD)
  add_link_options(-fuse-ld=lld)
endif()
