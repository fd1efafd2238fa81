// Comparisons as readable tables, and as files.
#pragma once

#include <string>
#include <vector>

#include "spmm/compare.h"
#include "spmm/options.h"

namespace tessera::bench {

/// The setting of the measurements.
struct Setting {
  std::string cpu;
  Limits limits;
  double peak_gflops = 0;
  bool cold = false;
  uint32_t array_offset = 0;
  std::vector<std::string> versions;  ///< "name: version" of each peer
  std::vector<std::string> missing;   ///< "name: reason"
};

/// Lines above the table: setting, libraries, columns.
std::string head(const Setting& setting);

/// The table's head, and one row.
std::string column_names();
std::string row(const Comparison& comparison);

/// Targets met and missed, and medians over the files, if any.
std::string summary(const std::vector<Comparison>& comparisons);

/// Every timing, one line each.
std::string to_csv(const std::vector<Comparison>& comparisons);
std::string to_json(const Setting& setting, const std::vector<Comparison>& comparisons);

}  // namespace tessera::bench
