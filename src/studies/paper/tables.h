// A study's tables, files and page.
#pragma once

#include <string>
#include <vector>

#include "studies/paper/study.h"

namespace tessera::studies {

/// The numbers of the paper beside ours, of all sections asked for: those that stand alone, and the distances
/// of groups.
Figure comparison_figure(const Study& study);
Figure distance_figure(const Study& study);

/// Of values in any order; 0 if there are none.
double percentile(std::vector<double> values, double fraction);

/// The tables of all sections asked for that have rows, then the comparisons.
std::vector<Figure> figures_of(const Study& study);

/// How many products were executed and compared with float64.
std::string notes_of(const Study& study);

/// All cells and comparisons as CSV, and as JSON; everything with charts as a page.
std::string csv(const Study& study);
std::string json(const Study& study);
std::string page(const Study& study);

}  // namespace tessera::studies
