#include "engine/work_sharing.h"

#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "engine/pool.h"

namespace tessera::engine {
namespace {

using program::Phase;

/// A superstep in which thread 0 has a vertex that shares `parts` parts, and each other thread has a vertex
/// of a codelet that returns immediately.
class OneLongVertex {
 public:
  explicit OneLongVertex(uint32_t threads) : pool_team_(Pool::shared(), threads) {
    threads_.reserve(threads);
  }

  template <class Work>
  void run(uint32_t parts, bool same_codelet, const Work& work) {
    threads_.start(pool_team_.threads());
    pool_team_.run([&](uint32_t thread) {
      threads_[thread].clock.start(Phase::compute);
      threads_.run(thread, true, [&](SharingThread& member) {
        member.set_vertex(codelets_[thread == 0 || same_codelet ? 0 : 1], {&scratch_[thread], 1});
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
  std::array<program::Codelet, 2> codelets_{};
  std::array<std::byte, 16> scratch_{};
  std::array<program::PhaseTimes, 16> times_{};
};

TEST(WorkSharing, EveryPartRunsOnceAndIdleThreadsTakeSome) {
  OneLongVertex superstep(3);
  std::array<std::atomic<uint32_t>, 60> runs{};
  std::array<std::atomic<uint32_t>, 3> by_thread{};
  std::atomic<uint32_t> arrived{0};
  superstep.run(60, true, [&](uint32_t i, const std::byte* scratch) {
    ++runs[i];
    if (by_thread[superstep.thread_of(scratch)]++ == 0) ++arrived;
    while (arrived != 3) std::this_thread::yield();  // forever, unless all threads take part
  });
  for (const auto& count : runs) EXPECT_EQ(count, 1u);
  for (const auto& count : by_thread) EXPECT_GT(count, 0u);
  EXPECT_GT(superstep.times(1)[Phase::compute], 0);
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

/// Two threads of a superstep, simulated by one: the helper is called from within the owner's parts.
struct Pair {
  SharingThread owner;
  SharingThread helper;
  std::array<std::byte, 2> scratch{};
  std::array<program::Codelet, 2> codelets{};

  explicit Pair(bool same_codelet = true) {
    owner.reset(true);
    helper.reset(true);
    owner.clock.start(Phase::compute);
    helper.clock.start(Phase::compute);
    owner.set_vertex(codelets[0], {&scratch[0], 1});
    helper.set_vertex(codelets[same_codelet ? 0 : 1], {&scratch[1], 1});
  }
  bool is_helpers(const std::byte* of_part) const { return of_part == &scratch[1]; }
};

TEST(Help, TakesWhatIsLeftInAScratchOfItsOwn) {
  Pair pair;
  std::vector<std::pair<uint32_t, bool>> parts;  // and whether the helper ran it
  EXPECT_FALSE(pair.helper.help(pair.owner));    // nothing is shared yet
  program::share_work(&pair.owner, 4, &pair.scratch[0], [&](uint32_t i, const std::byte* scratch) {
    parts.emplace_back(i, pair.is_helpers(scratch));
    if (i == 1) {
      EXPECT_TRUE(pair.helper.help(pair.owner));
      EXPECT_FALSE(pair.helper.help(pair.owner));  // all parts are taken
    }
  });
  EXPECT_FALSE(pair.helper.help(pair.owner));
  using Parts = std::vector<std::pair<uint32_t, bool>>;
  EXPECT_EQ(parts, (Parts{{0, false}, {1, false}, {2, true}, {3, true}}));
}

TEST(Help, IsForVerticesOfItsOwnCodelet) {
  Pair pair(false);
  uint32_t parts = 0;
  program::share_work(&pair.owner, 3, &pair.scratch[0], [&](uint32_t, const std::byte* scratch) {
    ++parts;
    EXPECT_FALSE(pair.is_helpers(scratch));
    EXPECT_FALSE(pair.helper.help(pair.owner));
  });
  EXPECT_EQ(parts, 3u);
}

/// As with the strips of a gradient, and the optimizer that takes them and needs no scratch.
TEST(Help, IsForVerticesOfTheCodeletThatLastHadScratch) {
  Pair pair;
  pair.helper.set_vertex(pair.codelets[1], {});
  uint32_t helped = 0;
  program::share_work(&pair.owner, 2, &pair.scratch[0], [&](uint32_t i, const std::byte* scratch) {
    if (i == 0) {
      EXPECT_TRUE(pair.helper.help(pair.owner));
    } else {
      helped += pair.is_helpers(scratch) ? 1 : 0;
    }
  });
  EXPECT_EQ(helped, 1u);
}

TEST(Help, NeedsAsMuchScratchAsTheVertex) {
  Pair pair;
  pair.owner.set_vertex(pair.codelets[0], pair.scratch);
  program::share_work(&pair.owner, 2, &pair.scratch[0],
                      [&](uint32_t, const std::byte*) { EXPECT_FALSE(pair.helper.help(pair.owner)); });
}

TEST(Help, IsForNobodyBeforeItsFirstVertex) {
  Pair pair;
  pair.helper.reset(true);
  program::share_work(&pair.owner, 2, &pair.scratch[0],
                      [&](uint32_t, const std::byte*) { EXPECT_FALSE(pair.helper.help(pair.owner)); });
}

TEST(Help, CountsInThePhaseOfItsOwner) {
  Pair pair;
  pair.owner.enter(Phase::reduce);
  pair.helper.enter(Phase::sync);
  double spent = 0;
  program::share_work(&pair.owner, 2, &pair.scratch[0], [&](uint32_t i, const std::byte*) {
    if (i == 0) {
      EXPECT_TRUE(pair.helper.help(pair.owner));
      return;
    }
    const Clock::time_point start = Clock::now();
    do spent = seconds_between(start, Clock::now());
    while (spent < 1e-5);
  });
  EXPECT_GE(pair.helper.clock.stop()[Phase::reduce], spent);
}

TEST(Help, ThatThrowsLeavesItsOwnerFree) {
  Pair pair;
  uint32_t parts = 0;
  program::share_work(&pair.owner, 3, &pair.scratch[0], [&](uint32_t i, const std::byte*) {
    ++parts;
    if (i == 0) {
      EXPECT_THROW(pair.helper.help(pair.owner), std::runtime_error);
    }
    if (i == 1) throw std::runtime_error("of the helper");
  });  // returns; otherwise the owner would wait for a helper forever
  EXPECT_EQ(parts, 3u);
}

TEST(Help, RunsNoClockThatNobodyAskedFor) {
  Pair pair;
  pair.owner.reset(false);
  pair.helper.reset(false);
  pair.owner.set_vertex(pair.codelets[0], {&pair.scratch[0], 1});
  pair.helper.set_vertex(pair.codelets[0], {&pair.scratch[1], 1});
  const Clock::time_point before = pair.helper.clock.since();
  program::share_work(&pair.owner, 2, &pair.scratch[0], [&](uint32_t i, const std::byte*) {
    if (i == 0) {
      EXPECT_TRUE(pair.helper.help(pair.owner));
    }
  });
  EXPECT_EQ(pair.helper.clock.since(), before);
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
