#include "studies/popsparse/study.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "studies/popsparse/sweep.h"

namespace tessera::studies::popsparse {
namespace {

bool has_row(std::string_view table, const std::string& name) {
  if (table == "sections-5-6.csv")
    return case_named(fmt::format("f16 {} d = 1/16 m = 4096", name)).has_value();
  const std::optional<Case> what = case_named(name);
  if (!what) return false;
  const bool is_dense = what->operand.mode == Mode::dense;
  if (table == "figure-2.csv") return is_dense && what->n > 0;
  if (table == "figure-7.csv") return !is_dense && what->n > 0;
  return what->n == 0 && (table != "table-3.csv" || !is_dense);
}

}  // namespace

const Paper& paper() {
  static const std::vector<Section> sections = {table_3(), break_even(), law(),
                                                scaling(), products(),   gain()};
  static const Paper paper{
      .name = "popsparse",
      .title = "Sparse and dense products on an IPU",
      .about = "Compare sparse with dense products on a Bow IPU, as published: every table and figure",
      .source =
          "Z. Li et al., PopSparse: Accelerated Block Sparse Matrix Multiplication on IPU, 2023, measured on "
          "one Bow IPU; numbers of figures are read off. Green is faster than dense, red slower.",
      .sections = sections,
      .published = kPublishedFiles,
      .machines = "bow",
      .full = "Run the paper's whole table 2, which takes about an hour",
      .has_row = has_row,
      .examples =
          "  tessera reproduce popsparse\n"
          "  tessera reproduce popsparse --machine host --out here\n"
          "  tessera reproduce popsparse --m 1024,4096 --n 64,1024 --block 16 --density 1/16 --type f16,f32"};
  return paper;
}

}  // namespace tessera::studies::popsparse
