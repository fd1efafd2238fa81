#include "program/collective.h"

#include <fmt/format.h>

#include <algorithm>

#include "program/conflicts.h"
#include "program/uses.h"

namespace tessera::program {
namespace {

constexpr uint32_t kMostReplicas = 4096;

/// Replicas by their position in the ring.
std::vector<uint32_t> ring_of(uint32_t replicas) {
  std::vector<uint32_t> ring;
  for (uint32_t even = 0; even < replicas; even += 2) ring.push_back(even);
  for (uint32_t odd = replicas / 2; odd-- > 0;) ring.push_back(2 * odd + 1);
  return ring;
}

/// Chunks go around the ring. With `ahead` 1, each chunk ends, after all rounds, at the replica that owns it;
/// with 0, each replica begins with its own.
void add_ring(uint32_t replicas, uint32_t ahead, bool adds, std::vector<Round>& rounds) {
  const std::vector<uint32_t> ring = ring_of(replicas);
  for (uint32_t step = 0; step + 1 < replicas; ++step) {
    Round round{{}, adds};
    for (uint32_t p = 0; p < replicas; ++p)
      round.messages.push_back(
          {ring[p], ring[(p + 1) % replicas], ring[(p + 2 * replicas - ahead - step) % replicas], 1});
    rounds.push_back(std::move(round));
  }
}

/// Pairs that a binary tree with root 0 has at one level: (parent, child).
template <class Visit>
void each_pair(uint32_t replicas, uint32_t level, const Visit& visit) {
  for (uint32_t parent = 0; parent + level < replicas; parent += 2 * level) visit(parent, parent + level);
}

/// Sends all chunks, or only the chunks of the child's subtree, from the leaves to the root.
void add_gathering(uint32_t replicas, bool all, bool adds, std::vector<Round>& rounds) {
  for (uint32_t level = 1; level < replicas; level *= 2) {
    Round round{{}, adds};
    each_pair(replicas, level, [&](uint32_t parent, uint32_t child) {
      round.messages.push_back(
          {child, parent, all ? 0 : child, all ? replicas : std::min(level, replicas - child)});
    });
    rounds.push_back(std::move(round));
  }
}

/// Sends chunks from the root to the leaves.
void add_spreading(uint32_t replicas, bool all, std::vector<Round>& rounds) {
  const size_t first = rounds.size();
  add_gathering(replicas, all, false, rounds);
  std::reverse(rounds.begin() + static_cast<int64_t>(first), rounds.end());
  for (size_t r = first; r < rounds.size(); ++r)
    for (Message& message : rounds[r].messages) std::swap(message.from, message.to);
}

void verify(const Program& program, const Collective& collective, const Exchanged& exchanged) {
  const auto refuse = [&](const std::string& why) {
    reject(fmt::format("collective '{}': {}", collective.name, why));
  };
  const uint32_t replicas = group_size(collective, program.replicas());
  const auto variable = [&](VariableId id) -> const Variable& {
    if (id >= program.variables().size())
      refuse(fmt::format("it names variable {} of {}", id, program.variables().size()));
    return program.variable(id);
  };
  const Variable& whole = variable(exchanged.whole);
  const auto check = [&](std::optional<VariableId> id, bool wanted, std::string_view what,
                         const auto& elements_of) {
    if (id.has_value() != wanted)
      refuse(fmt::format("'{}' {} a {}", whole.name, wanted ? "needs" : "has no use for", what));
    if (!wanted) return;
    const Variable& beside = variable(*id);
    if (beside.type != whole.type || beside.mapping.size() != whole.mapping.size())
      refuse(fmt::format("'{}', the {} of '{}', has another type or number of boxes", beside.name, what,
                         whole.name));
    for (size_t i = 0; i < whole.mapping.size(); ++i) {
      const uint64_t elements = whole.mapping[i].box.elements();
      if (beside.mapping[i].tile != whole.mapping[i].tile)
        refuse(fmt::format("box {0} of '{1}' lies on another tile than box {0} of '{2}'", i, beside.name,
                           whole.name));
      if (beside.mapping[i].box.elements() != elements_of(elements))
        refuse(fmt::format("box {} of '{}' has {} elements; beside {} of '{}' and {} replicas it needs {}", i,
                           beside.name, beside.mapping[i].box.elements(), elements, whole.name, replicas,
                           elements_of(elements)));
    }
    if (beside.is_read_only()) refuse(fmt::format("'{}' is read only", beside.name));
    if (beside.streaming) refuse(fmt::format("'{}' does not lie on tiles or in shared memory", beside.name));
  };
  if (whole.is_read_only() && writes_whole(collective.kind))
    refuse(fmt::format("'{}' is read only", whole.name));
  if (whole.is_argument() || whole.streaming)
    refuse(fmt::format("'{}' does not lie on tiles or in shared memory", whole.name));
  check(exchanged.part, collective.kind != CollectiveKind::all_reduce, "part",
        [&](uint64_t elements) { return part_elements(elements, replicas); });
  check(exchanged.buffer, sums(collective.kind), "buffer",
        [&](uint64_t elements) { return buffer_elements(collective.algorithm, elements, replicas); });
}

/// No step touches variables that are being copied, which are whole variables.
void verify_beside(const Program& program, UsesOfSteps& uses, const Copy& copy) {
  const CopySet& set = program.copy_sets()[copy.set];
  const Uses beside = uses.all_of(copy.beside);
  for (const CopyGroup& group : set.groups) {
    const auto refuse = [&](VariableId v, std::string_view why) {
      reject(fmt::format("copies '{}': '{}' {}", set.name, program.variable(v).name, why));
    };
    const Variable &from = program.variable(group.from), &to = program.variable(group.to);
    if (from.streaming == to.streaming)
      refuse(group.from, "is not copied from or to streaming memory, and a step is beside that");
    if (group.count != 1 || group.source_rows || group.source_offset || group.target_offset ||
        group.source.at(0) != from.whole() || group.target.at(0) != to.whole())
      refuse(group.from, "is not copied as a whole, and a step is beside that");
    for (const VariableId v : {group.from, group.to})
      if (beside.contains(v)) refuse(v, "is touched beside them");
  }
}

/// No step touches variables that are being exchanged.
void verify_beside(const Program& program) {
  UsesOfSteps uses(program);
  for (const Step& step : program.steps()) {
    if (const auto* copy = std::get_if<Copy>(&step); copy != nullptr && copy->beside != kNoStep)
      verify_beside(program, uses, *copy);
    const auto* collect = std::get_if<Collect>(&step);
    if (collect == nullptr || collect->beside == kNoStep) continue;
    const Collective& collective = program.collectives()[collect->collective];
    const Uses beside = uses.all_of(collect->beside);
    each_variable(collective, [&](VariableId v) {
      if (beside.contains(v))
        reject(fmt::format("collective '{}': '{}' is touched beside it", collective.name,
                           program.variable(v).name));
    });
  }
}

}  // namespace

std::string_view name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce: return "all-reduce";
    case CollectiveKind::reduce_scatter: return "reduce-scatter";
    case CollectiveKind::all_gather: return "all-gather";
    case CollectiveKind::scatter: return "scatter";
  }
  return "?";
}

