// Ranks that are threads of a test.
#pragma once

#include <tessera/communicator.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tessera::test {

/// Calls work(communicator) on a thread for each rank. Returns the messages of their exceptions, by rank;
/// empty: none.
template <class Work>
std::vector<std::string> errors_on_ranks(std::vector<std::shared_ptr<Communicator>> ranks, const Work& work) {
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    threads.emplace_back([&work, &error = errors[rank], own = std::move(ranks[rank])]() mutable {
      try {
        work(own);
      } catch (const std::exception& thrown) {
        error = thrown.what();
      }
      own.reset();
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// Messages with gradients of small networks have at least this number of bytes, messages with decisions have
/// fewer.
inline constexpr size_t kGradientBytes = 1000;

/// The communicator of a rank, whose connections break on demand.
class BreakingCommunicator final : public Communicator {
 public:
  explicit BreakingCommunicator(std::shared_ptr<Communicator> of) : of_(std::move(of)) {}

  /// From now on, messages of at least `bytes` bytes are not sent.
  void refuse(size_t bytes) { refused_ = bytes; }

  uint32_t rank() const override { return of_->rank(); }
  uint32_t size() const override { return of_->size(); }
  std::chrono::milliseconds longest_wait() const override { return of_->longest_wait(); }
  bool is_within_process() const override { return of_->is_within_process(); }
  void exchange(std::span<const Outgoing> sent, std::span<const Incoming> received) override {
    for (const Outgoing& message : sent)
      if (message.bytes.size() >= refused_) throw RankError("the connection is broken");
    of_->exchange(sent, received);
  }
  void abort(const std::string& message) noexcept override { of_->abort(message); }

 private:
  const std::shared_ptr<Communicator> of_;
  std::atomic<size_t> refused_ = std::numeric_limits<size_t>::max();
};

}  // namespace tessera::test
