// The published tables of `tessera reproduce butterfly`.
#include <gtest/gtest.h>
#include <tessera/error.h>

#include "studies/butterfly/study.h"

namespace tessera::studies::butterfly {
namespace {

TEST(ButterflyPublished, IsCommittedWithItsSource) {
  for (const base::EmbeddedFile& file : kPublishedTables)
    EXPECT_TRUE(file.content.starts_with("# Shekofteh et al. 2023")) << file.name;
  const Published published(kPublishedTables, "");
  EXPECT_EQ(published.number("table-2.csv", "IPU poplin", "gflops"), 44219);
  EXPECT_EQ(published.number("table-2.csv", "IPU naive", "gflops"), 525);
  EXPECT_EQ(published.number("table-1.csv", "TF32 peak", "gc200"), std::nullopt);
  EXPECT_EQ(published.number("table-1.csv", "weight", "gc200"), std::nullopt);
  EXPECT_EQ(published.number("table-4.csv", "butterfly", "ipu_seconds"), 37.73);
  EXPECT_EQ(published.rows("table-5.csv").size(), 3U);
  EXPECT_THROW(Published(kPublishedTables, "/nowhere"), UsageError);
}

}  // namespace
}  // namespace tessera::studies::butterfly
