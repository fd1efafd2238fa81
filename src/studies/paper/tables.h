// A study's tables, files and page.
#pragma once

#include <string>
#include <vector>

#include "studies/paper/study.h"

namespace tessera::studies {

/// The numbers of the paper beside ours, for all requested sections: single comparisons, and the distances of
/// groups.
Figure comparison_figure(const Study& study);
Figure distance_figure(const Study& study);

/// The percentile of values in any order; 0 if there are none.
double percentile(std::vector<double> values, double fraction);

/// The tables with rows of all requested sections, then the comparisons.
std::vector<Figure> figures_of(const Study& study);

/// A note on how many products were executed and compared with float64.
std::string notes_of(const Study& study);

/// All cells and comparisons as CSV, and as JSON; and with charts as a page.
std::string csv(const Study& study);
std::string json(const Study& study);
std::string page(const Study& study);

}  // namespace tessera::studies
