// The published tables of sequence packing with our results beside them.
#pragma once

#include <tessera/packing.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "report/pack_result.h"

namespace tessera::studies::packing {

/// A published row (Krell, "SW/HW co-optimization on the IPU: an MLPerf case study"), with the values that it
/// states.
struct Published {
  std::optional<double> packs;
  std::optional<double> efficiency;  ///< 0 to 1
  std::optional<double> packing_factor;
  std::optional<double> speedup;  ///< of training, measured
};

struct Reproduced {
  report::PackResult ours;  ///< its lower bound is the best known for the depth
  std::optional<Published> published;
};

/// One data set.
struct Study {
  std::string name;
  pack::Histogram histogram;
  std::vector<Reproduced> rows;
};

/// Data sets to pack, with their depths and published rows.
struct Task {
  std::string name;
  std::string file;  ///< path in the data folder
  uint32_t max_length = 0;
  std::vector<uint32_t> depths;  ///< 0: any
};
const std::vector<Task>& tasks();

/// Runs every algorithm at every depth, `best` with a certificate. Calls `told` before each with a
/// description of it.
Study reproduce(const Task& task, const std::string& data_folder, double time_limit,
                const std::function<void(const std::string&)>& told);

/// The columns of the table after its name, and a row of it, in the style of the terminal or of a page.
std::vector<std::string> table_head();
std::vector<std::string> row_of(const Reproduced& row, bool on_page);

/// All rows as CSV, as JSON, and as one page with charts.
std::string csv(const std::vector<Study>& studies);
std::string json(const std::vector<Study>& studies);
std::string page(const std::vector<Study>& studies);
std::string text(const Study& study);

}  // namespace tessera::studies::packing
