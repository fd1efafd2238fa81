// A thread that exchanges data with other ranks while others compute.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace tessera::engine {

class Courier {
 public:
  Courier() = default;
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;
  /// Does what is left before.
  ~Courier();

  /// Does work after all that it was given before. The future has what the work throws.
  std::future<void> send(std::function<void()> work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> waiting_;
  bool ends_ = false;
  std::thread thread_;  ///< from the first work on
};

}  // namespace tessera::engine
