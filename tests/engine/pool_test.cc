#include "engine/pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <tessera/machine.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <initializer_list>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tessera::engine {
namespace {

TEST(Pool, EveryThreadOfATeamRunsEachJobOnce) {
  Pool pool;
  for (uint32_t threads : {1U, 2U, 5U, 3U}) {  // grows, and serves smaller teams too
    Pool::Team team(pool, threads);
    std::vector<uint32_t> ran(threads, 0);
    for (uint32_t job = 0; job < 50; ++job) team.run([&](uint32_t thread) { ++ran.at(thread); });
    for (uint32_t times : ran) EXPECT_EQ(times, 50u);
  }
}

TEST(Pool, SurvivesAHundredThousandSupersteps) {
  Pool pool;
  Pool::Team team(pool, 2);
  uint64_t sums[2] = {0, 0};
  std::atomic<uint64_t> together{0};
  for (uint64_t step = 0; step < 100'000; ++step) {
    team.run([&](uint32_t thread) {
      sums[thread] += step;
      together.fetch_add(1, std::memory_order_relaxed);
    });
    ASSERT_EQ(together.load(), 2 * (step + 1));  // a superstep ends when all have
  }
  EXPECT_EQ(sums[0], 4'999'950'000u);
  EXPECT_EQ(sums[1], 4'999'950'000u);
}

/// Makes waiting threads sleep at once.
constexpr std::chrono::microseconds kNoSpinning{0};

int sum_on_two_threads() {
  Pool::Team team(Pool::shared(), 2);
  std::atomic<int> sum{0};
  team.run([&](uint32_t thread) { sum += static_cast<int>(thread) + 1; });
  return sum;
}

/// An OpenMP runtime whose teams have at most three threads.
struct ToyOpenMp {
  static constexpr unsigned kMostThreads = 3;
  static inline std::atomic<uint32_t> regions{0};
  static inline thread_local int thread = 0;
  static inline std::atomic<int> team{1};

  static void parallel(OpenMpRuntime::Body body, void* argument, unsigned threads, unsigned) {
    ++regions;
    team = static_cast<int>(std::min(threads, kMostThreads));
    std::vector<std::thread> workers;
    for (int t = 1; t < team; ++t)
      workers.emplace_back([=] {
        thread = t;
        body(argument);
      });
    body(argument);
    for (std::thread& worker : workers) worker.join();
  }

  ToyOpenMp() {
    regions = 0;
    use_openmp({parallel, [] { return thread; }, [] { return team.load(); }});
  }
  ~ToyOpenMp() { use_openmp({}); }
};

TEST(Pool, RunsOnTheThreadsOfAnOpenMpRuntime) {
  const ToyOpenMp openmp;
  Pool pool;
  for (const uint32_t threads : {2U, 3U, 5U}) {  // the runtime has too few for the last
    ToyOpenMp::regions = 0;
    Pool::Team team(pool, threads);
    std::vector<uint32_t> ran(threads, 0);
    std::atomic<uint32_t> arrived{0};
    for (uint32_t job = 1; job <= 10; ++job)
      team.run([&](uint32_t thread) {
        ++ran.at(thread);
        ++arrived;
        while (arrived < job * threads) std::this_thread::yield();  // all threads are here at once
      });
    for (const uint32_t times : ran) EXPECT_EQ(times, 10U);
    EXPECT_EQ(ToyOpenMp::regions, 10U);
  }
  Pool::Team team(pool, 3);
  const auto fail = [&] {
    team.run([](uint32_t thread) {
      if (thread > 0) throw std::runtime_error("thread " + std::to_string(thread));
    });
  };
  EXPECT_THROW(
      {
        try {
          fail();
        } catch (const std::runtime_error& e) {
          EXPECT_STREQ(e.what(), "thread 1");
          throw;
        }
      },
      std::runtime_error);
}

TEST(Pool, ServesAForkedProcessWhoseParentUsesIt) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer does not follow threads that a forked process starts";
#endif
  ASSERT_EQ(sum_on_two_threads(), 3);
  Pool::Team in_use(Pool::shared(), 2);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // rather than hang
    _exit(sum_on_two_threads());
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
}

TEST(Pool, WakesWorkersThatSleep) {
  Pool pool(kNoSpinning);
  Pool::Team team(pool, 3);
  std::atomic<uint32_t> ran{0};
  for (uint32_t job = 0; job < 2000; ++job) team.run([&](uint32_t) { ++ran; });
  EXPECT_EQ(ran, 6000u);
}

TEST(Pool, WaitsForSlowWorkersAsleep) {
  Pool pool(kNoSpinning);
  Pool::Team team(pool, 2);
  for (uint32_t job = 0; job < 50; ++job) {
    std::atomic<bool> caller_is_done{false};
    bool done = false;
    team.run([&](uint32_t thread) {
      if (thread == 0) {
        caller_is_done = true;
        return;
      }
      while (!caller_is_done) std::this_thread::yield();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      done = true;
    });
    ASSERT_TRUE(done);
  }
}

TEST(Pool, ServesManyMoreThreadsThanCores) {
  Pool pool;
  const uint32_t threads = 8 * std::max(1U, std::thread::hardware_concurrency());
  Pool::Team team(pool, threads);
  std::atomic<uint32_t> ran{0};
  for (uint32_t job = 0; job < 100; ++job) team.run([&](uint32_t) { ++ran; });
  EXPECT_EQ(ran, 100 * threads);
}

TEST(Pool, RunsEachJobOfALoopOnceOnNoMoreThreadsThanItIsGiven) {
  for (const uint32_t threads : {1U, 2U, 3U})
    for (const uint32_t jobs : {1U, 2U, 40U}) {
      std::vector<uint32_t> ran(jobs);
      std::mutex mutex;
      std::set<std::thread::id> found;
      on_pool(threads)(jobs, [&](uint32_t job) {
        ++ran[job];
        {
          const std::lock_guard lock(mutex);
          found.insert(std::this_thread::get_id());
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // leaves the others time to come
      });
      EXPECT_EQ(ran, std::vector<uint32_t>(jobs, 1));
      EXPECT_LE(found.size(), threads);
    }
}

TEST(Pool, SharesOfAProcessDoNotWaitForEachOther) {
  Pool first(Pool::Share{0, 2}), second(Pool::Share{1, 2});
  Pool::Team outer(first, 2), inner(second, 2);
  std::atomic<uint32_t> ran{0};
  for (Pool::Team* team : {&outer, &inner, &outer}) team->run([&](uint32_t) { ++ran; });
  EXPECT_EQ(ran, 6U);
}

TEST(Pool, TeamsTakeTurns) {
  Pool pool;
  std::atomic<int> inside{0};
  std::atomic<bool> overlapped{false};
  std::vector<std::thread> callers;
  for (uint32_t caller = 0; caller < 4; ++caller)
    callers.emplace_back([&, caller] {
      for (uint32_t turn = 0; turn < 50; ++turn) {
        Pool::Team team(pool, 1 + caller % 3);
        if (++inside != 1) overlapped = true;
        team.run([](uint32_t) {});
        --inside;
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_FALSE(overlapped);
}

TEST(Pool, RethrowsTheExceptionOfTheLowestThreadAndGoesOn) {
  Pool pool;
  Pool::Team team(pool, 4);
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::atomic<uint32_t> ran{0};
    try {
      team.run([&](uint32_t thread) {
        ++ran;
        if (thread >= 2) throw std::runtime_error(thread == 2 ? "two" : "three");
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "two");
    }
    EXPECT_EQ(ran, 4u);
    team.run([](uint32_t) {});
  }
}

}  // namespace
}  // namespace tessera::engine
