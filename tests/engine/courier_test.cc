// The thread that works beside others.
#include "engine/courier.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <stdexcept>
#include <vector>

namespace tessera::engine {
namespace {

TEST(Courier, WorksInOrder) {
  std::vector<uint32_t> done;
  std::vector<std::future<void>> all;
  {
    Courier courier;
    for (uint32_t i = 0; i < 100; ++i) all.push_back(courier.send([&done, i] { done.push_back(i); }));
    all[50].get();
  }
  ASSERT_EQ(done.size(), 100U);
  for (uint32_t i = 0; i < 100; ++i) EXPECT_EQ(done[i], i);
}

TEST(Courier, GivesErrorsToWhoWaits) {
  Courier courier;
  std::future<void> fails = courier.send([] { throw std::runtime_error("lost"); });
  std::future<void> works = courier.send([] {});
  EXPECT_THROW(fails.get(), std::runtime_error);
  EXPECT_NO_THROW(works.get());
}

TEST(Courier, NeedsNoThreadWithoutWork) { Courier courier; }

}  // namespace
}  // namespace tessera::engine
