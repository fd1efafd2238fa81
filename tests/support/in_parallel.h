// Several threads for code that takes a base::ParallelFor.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace tessera::test {

/// Runs jobs on three threads, in any order.
inline void in_parallel(uint32_t count, const std::function<void(uint32_t)>& job) {
  std::atomic<uint32_t> next = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (uint32_t i = next++; i < count; i = next++) job(i);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tessera::test
