#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/packing.h>

#include <cmath>

#include "packing/best.h"
#include "packing/bounds.h"
#include "packing/greedy.h"
#include "packing/nnlshp.h"
#include "packing/slots.h"

namespace tessera::pack {
namespace {

void require_sane(const Options& options, uint32_t max_length) {
  if (std::isnan(options.time_limit) || options.time_limit < 0)
    throw UsageError(fmt::format("a time limit is 0 (none) or more seconds, not {}", options.time_limit));
  if (options.algorithm != Algorithm::nnlshp) return;
  if (options.max_per_pack != 0 && options.max_per_pack != kLeastSquaresDepth)
    throw UsageError(
        fmt::format("nnlshp puts at most {} sequences in a pack, not {}: ask for {} or "
                    "another algorithm",
                    kLeastSquaresDepth, options.max_per_pack, kLeastSquaresDepth));
  if (max_length > kLongestLeastSquares)
    throw UsageError(fmt::format("nnlshp packs up to {} tokens, not {}: ask for another algorithm",
                                 kLongestLeastSquares, max_length));
}

std::vector<Strategy> pack_simply(const Histogram& histogram, const Options& options, Watch& watch) {
  switch (options.algorithm) {
    case Algorithm::nnlshp: return least_squares_packing(histogram, [&] { return watch.is_over(); });
    case Algorithm::spfhp: return shortest_pack_first(histogram, options.max_per_pack);
    case Algorithm::ffd: return first_fit_decreasing(histogram, options.max_per_pack);
    case Algorithm::next_fit: return next_fit_decreasing(histogram, options.max_per_pack);
    default: return longest_pack_first(histogram, options.max_per_pack);
  }
}

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::best: return "best";
    case Algorithm::spfhp: return "spfhp";
    case Algorithm::lpfhp: return "lpfhp";
    case Algorithm::nnlshp: return "nnlshp";
    case Algorithm::ffd: return "ffd";
    case Algorithm::next_fit: return "next-fit";
  }
  return "";
}

Algorithm algorithm_named(std::string_view name) {
  std::string names;
  for (const Algorithm algorithm : algorithms) {
    if (name_of(algorithm) == name) return algorithm;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(algorithm));
  }
  throw UsageError(fmt::format("unknown packing algorithm '{}' (choose from {})", name, names));
}

Packing plan(const Histogram& histogram, const Options& options) {
  Watch watch(options);
  require_sane(histogram);
  require_sane(options, histogram.max_length());
  Packing packing{.algorithm = options.algorithm,
                  .max_length = histogram.max_length(),
                  .max_per_pack = options.max_per_pack,
                  .strategies = {},
                  .sequences = histogram.sequences(),
                  .tokens = histogram.tokens(),
                  .certificate = {}};
  if (options.algorithm == Algorithm::best) {
    Found found = find_best(histogram, options, watch);
    packing.strategies = merged(std::move(found.strategies));
    packing.certificate = std::move(found.certificate);
  } else {
    packing.strategies = pack_simply(histogram, options, watch);
    packing.certificate = threshold_bound(histogram, options.max_per_pack);
    if (options.certify && !packing.optimal())
      packing.certificate = find_bound(histogram, options.max_per_pack, watch);
  }
  packing.cut_short = watch.is_over();
  packing.seconds = watch.seconds();
  return packing;
}

}  // namespace tessera::pack
