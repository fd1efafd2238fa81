#include "compiler/overlaps.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <variant>

#include "compiler/soundness.h"

namespace tessera::compiler {

using program::Box;
using program::Role;
using program::Variable;
using program::VariableId;

Overlaps::Overlaps(const Executable& e)
    : program_(*e.program), graph_(program_), always_{{0, graph_.positions() - 1}} {
  for (VariableId v = 0; v < program_.variables().size(); ++v) {
    const Variable& variable = program_.variable(v);
    first_mapped_.push_back(static_cast<StorageId>(storage_.size()));
    for (size_t i = 0; i < variable.mapping.size(); ++i)
      add(v, variable.mapping[i].box, e.mapped[v][i], false);
  }
}

void Overlaps::add(VariableId v, const Box& box, const BoxAddress& place, bool is_staging) {
  const uint64_t element = size_of(program_.variable(v).type);
  const bool has_bytes = place.store == Store::arena && !box.empty();
  const uint64_t end =
      has_bytes ? place.offset + (uint64_t{box.rows - 1} * place.stride + box.cols) * element : place.offset;
  storage_.push_back({v, place.space, place.offset, end, box.elements(), kUntouched, is_staging});
}

Overlaps::StorageId Overlaps::staged(VariableId v, const Box& box, const BoxAddress& place) {
  const auto [it, is_new] = staged_.try_emplace(StagedKey{v, place.space, place.offset, box},
                                                static_cast<StorageId>(storage_.size()));
  if (is_new) add(v, box, place, true);
  return it->second;
}

void Overlaps::close(ToucherId toucher) {
  log_.close([&](StorageId id) { return storage_[id].elements; },
             [&](StorageId id, Touch touch) {
               storage_[id].touches = chains_.extended(storage_[id].touches, toucher, touch);
             });
  staged_.clear();
}

const Lifetime& Overlaps::lifetime_of(const Storage& storage) {
  if (!storage.is_staging && program_.variable(storage.variable).role != Role::temporary) return always_;
  const auto [it, is_new] = lifetimes_.try_emplace(storage.touches);
  if (is_new) it->second = graph_.lifetime_of(chains_, storage.touches);
  return it->second;
}

std::map<VariableId, Lifetime> Overlaps::kept_by_calls() const {
  std::map<VariableId, Lifetime> kept;
  const Touchers& touchers = graph_.touchers();
  for (program::StepId id = 0; id < program_.steps().size(); ++id) {
    const auto* call = std::get_if<program::Call>(&program_.steps()[id]);
    if (call == nullptr || call->operands.empty()) continue;
    std::map<uint32_t, std::pair<uint32_t, uint32_t>> bounds;  // by argument: the first and the last
    const std::vector<FunctionSteps::Bound>& all = touchers.function(call->function).bounds;
    for (uint32_t bound = 0; bound < all.size(); ++bound)
      for (const FunctionSteps::Use& use : all[bound].uses)
        bounds.try_emplace(use.argument, bound, bound).first->second.second = bound;
    for (const auto& [argument, between] : bounds) {
      const std::vector<uint32_t>& first = graph_.positions_of(touchers.of_bound(id, between.first));
      const std::vector<uint32_t>& last = graph_.positions_of(touchers.of_bound(id, between.second));
      const VariableId v = program_.functions()[call->function].arguments[argument].variable;
      for (size_t i = 0; i < first.size(); ++i) kept[v].push_back({first[i], last[i]});
    }
  }
  for (auto& [v, intervals] : kept) intervals = joined(std::move(intervals));
  return kept;
}

/// The lifetimes of operands follow from the steps between which, according to calls, functions touch
/// arguments. Where arguments are really touched is known independently.
void Overlaps::check_arguments() const {
  for (const auto& [v, during] : kept_by_calls()) {
    const auto is_kept = [&kept = during](uint32_t position) {
      const auto after = std::ranges::upper_bound(kept, position, {}, &Interval::first);
      return after != kept.begin() && position <= std::prev(after)->last;
    };
    std::set<TouchChain> known;
    for (uint32_t box = 0; box < program_.variable(v).mapping.size(); ++box) {
      TouchChain chain = storage_[mapped(v, box)].touches;
      if (!known.insert(chain).second) continue;
      for (; chain != kUntouched; chain = chains_[chain].before)
        if (!std::ranges::all_of(graph_.positions_of(chains_[chain].toucher), is_kept))
          fail(fmt::format("'{}' is touched while what calls pass for it may not be alive",
                           program_.variable(v).name));
    }
  }
}

void Overlaps::check() {
  check_arguments();
  std::vector<StorageId> used;
  for (StorageId id = 0; id < storage_.size(); ++id)
    if (storage_[id].begin < storage_[id].end && !lifetime_of(storage_[id]).empty()) used.push_back(id);
  const auto space_of = [&](StorageId id) { return storage_[id].space; };
  std::stable_sort(used.begin(), used.end(),
                   [&](StorageId a, StorageId b) { return space_of(a) < space_of(b); });
  for (size_t begin = 0, end = 0; begin < used.size(); begin = end) {
    while (end < used.size() && space_of(used[end]) == space_of(used[begin])) ++end;
    check_arena({&used[begin], end - begin});
  }
}

void Overlaps::check_arena(std::span<StorageId> ids) {
  std::sort(ids.begin(), ids.end(),
            [&](StorageId a, StorageId b) { return storage_[a].begin < storage_[b].begin; });
  const auto share_bytes = [&](StorageId a, StorageId b) { return storage_[a].end > storage_[b].begin; };
  if (std::adjacent_find(ids.begin(), ids.end(), share_bytes) != ids.end()) check_alive(ids);
}

/// Checks for shared bytes: sweeps the positions with the living storage, by address.
void Overlaps::check_alive(std::span<const StorageId> ids) {
  struct Stay {
    Interval when;
    StorageId id;
  };
  std::vector<Stay> stays;
  for (const StorageId id : ids)
    for (const Interval& interval : lifetime_of(storage_[id])) stays.push_back({interval, id});
  std::sort(stays.begin(), stays.end(),
            [](const Stay& a, const Stay& b) { return a.when.first < b.when.first; });
  // Storage with equal addresses cannot be alive together, so the order by address is strict among the
  // living.
  const auto by_address = [&](StorageId a, StorageId b) { return storage_[a].begin < storage_[b].begin; };
  const auto by_last = [](const Stay& a, const Stay& b) {
    return std::tuple(a.when.last, a.id) < std::tuple(b.when.last, b.id);
  };
  std::set<StorageId, decltype(by_address)> alive(by_address);
  std::set<Stay, decltype(by_last)> leaving(by_last);
  for (const Stay& stay : stays) {
    while (!leaving.empty() && leaving.begin()->when.last < stay.when.first) {
      alive.erase(leaving.begin()->id);
      leaving.erase(leaving.begin());
    }
    const auto [it, is_new] = alive.insert(stay.id);
    if (!is_new) fail_overlap(stay.id, *it);
    if (it != alive.begin() && storage_[*std::prev(it)].end > storage_[stay.id].begin)
      fail_overlap(stay.id, *std::prev(it));
    if (std::next(it) != alive.end() && storage_[*std::next(it)].begin < storage_[stay.id].end)
      fail_overlap(stay.id, *std::next(it));
    leaving.insert(stay);
  }
}

void Overlaps::fail_overlap(StorageId a, StorageId b) const {
  fail(fmt::format("'{}' and '{}' overlap on {} while both are alive",
                   program_.variable(storage_[a].variable).name, program_.variable(storage_[b].variable).name,
                   name_of(storage_[a].space)));
}

}  // namespace tessera::compiler
