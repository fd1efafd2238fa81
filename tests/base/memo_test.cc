#include "base/memo.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace tessera::base {
namespace {

TEST(Memo, MakesTheLastResultsOnce) {
  Memo<int, int> squares(2);
  int made = 0;
  const auto square = [&](int x) {
    return squares.get(x, [&] {
      ++made;
      return x * x;
    });
  };
  EXPECT_EQ(square(3), 9);
  EXPECT_EQ(square(4), 16);
  EXPECT_EQ(square(3), 9);
  EXPECT_EQ(made, 2);
  EXPECT_EQ(square(5), 25);  // replaces 4, which was used before 3
  EXPECT_EQ(square(3), 9);
  EXPECT_EQ(made, 3);
  EXPECT_EQ(square(4), 16);
  EXPECT_EQ(made, 4);
}

TEST(Memo, KeepsNothingOfWhatFails) {
  Memo<int, int> results(2);
  EXPECT_THROW(results.get(1, []() -> int { throw 7; }), int);
  EXPECT_EQ(results.get(1, [] { return 5; }), 5);
}

TEST(Memo, IsSharedByThreads) {
  Memo<int, int> doubles(8);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) wrong += doubles.get(i % 16, [&] { return i % 16 * 2; }) != i % 16 * 2;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tessera::base
