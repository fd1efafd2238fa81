#include "packing/best.h"

#include <algorithm>

#include "packing/bounds.h"
#include "packing/certificate.h"
#include "packing/coarse.h"
#include "packing/column_generation.h"
#include "packing/dive.h"
#include "packing/greedy.h"
#include "packing/improve.h"

namespace tessera::pack {
namespace {

constexpr double kRoundings[] = {0.6, 0.7};
constexpr uint32_t kFineMaximum = 4096;   // units of a coarse scale that replaces the true one
constexpr uint32_t kQuickMaximum = 1024;  // units of a scale that quickly gives a good start
constexpr uint32_t kCoarsest = 256;       // below this nothing is gained
constexpr size_t kManyLengths = 1500;     // with more the relaxation takes many seconds
constexpr uint32_t kImproveRounds = 64;
// Limits of ColumnGeneration::work(), which is about 10^7 per second: together at most a minute.
constexpr double kRelaxationWork = 4e8;
constexpr double kDiveWork = 5e7;
constexpr double kImproveWork = 1e8;

/// Packings of the simple algorithms, from which the relaxation starts.
class Start {
 public:
  Start(const Histogram& histogram, uint32_t max_per_pack)
      : packings_{longest_pack_first(histogram, max_per_pack), first_fit_decreasing(histogram, max_per_pack),
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

/// At most half the maximum, so that nested scales terminate.
CoarseScale scale_of(const Histogram& histogram, uint32_t most_units) {
  return {histogram, std::min(most_units, histogram.max_length() / 2)};
}

/// Finds a better bound on a coarser scale.
void sharpen_on_coarse_scale(Certificate& certificate, const CoarseScale& scale, Watch& watch) {
  const Certificate bound = find_bound(scale.rounded_down(), certificate.max_per_pack, watch);
  if (bound.lower_bound > certificate.lower_bound) certificate = scale.certificate_of(bound);
}

/// Finds better packs on a coarser scale.
void pack_on_coarse_scale(Found& found, const CoarseScale& scale, const Options& options, Watch& watch) {
  std::vector<Strategy> packs = scale.packs_of(find_best(scale.rounded_up(), options, watch).strategies);
  if (packs_of(packs) < packs_of(found.strategies)) found.strategies = std::move(packs);
}

}  // namespace

Found find_best(const Histogram& histogram, const Options& options, Watch& watch) {
  const Start start(histogram, options.max_per_pack);
  Found found{start.best(), threshold_bound(histogram, options.max_per_pack)};
  const auto is_done = [&] {
    watch.report(packs_of(found.strategies), found.certificate.lower_bound);
    return packs_of(found.strategies) <= found.certificate.lower_bound || watch.is_over();
  };
  if (is_done()) return found;
  if (!ColumnGeneration::is_affordable(histogram, options.max_per_pack)) {
    if (histogram.max_length() < kCoarsest) return found;
    const CoarseScale scale = scale_of(histogram, kFineMaximum);
    pack_on_coarse_scale(found, scale, options, watch);
    if (!is_done()) sharpen_on_coarse_scale(found.certificate, scale, watch);
    return found;
  }
  if (lengths_of(histogram).size() > kManyLengths) {
    pack_on_coarse_scale(found, scale_of(histogram, kQuickMaximum), options, watch);
    if (is_done()) return found;
  }

  const auto stop = [&] { return watch.is_over(); };
  ColumnGeneration relaxation(histogram, options.max_per_pack, found.certificate);
  start.add_to(relaxation);
  for (const Strategy& strategy : found.strategies) relaxation.add(strategy.parts);
  relaxation.solve(kRelaxationWork, stop);
  sharpen(found.certificate, relaxation);

  const auto keep = [&](std::vector<Strategy> other) {
    if (packs_of(other) < packs_of(found.strategies)) found.strategies = std::move(other);
  };
  for (const double round_up : kRoundings) {
    if (packs_of(found.strategies) <= found.certificate.lower_bound) return found;
    const DiveOptions how{.target = found.certificate.lower_bound,
                          .round_up = round_up,
                          .most_work = kDiveWork,
                          .give_up = packs_of(found.strategies)};
    keep(dive(histogram, options.max_per_pack, relaxation, how, stop).packs);
    if (is_done()) return found;
  }
  const std::vector<double> duals = duals_by_length(histogram, relaxation);
  improve(found.strategies, histogram.max_length(),
          {.max_per_pack = options.max_per_pack,
           .target = found.certificate.lower_bound,
           .duals = duals,
           .seed = options.seed,
           .rounds = kImproveRounds,
           .most_work = kImproveWork},
          stop);
  return found;
}

Certificate find_bound(const Histogram& histogram, uint32_t max_per_pack, Watch& watch) {
  Certificate certificate = threshold_bound(histogram, max_per_pack);
  if (!ColumnGeneration::is_affordable(histogram, max_per_pack)) {
    if (histogram.max_length() >= kCoarsest)
      sharpen_on_coarse_scale(certificate, scale_of(histogram, kFineMaximum), watch);
    return certificate;
  }
  ColumnGeneration relaxation(histogram, max_per_pack, certificate);
  Start(histogram, max_per_pack).add_to(relaxation);
  relaxation.solve(kRelaxationWork, [&] { return watch.is_over(); });
  sharpen(certificate, relaxation);
  return certificate;
}

}  // namespace tessera::pack
