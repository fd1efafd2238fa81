// Sections of the study of packing that are also part of this study.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "studies/packing/rows.h"
#include "studies/paper/study.h"

namespace tessera::studies::mlperf {

/// This study's results as results of the study of packing, whose sections have the same names and cells.
Study as_packing(const Study& study);

/// A section of the study of packing.
const Section& section_of_packing(std::string_view name);

/// The result of a packing, such as "depth 3 spfhp", or of training on its packs; null: it was not run.
const Result* result_of_packing(const Study& study, std::string_view section, const std::string& row);

/// Sequences per pack of a packing of Wikipedia: our number, or if it was not run, the published number.
std::optional<double> packing_factor_of(const Study& study, const packing::Row& row);

/// The measured speed-up of training on its packs over padded sequences.
std::optional<double> measured_speed_up(const Study& study, const packing::Row& row);

/// The published speed-up of the same training.
std::optional<double> published_speed_up(const Study& study, const packing::Row& row);

}  // namespace tessera::studies::mlperf
