// Ranks that are threads: messages, gathers, and how failures travel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/communicator.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "ranks/gather.h"
#include "support/error_of.h"
#include "support/on_ranks.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Ranks = std::shared_ptr<Communicator>;

std::span<const std::byte> bytes_of(const std::vector<uint32_t>& words) {
  return std::as_bytes(std::span(words));
}
std::span<std::byte> room_in(std::vector<uint32_t>& words) {
  return std::as_writable_bytes(std::span(words));
}

TEST(Threads, ExchangeMessagesInTheOrderInWhichTheyAreSent) {
  constexpr uint32_t kRanks = 4;
  const auto errors = test::errors_on_ranks(connect_threads(kRanks), [](const Ranks& ranks) {
    const uint32_t own = ranks->rank(), next = (own + 1) % kRanks, last = (own + kRanks - 1) % kRanks;
    for (uint32_t round = 0; round < 100; ++round) {
      const std::vector<uint32_t> first = {own, round}, second = {own};
      std::vector<uint32_t> of_first(2), of_second(1);
      ranks->exchange(std::vector<Outgoing>{{next, bytes_of(first)}, {next, bytes_of(second)}},
                      std::vector<Incoming>{{last, room_in(of_first)}, {last, room_in(of_second)}});
      if (of_first != std::vector<uint32_t>{last, round} || of_second != std::vector<uint32_t>{last})
        throw std::runtime_error("another message");
    }
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Threads, GatherWhatAllHave) {
  for (const uint32_t size : {1U, 2U, 5U}) {
    const auto errors = test::errors_on_ranks(connect_threads(size), [&](const Ranks& ranks) {
      EXPECT_EQ(ranks->size(), size);
      const std::vector<uint32_t> own = {ranks->rank(), 7 * ranks->rank()};
      std::vector<uint32_t> all(2 * size);
      ranks::all_gather(*ranks, bytes_of(own), room_in(all));
      const std::vector<std::string> texts = ranks::all_gather(*ranks, std::string(ranks->rank(), 'x'));
      ASSERT_EQ(texts.size(), size);
      for (uint32_t rank = 0; rank < size; ++rank) {
        EXPECT_EQ(all[2 * rank], rank);
        EXPECT_EQ(all[2 * rank + 1], 7 * rank);
        EXPECT_EQ(texts[rank], std::string(rank, 'x'));
      }
    });
    EXPECT_THAT(errors, Each(""));
  }
}

/// Rank 1 waits for rank 0, which waits for rank 2.
void wait_in_a_row(Communicator& ranks) {
  std::vector<uint32_t> word(1);
  if (ranks.rank() < 2)
    ranks.exchange({}, std::vector<Incoming>{{ranks.rank() == 0 ? 2U : 0U, room_in(word)}});
}

TEST(Threads, EndWithTheMessageOfTheOneThatFails) {
  const auto errors = test::errors_on_ranks(connect_threads(3), [](const Ranks& ranks) {
    if (ranks->rank() == 2) ranks->abort("rank 2: no memory");
    wait_in_a_row(*ranks);
  });
  EXPECT_THAT(errors, ElementsAre("rank 2: no memory", "rank 2: no memory", ""));
}

TEST(Threads, NoticeThatOneEnds) {
  const auto errors = test::errors_on_ranks(connect_threads(3), [](const Ranks& ranks) {
    try {
      wait_in_a_row(*ranks);
    } catch (const RankError& error) {
      ranks->abort(error.what());
      throw;
    }
  });
  EXPECT_THAT(errors, ElementsAre("rank 2 has ended", "rank 2 has ended", ""));
}

TEST(Threads, DoNotWaitForever) {
  const std::vector<Ranks> ranks = connect_threads(2, milliseconds(1));
  std::vector<uint32_t> word(1);
  const auto wait = [&] { ranks[0]->exchange({}, std::vector<Incoming>{{1, room_in(word)}}); };
  try {
    wait();
    FAIL();
  } catch (const RankError& error) {
    EXPECT_STREQ(
        error.what(),
        "rank 1 has not answered rank 0 for 1 ms: if it does not hang, let ranks wait longer for each "
        "other");
  }
}

TEST(Threads, RefuseMessagesOfAnotherSize) {
  const auto errors = test::errors_on_ranks(connect_threads(2), [](const Ranks& ranks) {
    const std::vector<uint32_t> sent(1 + ranks->rank());
    std::vector<uint32_t> received(1);
    const uint32_t other = 1 - ranks->rank();
    ranks->exchange(std::vector<Outgoing>{{other, bytes_of(sent)}},
                    std::vector<Incoming>{{other, room_in(received)}});
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 1 sent 8 bytes to rank 0, which waits for 4"),
                               HasSubstr("make the same calls")));
  EXPECT_EQ(errors[1], "");
}

TEST(Mpi, IsMissedByBuildsWithoutIt) {
#ifndef TESSERA_MPI
  EXPECT_ERROR("this build of the library has no MPI: install libopenmpi-dev", connect_mpi());
#endif
}

}  // namespace
}  // namespace tessera
