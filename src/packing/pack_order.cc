#include "packing/pack_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/random.h"
#include "packing/smallest_type.h"
#include "packing/wide.h"

namespace tessera::pack {
namespace {

// Below `bound`; deviates from uniform by at most bound / 2^64.
uint64_t below(base::RandomSequence& random, uint64_t bound) {
  const uint64_t high = random.word();
  return static_cast<uint64_t>(WideCount{high << 32 | random.word()} * bound >> 64);
}

// Fisher and Yates.
template <class T>
void shuffle(std::span<T> items, uint64_t seed) {
  base::RandomSequence random{base::RandomStream(seed)};
  for (uint64_t left = items.size(); left > 1; --left) std::swap(items[left - 1], items[below(random, left)]);
}

// Packs by descending cost; each step takes one per rank, so that the packs of a step have similar costs.
// Every other step is reversed, which balances the sums. An incomplete step is last.
template <class T>
void deal(std::span<const T> by_cost, std::span<T> out, uint64_t ranks, std::optional<uint64_t> seed) {
  std::vector<T> steps(by_cost.size() / ranks);
  std::iota(steps.begin(), steps.end(), T{0});
  if (seed) shuffle<T>(steps, *seed);
  for (uint64_t i = 0; i < out.size(); ++i) {
    const uint64_t step = i / ranks;
    const uint64_t rank = i % ranks;
    if (step == steps.size())
      out[i] = by_cost[i];
    else
      out[i] = by_cost[steps[step] * ranks + (step % 2 == 0 ? rank : ranks - 1 - rank)];
  }
}

// Numbers of packs by descending cost.
template <class T>
std::vector<T> numbers_by_cost(const Packing& packing, const std::vector<uint64_t>& first_of_group) {
  std::vector<std::pair<uint64_t, uint64_t>> groups;
  for (uint64_t g = 0; g < packing.strategies.size(); ++g)
    groups.emplace_back(attention_cost(packing.strategies[g]), g);
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<T> numbers;
  numbers.reserve(first_of_group.back());
  for (const auto& [cost, g] : groups)
    for (uint64_t number = first_of_group[g]; number < first_of_group[g + 1]; ++number)
      numbers.push_back(static_cast<T>(number));
  return numbers;
}

template <class T>
void put_in_order(const Packing& packing, const std::vector<uint64_t>& first_of_group,
                  const OrderOptions& order, std::span<T> numbers) {
  if (order.ranks > 1) {
    deal<T>(numbers_by_cost<T>(packing, first_of_group), numbers, order.ranks, order.shuffle);
    return;
  }
  std::iota(numbers.begin(), numbers.end(), T{0});
  shuffle<T>(numbers, *order.shuffle);
}

}  // namespace

PackOrder::PackOrder(const Packing& packing, const OrderOptions& order) {
  first_of_group_ = {0};
  for (const Strategy& strategy : packing.strategies)
    first_of_group_.push_back(first_of_group_.back() + strategy.count);
  look_up_groups();
  if (packs() == 0 || (!order.shuffle && order.ranks <= 1)) return;
  number_at_ = IndexArray(packs(), packs() - 1);
  visit(number_at_, [&](auto numbers) { put_in_order(packing, first_of_group_, order, numbers); });
}

// For every 2^near_shift_ packs the group of the first; a few times as many entries as there are groups.
void PackOrder::look_up_groups() {
  while (packs() >> near_shift_ > 4 * first_of_group_.size()) ++near_shift_;
  uint64_t group = 0;
  for (uint64_t number = 0; number < packs(); number += uint64_t{1} << near_shift_) {
    while (number >= first_of_group_[group + 1]) ++group;
    group_near_.push_back(group);
  }
}

PackOrder::Pack PackOrder::place_of(uint64_t number) const {
  uint64_t group = group_near_[number >> near_shift_];
  while (number >= first_of_group_[group + 1]) ++group;
  return {group, number - first_of_group_[group]};
}

PackOrder::Pack PackOrder::operator[](uint64_t position) const {
  return place_of(permuted() ? number_at_[position] : position);
}

uint64_t attention_cost(const Strategy& strategy) {
  uint64_t cost = 0;
  for (const Part& part : strategy.parts) cost += uint64_t{part.length} * part.length * part.copies;
  return cost;
}

}  // namespace tessera::pack
