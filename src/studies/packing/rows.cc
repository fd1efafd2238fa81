#include "studies/packing/rows.h"

#include <fmt/format.h>

#include <span>

#include "base/checksum.h"
#include "report/pack_result.h"

namespace tessera::studies::packing {

using pack::Algorithm;

const std::vector<DataSet>& data_sets() {
  static const std::vector<DataSet> all = {
      {"wikipedia", "Wikipedia", "lengths/wikipedia-512.csv", 512, {1, 2, 3, 4, 8, 12, 16, 0}},
      {"squad-1.1", "SQuAD 1.1", "lengths/squad1.1-384.csv", 384, {1, 2, 3, 4, 0}}};
  return all;
}

pack::Histogram lengths_of(const Request& request, const DataSet& set) {
  const auto at = static_cast<size_t>(&set - data_sets().data());
  return at < request.lengths.size() ? request.lengths[at] : pack::Histogram{};
}

std::string name_of(const pack::Histogram& lengths) {
  return fmt::format("{} sequences, {} tokens, histogram {:016x}", lengths.sequences(), lengths.tokens(),
                     base::checksum(std::as_bytes(std::span(lengths.counts))));
}

std::string Row::name() const {
  return fmt::format("depth {} {}", report::depth_text(depth),
                     depth == 1 ? "none" : pack::name_of(algorithm));
}

std::string published_name(const DataSet& set, const Row& row) {
  return fmt::format("{} {}", set.name, row.name());
}

std::vector<Row> rows_of(const DataSet& set) {
  std::vector<Row> rows;
  for (const uint32_t depth : set.depths)
    for (const Algorithm algorithm : {Algorithm::spfhp, Algorithm::lpfhp, Algorithm::nnlshp, Algorithm::best})
      if ((depth != 1 || algorithm == Algorithm::spfhp) && (depth == 3 || algorithm != Algorithm::nnlshp))
        rows.push_back({depth, algorithm});
  return rows;
}

}  // namespace tessera::studies::packing
