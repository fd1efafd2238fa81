// Ranks that are threads of a test.
#pragma once

#include <tessera/communicator.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tessera::test {

/// Calls work(communicator) on a thread for each rank. Returns the messages of what they throw, by rank;
/// empty: nothing.
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

}  // namespace tessera::test
