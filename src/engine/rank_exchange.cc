#include "engine/rank_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "base/ceil_divide.h"
#include "engine/holders.h"

namespace tessera::engine {
namespace {

constexpr size_t kMostOverRead = 128;

}  // namespace

OwnReplicas own_replicas(uint32_t replicas, uint32_t parts, const Communicator* communicator) {
  if (communicator == nullptr || (replicas == 1 && parts == 1)) return {0, replicas, 1, 0};
  const uint32_t ranks = communicator->size(), rank = communicator->rank();
  if (replicas % ranks == 0) {
    const uint32_t each = replicas / ranks;
    return {rank * each, each, 1, 0};
  }
  if (parts == 1)
    throw UsageError(fmt::format("{} replicas cannot be divided among {} ranks equally: use a multiple of {}",
                                 replicas, ranks, ranks));
  const uint32_t of_replica = ranks / replicas;
  if (ranks % replicas != 0 || parts % of_replica != 0 || of_replica > kMostPositions)
    throw UsageError(fmt::format(
        "{} replicas with {} stages each cannot be divided among {} ranks equally: use a multiple of {} "
        "replicas, or a number of replicas that leaves each of them {} ranks or a divisor of this number",
        replicas, parts, ranks, ranks, std::min(parts, kMostPositions)));
  return {rank / of_replica, 1, of_replica, rank % of_replica};
}

size_t MessageLength::add(size_t piece, size_t alignment) {
  const size_t at = base::ceil_divide(std::max(bytes, sizeof(MessageHeader)), alignment) * alignment;
  bytes = at + piece;
  return at;
}

void Messages::Message::make_room() {
  if (bytes.size() < length.bytes + kMostOverRead) bytes.resize(length.bytes + kMostOverRead);
}

void Messages::clear() {
  for (std::vector<Message>* messages : {&sent_, &received_})
    for (Message& message : *messages) message.length = message.taken = {};
}

void Messages::send(uint32_t to, std::span<const std::byte> piece, size_t alignment) {
  Message& message = sent_[to];
  const size_t at = message.length.add(piece.size(), alignment);
  message.make_room();
  if (!piece.empty()) std::memcpy(&message.bytes[at], piece.data(), piece.size());
}

void Messages::expect(uint32_t from, size_t bytes, size_t alignment) {
  received_[from].length.add(bytes, alignment);
}

std::byte* Messages::take(uint32_t from, size_t bytes, size_t alignment) {
  Message& message = received_[from];
  const size_t at = message.taken.add(bytes, alignment);
  assert(message.taken.bytes <= message.length.bytes);
  return message.bytes.data() + at;
}

bool Messages::address(const MessageHeader& place) {
  outgoing_.clear();
  incoming_.clear();
  for (uint32_t rank = 0; rank < sent_.size(); ++rank) {
    if (Message& message = sent_[rank]; message.length.bytes > 0) {
      std::memcpy(message.bytes.data(), &place, sizeof(MessageHeader));
      outgoing_.push_back({rank, message.whole()});
    }
    if (Message& message = received_[rank]; message.length.bytes > 0) {
      message.make_room();
      incoming_.push_back({rank, message.whole()});
    }
  }
  return !outgoing_.empty() || !incoming_.empty();
}

RankExchange::RankExchange(std::shared_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)), present_(communicator_->size()) {}

void RankExchange::note(uint64_t what) {
  noted_ = (noted_ ^ (what + 1)) * 0x9E3779B97F4A7C15;
  noted_ ^= noted_ >> 32;
}

void RankExchange::begin(uint64_t noted) {
  ++place_.round;
  place_.noted = noted;
  present_.clear();
}

void RankExchange::exchange(Messages& messages, const MessageHeader& place) {
  if (!messages.address(place)) return;
  if (const std::string lost = first_failure({}); !lost.empty()) throw RankError(lost);
  try {
    communicator_->exchange(messages.outgoing_, messages.incoming_);
    for (const Incoming& message : messages.incoming_) check(message, place);
  } catch (const RankError& error) {
    throw RankError(first_failure(error.what()));
  }
  for (const Outgoing& message : messages.outgoing_) sent_bytes_ += message.bytes.size();
}

std::string RankExchange::first_failure(const std::string& present) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = present;
  return failure_;
}

void RankExchange::check(const Incoming& message, const MessageHeader& place) const {
  MessageHeader header;
  std::memcpy(&header, message.bytes.data(), sizeof(MessageHeader));
  if (header == place) return;
  throw RankError(
      fmt::format("rank {} is elsewhere in the program than rank {}: ranks have to make the same calls, and "
                  "their replicas the same decisions",
                  message.from, communicator_->rank()));
}

void RankExchange::all_gather(std::span<const std::byte> own, std::span<std::byte> all) {
  assert(all.size() == own.size() * communicator_->size());
  const auto each_other = [&](const auto& visit) {
    for (uint32_t rank = 0; rank < communicator_->size(); ++rank)
      if (rank != communicator_->rank()) visit(rank);
  };
  const auto place_of = [&](uint32_t rank) { return all.subspan(rank * own.size(), own.size()); };
  begin(noted_);
  each_other([&](uint32_t rank) {
    send(rank, own, 1);
    expect(rank, own.size(), 1);
  });
  exchange();
  std::ranges::copy(own, place_of(communicator_->rank()).begin());
  each_other(
      [&](uint32_t rank) { std::copy_n(take(rank, own.size(), 1), own.size(), place_of(rank).begin()); });
}

void RankExchange::abort(const std::string& error) noexcept {
  communicator_->abort("rank " + std::to_string(communicator_->rank()) + ": " + error);
}

}  // namespace tessera::engine
