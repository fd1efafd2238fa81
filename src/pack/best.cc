#include "pack/best.h"

#include <cmath>

#include "pack/bounds.h"
#include "pack/certificate.h"
#include "pack/column_generation.h"
#include "pack/dive.h"
#include "pack/greedy.h"
#include "pack/improve.h"
#include "pack/slots.h"

namespace tessera::pack {
namespace {

constexpr double kRoundings[] = {0.6, 0.7};
constexpr uint32_t kImproveRounds = 64;

/// The packings of the simple algorithms, which the relaxation starts from.
class Start {
 public:
  Start(const Histogram& histogram, uint32_t max_per_pack)
      : packings_{longest_pack_first(histogram, max_per_pack),
                  first_fit_decreasing(histogram, max_per_pack),
                  shortest_pack_first(histogram, max_per_pack)} {}

  const std::vector<Strategy>& best() const {
    const std::vector<Strategy>* best = &packings_[0];
    for (const std::vector<Strategy>& packing : packings_)
      if (packs_of(packing) < packs_of(*best)) best = &packing;
    return *best;
  }

  void add_to(ColumnGeneration& relaxation) const {
    for (const std::vector<Strategy>& packing : packings_)
      for (const Strategy& strategy : packing) relaxation.add(strategy.parts);
  }

 private:
  std::vector<Strategy> packings_[3];
};

void sharpen(Certificate& certificate, const ColumnGeneration& relaxation) {
  if (relaxation.bound() <= static_cast<double>(certificate.lower_bound)) return;
  Certificate sharper = relaxation.certificate();
  if (sharper.lower_bound > certificate.lower_bound) certificate = std::move(sharper);
}

std::vector<double> duals_by_length(const Histogram& histogram, const ColumnGeneration& relaxation) {
  std::vector<double> duals(histogram.counts.size());
  const std::vector<uint32_t> lengths = lengths_of(histogram);
  for (size_t i = 0; i < lengths.size(); ++i) duals[lengths[i]] = relaxation.best_duals()[i];
  return duals;
}

}  // namespace

Found find_best(const Histogram& histogram, const Options& options, Watch& watch) {
  const Start start(histogram, options.max_per_pack);
  Found found{start.best(), threshold_bound(histogram, options.max_per_pack)};
  const auto is_done = [&] {
    watch.report(packs_of(found.strategies), found.certificate.lower_bound);
    return packs_of(found.strategies) <= found.certificate.lower_bound || watch.is_over();
  };
  if (is_done() || !ColumnGeneration::is_affordable(histogram, options.max_per_pack)) return found;

  const auto stop = [&] { return watch.is_over(); };
  ColumnGeneration relaxation(histogram, options.max_per_pack, found.certificate);
  start.add_to(relaxation);
  relaxation.solve(stop);
  sharpen(found.certificate, relaxation);

  const auto keep = [&](std::vector<Strategy> other) {
    if (packs_of(other) < packs_of(found.strategies)) found.strategies = std::move(other);
  };
  for (const double round_up : kRoundings) {
    if (packs_of(found.strategies) <= found.certificate.lower_bound) return found;
    const DiveOptions how{.target = found.certificate.lower_bound,
                          .round_up = round_up,
                          .give_up = packs_of(found.strategies)};
    keep(dive(histogram, options.max_per_pack, relaxation, how, stop));
    if (is_done()) return found;
  }
  const std::vector<double> duals = duals_by_length(histogram, relaxation);
  improve(found.strategies, histogram.max_length(),
          {.max_per_pack = options.max_per_pack,
           .target = found.certificate.lower_bound,
           .duals = duals,
           .seed = options.seed,
           .rounds = kImproveRounds},
          stop);
  return found;
}

Certificate find_bound(const Histogram& histogram, uint32_t max_per_pack, Watch& watch) {
  Certificate certificate = threshold_bound(histogram, max_per_pack);
  if (!ColumnGeneration::is_affordable(histogram, max_per_pack)) return certificate;
  ColumnGeneration relaxation(histogram, max_per_pack, certificate);
  Start(histogram, max_per_pack).add_to(relaxation);
  relaxation.solve([&] { return watch.is_over(); });
  sharpen(certificate, relaxation);
  return certificate;
}

}  // namespace tessera::pack
