// The thread that communicates while others work.
#include "engine/communication_thread.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <stdexcept>
#include <vector>

namespace tessera::engine {
namespace {

TEST(CommunicationThread, WorksInOrder) {
  std::vector<uint32_t> done;
  std::vector<std::future<void>> all;
  {
    CommunicationThread thread;
    for (uint32_t i = 0; i < 100; ++i) all.push_back(thread.submit([&done, i] { done.push_back(i); }));
    all[50].get();
  }
  ASSERT_EQ(done.size(), 100U);
  for (uint32_t i = 0; i < 100; ++i) EXPECT_EQ(done[i], i);
}

TEST(CommunicationThread, GivesErrorsToWhoWaits) {
  CommunicationThread thread;
  std::future<void> fails = thread.submit([] { throw std::runtime_error("lost"); });
  std::future<void> works = thread.submit([] {});
  EXPECT_THROW(fails.get(), std::runtime_error);
  EXPECT_NO_THROW(works.get());
}

TEST(CommunicationThread, NeedsNoThreadWithoutWork) { CommunicationThread thread; }

}  // namespace
}  // namespace tessera::engine
