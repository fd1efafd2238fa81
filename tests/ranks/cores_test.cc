// How ranks of a computer divide its cores.
#include "ranks/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace tessera::ranks {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Cores = std::vector<std::vector<int>>;

const Cores kFour = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};

std::vector<std::vector<int>> cpus_of_all(const std::vector<Place>& places) {
  std::vector<std::vector<int>> all;
  for (uint32_t rank = 0; rank < places.size(); ++rank) all.push_back(own_cpus(places, rank));
  return all;
}

TEST(Cores, AreDividedWholeAndEqually) {
  const Place all{"a", 0, kFour};
  EXPECT_THAT(cpus_of_all({all, all}), ElementsAre(ElementsAre(0, 4, 1, 5), ElementsAre(2, 6, 3, 7)));
  EXPECT_THAT(cpus_of_all({all, all, all}),
              ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6)));
}

/// A session refuses ranks with different numbers of threads.
TEST(Cores, AreAsManyForAllRanks) {
  const Place all{"a", 0, kFour}, elsewhere{"b", 0, kFour};
  EXPECT_THAT(cpus_of_all({all, elsewhere, elsewhere}),
              ElementsAre(ElementsAre(0, 4, 1, 5), ElementsAre(0, 4, 1, 5), ElementsAre(2, 6, 3, 7)));
  const Place first{"a", 0, {{0}, {1}, {2}, {3}}}, second{"a", 0, {{4}, {5}, {6}, {7}}};
  EXPECT_THAT(cpus_of_all({first, second, first, Place()}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(4, 5), ElementsAre(2, 3), IsEmpty()));
}

TEST(Cores, AreKeptWhereNoOtherRankIs) {
  const Place all{"a", 0, kFour}, elsewhere{"b", 0, kFour};
  EXPECT_THAT(cpus_of_all({all, elsewhere}), ElementsAre(IsEmpty(), IsEmpty()));
  const Place first{"a", 0, {{0}, {1}}}, second{"a", 0, {{2}, {3}}};
  EXPECT_THAT(cpus_of_all({first, second}), ElementsAre(IsEmpty(), IsEmpty()));
}

/// Ranks are bound to sockets, as by mpirun.
TEST(Cores, AreDividedWithinWhatRanksMayUse) {
  const Place first{"a", 0, {{0}, {1}}}, second{"a", 0, {{2}, {3}}};
  EXPECT_THAT(cpus_of_all({first, second, first, second}),
              ElementsAre(ElementsAre(0), ElementsAre(2), ElementsAre(1), ElementsAre(3)));
}

TEST(Cores, GoFirstToRanksWithLessChoice) {
  const Place all{"a", 0, {{0}, {1}, {2}, {3}}}, one{"a", 0, {{0}}};
  EXPECT_THAT(cpus_of_all({all, one}), ElementsAre(ElementsAre(1), ElementsAre(0)));
}

TEST(Cores, AreSharedWhereRanksAreMore) {
  const Place two{"a", 0, {{0}, {1}}};
  EXPECT_THAT(cpus_of_all({two, two, two}), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(0)));
}

TEST(Cores, AreNoMoreThanTheGroupMayTakeTheTimeOf) {
  const Place limited{"a", 2, kFour};
  EXPECT_THAT(cpus_of_all({limited, limited}), ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5)));
}

TEST(Cores, AreKeptByRanksThatDoNotAsk) {
  const Place all{"a", 0, kFour};
  EXPECT_THAT(cpus_of_all({all, Place(), Place()}), ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
}

TEST(Cores, TravelAsText) {
  for (const Place& place : {Place{"some computer", 3, kFour}, Place{"b", 0, {{12}}}, Place()})
    EXPECT_EQ(place_of(text_of(place)), place);
}

}  // namespace
}  // namespace tessera::ranks
