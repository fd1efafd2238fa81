// `tessera reproduce packing`: the published tables of sequence packing (Krell, "SW/HW co-optimization on the
// IPU: an MLPerf case study"), a section for each data set.
#pragma once

#include <span>

#include "studies/paper/study.h"

namespace tessera::studies::packing {

const Paper& paper();

/// The tables that are committed with this study, generated from published/.
extern const std::span<const base::EmbeddedFile> kPackings;

}  // namespace tessera::studies::packing
