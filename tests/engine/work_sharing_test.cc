#include "engine/work_sharing.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <stdexcept>
#include <thread>

#include "engine/pool.h"

namespace tessera::engine {
namespace {

using program::Phase;

/// A superstep in which thread 0 has a vertex that shares `parts` parts, and each other thread has a vertex
/// of `group` that returns immediately.
class OneLongVertex {
 public:
  explicit OneLongVertex(uint32_t threads) : pool_team_(Pool::shared(), threads) {
    threads_.reserve(threads);
  }

  template <class Work>
  void run(uint32_t parts, bool same_group, const Work& work) {
    threads_.start(pool_team_.threads());
    pool_team_.run([&](uint32_t thread) {
      threads_[thread].clock.start(Phase::compute);
      threads_.run(thread, true, [&](SharingThread& member) {
        member.take(groups_[thread == 0 || same_group ? 0 : 1], &scratch_[thread]);
        if (thread == 0) program::share_work(&member, parts, &scratch_[0], work);
      });
      times_[thread] = threads_[thread].clock.stop();
    });
  }

  uint32_t thread_of(const std::byte* scratch) const {
    return static_cast<uint32_t>(scratch - scratch_.data());
  }
  const program::PhaseTimes& times(uint32_t thread) const { return times_[thread]; }

 private:
  WorkSharing threads_;
  Pool::Team pool_team_;
  std::array<program::VertexGroup, 2> groups_;
  std::array<std::byte, 16> scratch_{};
  std::array<program::PhaseTimes, 16> times_{};
};

TEST(WorkSharing, EveryPartRunsOnceAndIdleThreadsTakeSome) {
  OneLongVertex superstep(3);
  std::array<std::atomic<uint32_t>, 60> runs{};
  std::array<std::atomic<uint32_t>, 3> by_thread{};
  superstep.run(60, true, [&](uint32_t i, const std::byte* scratch) {
    ++runs[i];
    ++by_thread[superstep.thread_of(scratch)];
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  for (const auto& count : runs) EXPECT_EQ(count, 1u);
  for (const auto& count : by_thread) EXPECT_GT(count, 0u);
  EXPECT_GT(superstep.times(1)[Phase::compute], 0.001);
}

TEST(WorkSharing, NoTwoPartsUseAScratchAtATime) {
  OneLongVertex superstep(4);
  std::array<std::atomic<uint32_t>, 4> inside{};
  for (int round = 0; round < 200; ++round)
    superstep.run(50, true, [&](uint32_t, const std::byte* scratch) {
      std::atomic<uint32_t>& mine = inside[superstep.thread_of(scratch)];
      EXPECT_EQ(mine.fetch_add(1), 0u);
      mine.fetch_sub(1);
    });
}

TEST(WorkSharing, AllPartsAreDoneWhenAVertexGoesOn) {
  OneLongVertex superstep(4);
  for (int round = 0; round < 300; ++round) {
    std::array<uint32_t, 40> done{};  // not atomic: the thread sanitizer detects a part that is still running
    superstep.run(40, true, [&](uint32_t i, const std::byte*) { done[i] = i + 1; });
    for (uint32_t i = 0; i < done.size(); ++i) ASSERT_EQ(done[i], i + 1) << "round " << round;
  }
}

TEST(WorkSharing, VerticesOfOtherGroupsGetNoHelp) {
  OneLongVertex superstep(2);
  std::set<uint32_t> threads;
  superstep.run(20, false, [&](uint32_t, const std::byte* scratch) {
    threads.insert(superstep.thread_of(scratch));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  });
  EXPECT_EQ(threads, std::set<uint32_t>{0});
}

TEST(WorkSharing, AnExceptionInAPartReachesTheCaller) {
  OneLongVertex superstep(3);
  for (uint32_t bad = 0; bad < 30; ++bad) {
    EXPECT_THROW(superstep.run(30, true,
                               [&](uint32_t i, const std::byte*) {
                                 std::this_thread::yield();
                                 if (i == bad) throw std::runtime_error("a part");
                               }),
                 std::runtime_error);
  }
}

TEST(WorkSharing, WithoutOneThePartsRunInOrder) {
  std::vector<uint32_t> order;
  std::byte scratch{};
  program::share_work(nullptr, 5, &scratch, [&](uint32_t i, const std::byte* of_thread) {
    EXPECT_EQ(of_thread, &scratch);
    order.push_back(i);
  });
  EXPECT_EQ(order, (std::vector<uint32_t>{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace tessera::engine
