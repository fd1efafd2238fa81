#include "studies/popsparse/study.h"

#include <vector>

namespace tessera::studies::popsparse {

const Paper& paper() {
  static const std::vector<Section> sections = {table_3(), break_even(), law(),
                                                scaling(), products(),   gain()};
  static const Paper paper{
      .name = "popsparse",
      .title = "Sparse and dense products on an IPU",
      .about = "Compare sparse with dense products on a Bow IPU, as published: every table and figure",
      .source =
          "Z. Li et al., PopSparse: Accelerated Block Sparse Matrix Multiplication on IPU, 2023, measured on "
          "one Bow IPU; those of figures are read off. Green is faster than dense, red slower.",
      .sections = sections,
      .published = kPublishedFiles,
      .machines = "bow",
      .full = "Run the paper's whole table 2, which takes about an hour",
      .examples =
          "  tessera reproduce popsparse\n"
          "  tessera reproduce popsparse --machine host --out here\n"
          "  tessera reproduce popsparse --m 1024,4096 --n 64,1024 --block 16 --density 1/16 --type f16,f32"};
  return paper;
}

}  // namespace tessera::studies::popsparse