std::string_view name_of(CollectiveAlgorithm algorithm) {
  return algorithm == CollectiveAlgorithm::ring ? "ring" : "tree";
}

std::vector<Round> rounds_of(CollectiveKind kind, CollectiveAlgorithm algorithm, uint32_t replicas) {
  std::vector<Round> rounds;
  const bool is_ring = algorithm == CollectiveAlgorithm::ring;
  if (sums(kind)) is_ring ? add_ring(replicas, 1, true, rounds) : add_gathering(replicas, true, true, rounds);
  switch (kind) {
    case CollectiveKind::all_reduce:
      is_ring ? add_ring(replicas, 0, false, rounds) : add_spreading(replicas, true, rounds);
      break;
    case CollectiveKind::reduce_scatter:
      if (!is_ring) add_spreading(replicas, false, rounds);
      break;
    case CollectiveKind::all_gather:
      if (is_ring) {
        add_ring(replicas, 0, false, rounds);
      } else {
        add_gathering(replicas, false, false, rounds);
        add_spreading(replicas, true, rounds);
      }
      break;
    case CollectiveKind::scatter: break;
  }
  return rounds;
}

std::vector<Round> rounds_of(const Collective& collective, uint32_t replicas) {
  const uint32_t group = group_size(collective, replicas);
  std::vector<Round> rounds = rounds_of(collective.kind, collective.algorithm, group);
  for (Round& round : rounds) {
    const std::vector<Message> of_first = round.messages;
    for (uint32_t begin = group; begin < replicas; begin += group)
      for (const Message& message : of_first)
        round.messages.push_back({message.from + begin, message.to + begin, message.first, message.chunks});
  }
  return rounds;
}

void verify_collectives(const Program& program) {
  if (program.replicas() == 0 || program.replicas() > kMostReplicas)
    reject(fmt::format("it has {} replicas; it may have 1 to {}", program.replicas(), kMostReplicas));
  for (const Collective& collective : program.collectives()) {
    if (sums(collective.kind)) {
      const Codelet* add = collective.add;
      if (add == nullptr || add->fields.size() != 3 || !add->params.empty() || add->cost == nullptr ||
          add->reference == nullptr)
        reject(fmt::format("collective '{}' needs a codelet of three fields that adds", collective.name));
    }
    if (program.replicas() % group_size(collective, program.replicas()) != 0)
      reject(fmt::format("collective '{}' has groups of {} replicas, of which there are {}", collective.name,
                         collective.group, program.replicas()));
    for (const Exchanged& exchanged : collective.variables) verify(program, collective, exchanged);
  }
  verify_beside(program);
}

}  // namespace tessera::program
