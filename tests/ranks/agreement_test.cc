// Work that ranks do together: long work, and failures.
#include "ranks/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/communicator.h>
#include <tessera/error.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "support/on_ranks.h"

namespace tessera::ranks {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Ranks = std::shared_ptr<Communicator>;

TEST(Agreement, WaitsForWorkThatTakesLongerThanAnAnswer) {
  const auto errors = test::errors_on_ranks(connect_threads(3, milliseconds(1000)), [](const Ranks& ranks) {
    for (uint32_t slow = 0; slow < 2; ++slow)
      do_on_each(ranks.get(), [&] {
        if (ranks->rank() == slow) std::this_thread::sleep_for(milliseconds(1500));
      });
    EXPECT_TRUE(is_any(ranks.get(), ranks->rank() == 1));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Agreement, FailsOnAllWhereItFailsOnOne) {
  const auto errors =
      test::errors_on_ranks(connect_threads(3, std::chrono::minutes(10)), [](const Ranks& ranks) {
        EXPECT_THROW(do_on_each(ranks.get(),
                                [&] {
                                  if (ranks->rank() == 2) throw UsageError("no such file");
                                }),
                     Error);
        do_once(ranks.get(), [&] { throw Error("no space"); });  // they go on
      });
  EXPECT_THAT(errors, ElementsAre("no space", "rank 0: no space", "rank 0: no space"));
}

TEST(Agreement, LearnsDuringWorkThatARankHasEnded) {
  const auto errors =
      test::errors_on_ranks(connect_threads(3, std::chrono::minutes(10)), [](const Ranks& ranks) {
        if (ranks->rank() == 2) return;
        do_on_each(ranks.get(), [&] { std::this_thread::sleep_for(milliseconds(ranks->rank() * 100)); });
      });
  EXPECT_THAT(errors, ElementsAre("rank 2 has ended", "rank 2 has ended", ""));
}

TEST(Agreement, NamesARankThatDoesNotAnswer) {
  const std::vector<Ranks> ranks = connect_threads(2, milliseconds(10));
  try {
    do_on_each(ranks[0].get(), [] {});
    FAIL();
  } catch (const RankError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 has not answered rank 0 for 10 ms"));
  }
}

TEST(Agreement, IsThatOfOneProcessWithoutRanks) {
  int calls = 0;
  do_on_each(nullptr, [&] { ++calls; });
  do_once(nullptr, [&] { ++calls; });
  do_once(connect_threads(1)[0].get(), [&] { ++calls; });
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace tessera::ranks
