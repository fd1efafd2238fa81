// A thread that exchanges data with other ranks while others compute.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace tessera::engine {

class CommunicationThread {
 public:
  CommunicationThread() = default;
  CommunicationThread(const CommunicationThread&) = delete;
  CommunicationThread& operator=(const CommunicationThread&) = delete;
  /// Finishes all submitted work first.
  ~CommunicationThread();

  /// Runs work after all work submitted before. The future has what the work throws.
  std::future<void> submit(std::function<void()> work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> waiting_;
  bool ends_ = false;
  std::thread thread_;  ///< from the first work on
};

}  // namespace tessera::engine
