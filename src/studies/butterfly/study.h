// `tessera reproduce butterfly`: "Reducing Memory Requirements for the IPU using Butterfly Factorizations"
// (Shekofteh et al. 2023), whose tables and figures characterise a GC200 and compare structured with dense
// layers on it.
#pragma once

#include <span>

#include "studies/paper/study.h"

namespace tessera::studies::butterfly {

const Paper& paper();

/// The tables that are committed with this study, generated from published/.
extern const std::span<const base::EmbeddedFile> kPublishedTables;

// The study's sections, in the paper's order.
Section table_1();   ///< the machine
Section figure_3();  ///< exchange between tiles
Section table_2();   ///< dense and sparse products
Section figure_4();  ///< skewed products
Section figure_5();  ///< memory and program size
Section figure_6();  ///< structured layers over N, with figure 7
Section table_4();   ///< the network with one hidden layer
Section table_5();   ///< pixelfly's parameters

}  // namespace tessera::studies::butterfly
