#include "base/forked_mutex.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <tessera/error.h>
#include <unistd.h>

#include <functional>
#include <latch>
#include <mutex>
#include <string>
#include <thread>

namespace tessera::base {
namespace {

/// The exit status of a forked process.
int status_of_child(const std::function<int()>& run) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // rather than hang
    _exit(run());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// 0: the mutex can be locked, 1: it cannot, as a thread of the parent had locked it.
int locks(ForkedMutex& mutex) {
  try {
    const std::scoped_lock twice(mutex);
    const std::scoped_lock again(mutex);
    return 0;
  } catch (const Error& e) {
    return std::string(e.what()).find("when this process was forked") != std::string::npos ? 1 : 2;
  }
}

TEST(ForkedMutex, IsFreeInAForkedProcessIfNoThreadHadIt) {
  ForkedMutex mutex;
  EXPECT_EQ(locks(mutex), 0);
  EXPECT_EQ(status_of_child([&] { return 10 * locks(mutex) + locks(mutex); }), 0);
  EXPECT_EQ(status_of_child([&] { return status_of_child([&] { return locks(mutex); }); }), 0);
  EXPECT_EQ(locks(mutex), 0);
}

TEST(ForkedMutex, IsRefusedInAForkedProcessIfAnotherThreadHadIt) {
  ForkedMutex mutex, other;
  std::latch locked(1), forked(1);
  std::thread owner([&] {
    const std::scoped_lock lock(mutex);
    locked.count_down();
    forked.wait();
  });
  locked.wait();
  EXPECT_EQ(status_of_child([&] { return 10 * locks(mutex) + locks(mutex); }), 11);
  EXPECT_EQ(status_of_child([&] { return locks(other); }), 0);
  forked.count_down();
  owner.join();
  EXPECT_EQ(locks(mutex), 0);
  EXPECT_EQ(status_of_child([&] { return locks(mutex); }), 0);
}

TEST(ForkedMutex, IsOneThreadsAtATime) {
  ForkedMutex mutex;
  int count = 0;
  const auto add = [&] {
    for (int i = 0; i < 10'000; ++i) {
      const std::scoped_lock lock(mutex);
      ++count;
    }
  };
  std::thread first(add), second(add);
  first.join();
  second.join();
  EXPECT_EQ(count, 20'000);
}

}  // namespace
}  // namespace tessera::base
