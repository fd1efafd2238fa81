#include "engine/rank_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace tessera::engine {
namespace {

constexpr size_t kMostOverRead = 128;

size_t rounded_up(size_t bytes, size_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace

OwnReplicas own_replicas(uint32_t replicas, const Communicator* communicator) {
  if (communicator == nullptr || replicas == 1) return {0, replicas};
  const uint32_t ranks = communicator->size();
  if (replicas % ranks != 0)
    throw UsageError(fmt::format("{} replicas cannot be divided among {} ranks equally: use a multiple of {}",
                                 replicas, ranks, ranks));
  const uint32_t each = replicas / ranks;
  return {communicator->rank() * each, each};
}

size_t LetterLength::add(size_t piece, size_t alignment) {
  const size_t at = rounded_up(std::max(bytes, sizeof(LetterHeader)), alignment);
  bytes = at + piece;
  return at;
}

void RankExchange::Letter::make_room() {
  if (bytes.size() < length.bytes + kMostOverRead) bytes.resize(length.bytes + kMostOverRead);
}

RankExchange::RankExchange(std::shared_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)),
      sent_(communicator_->size()),
      received_(communicator_->size()) {}

void RankExchange::note(uint64_t what) {
  noted_ = (noted_ ^ (what + 1)) * 0x9E3779B97F4A7C15;
  noted_ ^= noted_ >> 32;
}

void RankExchange::begin(uint64_t noted) {
  ++place_.round;
  place_.noted = noted;
  for (std::vector<Letter>* letters : {&sent_, &received_})
    for (Letter& letter : *letters) letter.length = letter.taken = {};
}

void RankExchange::send(uint32_t to, std::span<const std::byte> piece, size_t alignment) {
  Letter& letter = sent_[to];
  const size_t at = letter.length.add(piece.size(), alignment);
  letter.make_room();
  if (!piece.empty()) std::memcpy(&letter.bytes[at], piece.data(), piece.size());
}

void RankExchange::expect(uint32_t from, size_t bytes, size_t alignment) {
  received_[from].length.add(bytes, alignment);
}

void RankExchange::exchange() {
  outgoing_.clear();
  incoming_.clear();
  for (uint32_t rank = 0; rank < sent_.size(); ++rank) {
    if (Letter& letter = sent_[rank]; letter.length.bytes > 0) {
      std::memcpy(letter.bytes.data(), &place_, sizeof(LetterHeader));
      outgoing_.push_back({rank, letter.whole()});
    }
    if (Letter& letter = received_[rank]; letter.length.bytes > 0) {
      letter.make_room();
      incoming_.push_back({rank, letter.whole()});
    }
  }
  if (outgoing_.empty() && incoming_.empty()) return;
  communicator_->exchange(outgoing_, incoming_);
  for (const Outgoing& message : outgoing_) sent_bytes_ += message.bytes.size();
  for (const Incoming& message : incoming_) check(message.from);
}

void RankExchange::check(uint32_t from) const {
  LetterHeader header;
  std::memcpy(&header, received_[from].bytes.data(), sizeof(LetterHeader));
  if (header == place_) return;
  throw RankError(
      fmt::format("rank {} is elsewhere in the program than rank {}: ranks have to make the same calls, and "
                  "their replicas the same decisions",
                  from, communicator_->rank()));
}

std::byte* RankExchange::take(uint32_t from, size_t bytes, size_t alignment) {
  Letter& letter = received_[from];
  const size_t at = letter.taken.add(bytes, alignment);
  assert(letter.taken.bytes <= letter.length.bytes);
  return letter.bytes.data() + at;
}

void RankExchange::all_gather(std::span<const std::byte> own, std::span<std::byte> all) {
  assert(all.size() == own.size() * sent_.size());
  const auto each_other = [&](const auto& visit) {
    for (uint32_t rank = 0; rank < sent_.size(); ++rank)
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
