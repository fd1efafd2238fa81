// Tables of `tessera reproduce popsparse`.
#pragma once

#include <string>
#include <vector>

#include "studies/common/figure.h"
#include "studies/popsparse/study.h"

namespace tessera::studies::popsparse {

Figure dense_figure(const Study& study);                                           ///< figure 2
Figure table_3(const Study& study);                                                ///< table 3
Figure density_figure(const Study& study);                                         ///< figure 3a
Figure block_figure(const Study& study);                                           ///< figure 4a
Figure size_figure(const Study& study);                                            ///< figure 4b
Figure law_figure(const Study& study);                                             ///< figure 4c
Figure break_even_figure(const Study& study);                                      ///< sections 5.3 and 6
Figure deviation_figure(const Study& study);                                       ///< for tiled machines
std::vector<Figure> grid_figures(const Study& study, const Precision& precision);  ///< figure 7, one per size

/// What the free planner gains over the published one, on the cells of both.
Figure gain_figure(const Outcome& published, const Outcome& free);

/// All of them that have rows, without the gain.
std::vector<Figure> figures_of(const Study& study);

/// Remarks about the tables: verification.
std::string notes_of(const Study& study);

/// All cells as CSV; with the figures as JSON; everything with plots as a page.
std::string csv(const Study& study);
std::string json(const Study& study);
std::string page(const Study& study);

}  // namespace tessera::studies::popsparse
