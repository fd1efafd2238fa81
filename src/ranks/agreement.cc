#include "ranks/agreement.h"

#include <fmt/format.h>
#include <tessera/communicator.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "ranks/gather.h"

namespace tessera::ranks {
namespace {

constexpr size_t kLongestShown = 64;

/// One on each line: its name, a tab, and its value.
std::string lines_of(const Facts& facts) {
  std::string lines;
  for (const auto& [name, value] : facts) lines += fmt::format("{}\t{}\n", name, value);
  return lines;
}

std::string text_of_difference(uint32_t rank, const std::string& facts, const std::string& of_first) {
  std::istringstream own(facts), first(of_first);
  std::string line, expected;
  while (std::getline(own, line) && std::getline(first, expected) && line == expected) {
  }
  const std::string name = line.substr(0, line.find('\t')), value = line.substr(line.find('\t') + 1),
                    wanted = expected.substr(expected.find('\t') + 1);
  const bool is_shown = value.size() <= kLongestShown && wanted.size() <= kLongestShown;
  return fmt::format("rank {} has another {} than rank 0{}: start all ranks with the same", rank, name,
                     is_shown ? fmt::format(", {} and not {}", value, wanted) : "");
}

}  // namespace

Heartbeat::Heartbeat(Communicator& communicator) : communicator_(communicator), thread_([this] { run(); }) {}

Heartbeat::~Heartbeat() {
  try {
    wait_for_all();
  } catch (const std::exception&) {
    // The error that ended the work says more.
  }
}

void Heartbeat::wait_for_all() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_done_ = true;
  }
  changed_.notify_one();
  thread_.join();
  if (failure_) std::rethrow_exception(failure_);
}

/// All ranks take part in the same rounds: in each they exchange whether they are done, until all are. Ranks
/// that are still at work begin the next round after a while.
void Heartbeat::run() {
  const auto period =
      std::min<std::chrono::milliseconds>(communicator_.longest_wait() / 4, std::chrono::seconds(1));
  std::vector<std::byte> all(communicator_.size());
  const auto is_done = [](std::byte each) { return each != std::byte{0}; };
  try {
    do {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, period, [&] { return is_done_; });
      const std::byte own{is_done_ ? uint8_t{1} : uint8_t{0}};
      lock.unlock();
      all_gather(communicator_, std::span(&own, 1), all);
    } while (!std::ranges::all_of(all, is_done));
  } catch (...) {
    failure_ = std::current_exception();
  }
}

uint64_t sum_of(Communicator* communicator, uint64_t own) {
  if (communicator == nullptr) return own;
  std::vector<uint64_t> all(communicator->size());
  all_gather(*communicator, std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  return std::accumulate(all.begin(), all.end(), uint64_t{0});
}

void require_equal(Communicator& communicator, const Facts& facts) {
  const std::vector<std::string> all = all_gather(communicator, lines_of(facts));
  for (uint32_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0]) throw RankError(text_of_difference(rank, all[rank], all[0]));
}

}  // namespace tessera::ranks
