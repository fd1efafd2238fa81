#include <tessera/communicator.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ranks/lost.h"

namespace tessera {
namespace {

using Message = std::vector<std::byte>;

/// What the threads share.
struct Mailboxes {
  explicit Mailboxes(uint32_t count) : ranks(count), has_ended(count), messages(size_t{count} * count) {}

  std::deque<Message>& between(uint32_t from, uint32_t to) { return messages[size_t{from} * ranks + to]; }

  const uint32_t ranks;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<bool> has_ended;                ///< by rank
  std::vector<std::deque<Message>> messages;  ///< that have not been received
  std::string failure;                        ///< why the ranks cannot go on; empty: they can
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Mailboxes> shared, uint32_t rank, std::chrono::milliseconds longest_wait)
      : shared_(std::move(shared)), rank_(rank), longest_wait_(longest_wait) {}

  ~ThreadCommunicator() override {
    const std::lock_guard lock(shared_->mutex);
    shared_->has_ended[rank_] = true;
    shared_->changed.notify_all();
  }

  uint32_t rank() const override { return rank_; }
  uint32_t size() const override { return shared_->ranks; }
  std::chrono::milliseconds longest_wait() const override { return longest_wait_; }
  bool is_within_process() const override { return true; }

  void exchange(std::span<const Outgoing> sent, std::span<const Incoming> received) override {
    send(sent);
    const auto deadline = std::chrono::steady_clock::now() + longest_wait_;
    for (const Incoming& wanted : received) {
      const Message message = receive(wanted.from, deadline);
      if (message.size() != wanted.bytes.size())
        throw RankError(ranks::text_of_size(wanted.from, message.size(), rank_, wanted.bytes.size()));
      std::ranges::copy(message, wanted.bytes.begin());
    }
  }

  void abort(const std::string& message) noexcept override {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->failure.empty()) shared_->failure = message;
    shared_->changed.notify_all();
  }

 private:
  void send(std::span<const Outgoing> sent) {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->failure.empty()) throw RankError(shared_->failure);
    for (const Outgoing& message : sent) {
      assert(message.to < shared_->ranks && message.to != rank_);
      shared_->between(rank_, message.to).emplace_back(message.bytes.begin(), message.bytes.end());
    }
    shared_->changed.notify_all();
  }

  Message receive(uint32_t from, std::chrono::steady_clock::time_point deadline) {
    assert(from < shared_->ranks && from != rank_);
    std::unique_lock lock(shared_->mutex);
    std::deque<Message>& messages = shared_->between(from, rank_);
    const auto is_over = [&] {
      return !messages.empty() || shared_->has_ended[from] || !shared_->failure.empty();
    };
    const bool in_time = shared_->changed.wait_until(lock, deadline, is_over);
    if (!shared_->failure.empty()) throw RankError(shared_->failure);
    if (!in_time) throw RankError(ranks::text_of_silence(from, rank_, longest_wait_));
    if (messages.empty()) throw RankError(ranks::text_of_end(from));
    Message message = std::move(messages.front());
    messages.pop_front();
    return message;
  }

  const std::shared_ptr<Mailboxes> shared_;
  const uint32_t rank_;
  const std::chrono::milliseconds longest_wait_;
};

}  // namespace

std::vector<std::shared_ptr<Communicator>> connect_threads(uint32_t ranks,
                                                           std::chrono::milliseconds longest_wait) {
  const auto shared = std::make_shared<Mailboxes>(ranks);
  std::vector<std::shared_ptr<Communicator>> all;
  for (uint32_t rank = 0; rank < ranks; ++rank)
    all.push_back(std::make_shared<ThreadCommunicator>(shared, rank, longest_wait));
  return all;
}

}  // namespace tessera
