// Tables of published measurements.
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <string>
#include <vector>

#include "io/files.h"
#include "studies/paper/study.h"
#include "support/error_of.h"

namespace tessera::studies {
namespace {

class PublishedTest : public ::testing::Test {
 protected:
  /// A table of numbers, read.
  Published read(const std::string& text) const {
    folder_.write("table.csv", text);
    return {kFiles, folder_.path()};
  }
  std::string error(const std::string& text) const {
    return test::error_of([&] { (void)read(text).number("table.csv", "b", "tflops"); });
  }

  static inline const std::vector<PublishedFile> kFiles = {{"table.csv", ""}};
  test::TemporaryFolder folder_;
};

TEST_F(PublishedTest, HasNumbersByName) {
  const Published published = read("name,tflops\na,6.5\nb,\n");
  EXPECT_EQ(published.rows("table.csv").size(), 2U);
  EXPECT_EQ(published.number("table.csv", "a", "tflops"), 6.5);
  EXPECT_EQ(published.number("table.csv", "b", "tflops"), std::nullopt);
  EXPECT_NE(published.find("table.csv", "b"), nullptr);
  EXPECT_EQ(published.number("table.csv", "c", "tflops"), std::nullopt);
  EXPECT_EQ(published.find("table.csv", "c"), nullptr);
}

TEST_F(PublishedTest, AMissingTableHasNoRows) {
  EXPECT_TRUE(Published(kFiles, folder_.path()).rows("table.csv").empty());
}

TEST_F(PublishedTest, ErrorsNameFileLineAndField) {
  EXPECT_TRUE(test::says(error("name,tflops\na,6.5\nb,six\n"), "table.csv:3: 'six' of column 'tflops'"));
  EXPECT_TRUE(test::says(error("name,tflops\nb\n"), "table.csv:2: 1 fields of 2"));
  EXPECT_TRUE(test::says(error("name,gflops\nb,1\n"), "no column 'tflops'"));
  EXPECT_TRUE(test::says(error("type,tflops\nb,1\n"), "no column 'name'"));
}

TEST_F(PublishedTest, CommentsAreSkippedAndCounted) {
  EXPECT_TRUE(
      test::says(error("# from here\nname,tflops\n# and there\na,6.5\nb\n"), "table.csv:5: 1 fields of 2"));
}

TEST_F(PublishedTest, AFolderThatIsNoneIsRejected) {
  EXPECT_THROW(Published(kFiles, folder_.path() / "nowhere"), UsageError);
}

}  // namespace
}  // namespace tessera::studies
