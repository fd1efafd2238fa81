#include "ranks/gather.h"

#include <algorithm>
#include <cassert>
#include <cstdint>

namespace tessera::ranks {
namespace {

/// Sends one message to all other ranks, and receives one from each into the buffer that of(rank) returns.
template <class RoomOf>
void exchange_with_all(Communicator& communicator, std::span<const std::byte> own, const RoomOf& of) {
  std::vector<Outgoing> sent;
  std::vector<Incoming> received;
  for (uint32_t rank = 0; rank < communicator.size(); ++rank) {
    if (rank == communicator.rank()) continue;
    sent.push_back({rank, own});
    received.push_back({rank, of(rank)});
  }
  try {
    communicator.exchange(sent, received);
  } catch (const RankError& error) {
    communicator.abort(error.what());  // for the ranks that wait for this one
    throw;
  }
}

}  // namespace

void all_gather(Communicator& communicator, std::span<const std::byte> own, std::span<std::byte> all) {
  assert(all.size() == own.size() * communicator.size());
  const auto of = [&](uint32_t rank) { return all.subspan(rank * own.size(), own.size()); };
  std::ranges::copy(own, of(communicator.rank()).begin());
  exchange_with_all(communicator, own, of);
}

std::vector<std::string> all_gather(Communicator& communicator, const std::string& own) {
  const uint64_t length = own.size();
  std::vector<uint64_t> lengths(communicator.size());
  all_gather(communicator, std::as_bytes(std::span(&length, 1)), std::as_writable_bytes(std::span(lengths)));
  std::vector<std::string> all;
  for (const uint64_t each : lengths) all.emplace_back(each, '\0');
  all[communicator.rank()] = own;
  exchange_with_all(communicator, std::as_bytes(std::span(own)),
                    [&](uint32_t rank) { return std::as_writable_bytes(std::span(all[rank])); });
  return all;
}

}  // namespace tessera::ranks
