// The sections of `tessera reproduce butterfly`: the tables and figures of the paper, in its order.
//
// To add one: write its file, with a function that returns the Section and is declared here, and list it in
// sections.cc. Its cells() are the products, exchanges or layers to run on a machine, each with a name that
// is the key of its result, and a function that runs it; running them, keeping them between runs, progress,
// CSV and JSON come from the study. figures() and charts() read the results out of the study by section and
// name, and must accept that any of them is missing (--only, another machine, a cell that does not fit).
// comparisons() set numbers of the paper beside them, with the deviation that is allowed. Published numbers
// are tables in published/, each with its source and a column `name`; cmake/studies.cmake lists them.
#pragma once

#include <span>

#include "studies/butterfly/study.h"

namespace tessera::studies::butterfly {

Section table_1();   ///< the machine
Section figure_3();  ///< exchange between tiles
Section table_2();   ///< dense and sparse products
Section figure_4();  ///< skewed products
Section figure_5();  ///< memory and program size
Section figure_6();  ///< structured layers over N, with figure 7
Section table_4();   ///< the network with one hidden layer
Section table_5();   ///< pixelfly's parameters

std::span<const Section> all_sections();

/// Those that a request asks for. Throws UsageError for an unknown name.
std::vector<Section> sections_of(const Request& request);

}  // namespace tessera::studies::butterfly
