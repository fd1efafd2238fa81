// Data sets whose sequences are packed, and the packings of each that the study compares.
#pragma once

#include <tessera/packing.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "studies/paper/study.h"

namespace tessera::studies::packing {

/// The published table, which has a row for each packing by its published_name().
inline constexpr const char* kTable = "packings.csv";

struct DataSet {
  std::string_view section;
  const char* name;
  const char* file;  ///< path in the data folder
  uint32_t max_length;
  std::vector<uint32_t> depths;  ///< 0: any
};

const std::vector<DataSet>& data_sets();

/// The lengths that a request has of a data set; none if they are not loaded.
pack::Histogram lengths_of(const Request& request, const DataSet& set);

/// "16279552 sequences, 4142945213 tokens, histogram 6f2c…", which differs for other lengths.
std::string name_of(const pack::Histogram& lengths);

/// One row of a table.
struct Row {
  uint32_t depth = 0;
  pack::Algorithm algorithm = pack::Algorithm::best;

  /// "depth 3 spfhp"; of one sequence a pack, where all algorithms are the same, "depth 1 none"
  std::string name() const;
};

std::string published_name(const DataSet& set, const Row& row);

std::vector<Row> rows_of(const DataSet& set);

}  // namespace tessera::studies::packing
