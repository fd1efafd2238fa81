// The rounds of collectives, and their verification.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tessera::program {

/// In one round a replica sends another some consecutive chunks of each variable.
struct Message {
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t first = 0;  ///< first chunk
  uint32_t chunks = 0;
};
/// Messages of one exchange: each replica sends at most one and receives at most one.
struct Round {
  std::vector<Message> messages;
  bool adds = false;  ///< received chunks are added to the receiver's
};

/// The rounds of each kind of collective, in order. A ring visits the even replicas in ascending order, then
/// the odd ones in descending order: these are neighbours on a ladder of chips, and no worse than other
/// orders on other machines.
std::vector<Round> rounds_of(CollectiveKind kind, CollectiveAlgorithm algorithm, uint32_t replicas);

/// Number of replicas that exchange with each other: boxes have this number of chunks, one for each.
inline uint32_t group_size(const Collective& collective, uint32_t replicas) {
  return collective.group == 0 ? replicas : collective.group;
}
/// The rounds of a collective, in each of which all groups exchange.
std::vector<Round> rounds_of(const Collective& collective, uint32_t replicas);

/// The first element of a chunk of a box with `elements` elements; for chunk `replicas`, the end.
inline uint64_t chunk_begin(uint64_t elements, uint32_t chunk, uint32_t replicas) {
  return elements * chunk / replicas;
}

/// Number of elements of a part of such a box: the longest chunk.
inline uint64_t part_elements(uint64_t elements, uint32_t replicas) {
  return (elements + replicas - 1) / replicas;
}

/// Number of elements of the buffer that receives summands for a box with `elements` elements.
inline uint64_t buffer_elements(CollectiveAlgorithm algorithm, uint64_t elements, uint32_t replicas) {
  return algorithm == CollectiveAlgorithm::tree ? elements : part_elements(elements, replicas);
}

inline bool sums(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter;
}
/// Whether the parts, or the whole variable, are what a collective reads, and what it writes.
inline bool reads_part(CollectiveKind kind) { return kind == CollectiveKind::all_gather; }
inline bool reads_whole(CollectiveKind kind) { return kind != CollectiveKind::all_gather; }
inline bool writes_part(CollectiveKind kind) {
  return kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::scatter;
}
inline bool writes_whole(CollectiveKind kind) { return kind != CollectiveKind::scatter; }

/// Calls visit(variable) for each variable that a collective exchanges.
template <class Visit>
void each_variable(const Collective& collective, const Visit& visit) {
  for (const Exchanged& exchanged : collective.variables) {
    visit(exchanged.whole);
    for (const auto& beside : {exchanged.part, exchanged.buffer})
      if (beside) visit(*beside);
  }
}

/// Calls visit(variable) for each variable that a collective only fills, so that it needs room from its
/// beginning on, but no contents.
template <class Visit>
void each_filled(const Collective& collective, const Visit& visit) {
  for (const Exchanged& exchanged : collective.variables) {
    if (!reads_whole(collective.kind)) visit(exchanged.whole);
    if (exchanged.part && !reads_part(collective.kind)) visit(*exchanged.part);
    if (exchanged.buffer) visit(*exchanged.buffer);
  }
}

/// Throws the Error of an unsound program for collectives whose variables are not on the same tiles, do not
/// have the necessary elements, cannot be written, or are touched beside them; for copies with such steps
/// beside them, or that cannot have any; and for a number of replicas below 1, or not of whole groups.
void verify_collectives(const Program& program);

}  // namespace tessera::program
