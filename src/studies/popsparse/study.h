// `tessera reproduce popsparse`: the benchmark of PopSparse (Li et al. 2023), which multiplies a sparse or
// dense m × m matrix with a dense m × n one over ranges of all parameters (its table 2).
#pragma once

#include <span>

#include "studies/paper/study.h"

namespace tessera::studies::popsparse {

const Paper& paper();

/// The tables that are committed with this study, generated from published/.
extern const std::span<const base::EmbeddedFile> kPublishedFiles;

/// Name of the section with the products that the other sections read.
inline constexpr std::string_view kProducts = "products";

Section products();    ///< figures 2 and 7
Section table_3();     ///< sparse over dense, each at its best n
Section scaling();     ///< figures 3a, 4a and 4b
Section law();         ///< figure 4c
Section break_even();  ///< sections 5.3 and 6
Section gain();        ///< gain of the free planner

}  // namespace tessera::studies::popsparse
