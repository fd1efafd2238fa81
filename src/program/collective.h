// The rounds of collectives, and what a program may ask of them.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tessera::program {

/// In one round a replica sends another some consecutive chunks of each variable.
struct Message {
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t first = 0;  ///< chunk
  uint32_t chunks = 0;
};
/// Messages of one exchange: each replica sends at most one and receives at most one.
struct Round {
  std::vector<Message> messages;
  bool adds = false;  ///< what arrives is added to what the receiver has
};

/// What each kind of collective does, in order. A ring goes from replica to replica, first the even ones and
/// then the odd ones back: neighbours on a ladder of chips, and on any other machine as good as another
/// order.
std::vector<Round> rounds_of(CollectiveKind kind, CollectiveAlgorithm algorithm, uint32_t replicas);

/// First of the elements of a chunk, of a box of so many; of chunk `replicas` the end.
inline uint64_t chunk_begin(uint64_t elements, uint32_t chunk, uint32_t replicas) {
  return elements * chunk / replicas;
}

/// Elements of a buffer that receives what is added to a box of so many.
inline uint64_t buffer_elements(CollectiveAlgorithm algorithm, uint64_t elements, uint32_t replicas) {
  return algorithm == CollectiveAlgorithm::tree ? elements : (elements + replicas - 1) / replicas;
}

inline bool sums(CollectiveKind kind) { return kind != CollectiveKind::all_gather; }

/// Throws the Error of an unsound program for collectives whose variables do not lie beside each other, do
/// not have the elements that they need, or cannot be written; and for replicas that are no number from 1.
void verify_collectives(const Program& program);

}  // namespace tessera::program
