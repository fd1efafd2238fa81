#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/packing.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "packing/pack_order.h"

namespace tessera::pack {
namespace {

constexpr uint64_t kMost = std::numeric_limits<int32_t>::max();

void require_ranks(uint32_t ranks) {
  if (ranks == 0) throw UsageError("packs need at least 1 rank");
}

// Calls f(first token, entry) for each sequence of a pack of `size` tokens; returns the position of the
// padding.
template <class F>
size_t for_each_sequence(std::span<const uint32_t> lengths, size_t size, F f) {
  size_t at = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] > size - at) {
      throw UsageError(
          fmt::format("sequences of {} or more tokens in a pack of {}; pass room for the maximum",
                      at + lengths[i], size));
    }
    f(at, i);
    at += lengths[i];
  }
  return at;
}

}  // namespace

std::vector<uint32_t> entry_lengths(const PackIndex& index, const Lengths& lengths, uint64_t first_pack,
                                    uint64_t packs) {
  const uint64_t all = index.offsets.size() - 1;
  if (first_pack > all || packs > all - first_pack) {
    throw UsageError(fmt::format("packs {} to {} of {}", first_pack, first_pack + packs, all));
  }
  std::vector<uint32_t> out;
  for (uint64_t entry = index.offsets[first_pack]; entry < index.offsets[first_pack + packs]; ++entry) {
    const bool has_pieces = index.length.size() > 0;
    out.push_back(static_cast<uint32_t>(has_pieces ? index.length[entry] : lengths[index.sequence[entry]]));
  }
  return out;
}

std::vector<int32_t> cu_seqlens(std::span<const uint32_t> lengths) {
  std::vector<int32_t> sums = {0};
  sums.reserve(lengths.size() + 1);
  uint64_t sum = 0;
  for (const uint32_t length : lengths) {
    sum += length;
    if (sum > kMost) {
      throw Error(
          fmt::format("sequences of {} or more tokens in total; cu_seqlens are 32-bit integers up to {}, so "
                      "take fewer packs at once",
                      sum, kMost));
    }
    sums.push_back(static_cast<int32_t>(sum));
  }
  return sums;
}

void position_ids(std::span<const uint32_t> lengths, std::span<int32_t> out, int32_t offset,
                  int32_t padding) {
  const size_t end = for_each_sequence(lengths, out.size(), [&](size_t first, size_t i) {
    if (int64_t{offset} + lengths[i] - 1 > static_cast<int64_t>(kMost)) {
      throw Error(fmt::format("positions from {} on of a sequence of {} tokens exceed {}", offset, lengths[i],
                              kMost));
    }
    const auto tokens = out.subspan(first, lengths[i]);
    std::iota(tokens.begin(), tokens.end(), offset);
  });
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(end), out.end(), padding);
}

void sequence_ids(std::span<const uint32_t> lengths, std::span<int32_t> out) {
  const size_t end = for_each_sequence(lengths, out.size(), [&](size_t first, size_t i) {
    const auto tokens = out.subspan(first, lengths[i]);
    std::fill(tokens.begin(), tokens.end(), static_cast<int32_t>(i + 1));
  });
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(end), out.end(), 0);
}

std::vector<uint32_t> assign_to_ranks(std::span<const uint64_t> costs, uint32_t ranks) {
  require_ranks(ranks);
  std::vector<size_t> by_cost(costs.size());
  std::iota(by_cost.begin(), by_cost.end(), size_t{0});
  std::stable_sort(by_cost.begin(), by_cost.end(), [&](size_t a, size_t b) { return costs[a] > costs[b]; });
  std::vector<uint32_t> by_load(ranks);
  std::iota(by_load.begin(), by_load.end(), 0U);
  std::vector<double> load(ranks);
  std::vector<uint32_t> rank_of(costs.size());
  for (size_t first = 0; first < by_cost.size(); first += ranks) {
    const size_t dealt = std::min<size_t>(ranks, by_cost.size() - first);
    for (size_t i = 0; i < dealt; ++i) {
      rank_of[by_cost[first + i]] = by_load[i];
      load[by_load[i]] += static_cast<double>(costs[by_cost[first + i]]);
    }
    std::stable_sort(by_load.begin(), by_load.end(),
                     [&](uint32_t a, uint32_t b) { return load[a] < load[b]; });
  }
  return rank_of;
}

RankBalance rank_balance(const Packing& packing, const OrderOptions& order, uint32_t ranks) {
  require_ranks(ranks);
  const PackOrder packs(packing, order);
  std::vector<double> cost_of_group;
  for (const Strategy& strategy : packing.strategies)
    cost_of_group.push_back(static_cast<double>(attention_cost(strategy)));
  std::vector<double> sums(ranks);
  double slowest = 0;  // per step, added up
  for (uint64_t first = 0; first < packs.packs(); first += ranks) {
    double dearest = 0;
    for (uint64_t i = first; i < std::min(first + ranks, packs.packs()); ++i) {
      const double cost = cost_of_group[packs[i].group];
      sums[i - first] += cost;
      dearest = std::max(dearest, cost);
    }
    slowest += dearest;
  }
  const double mean = std::accumulate(sums.begin(), sums.end(), 0.0) / ranks;
  if (mean == 0) return {};
  const auto [least, most] = std::minmax_element(sums.begin(), sums.end());
  return {(*most - *least) / mean, 1 - mean / slowest};
}

}  // namespace tessera::pack
