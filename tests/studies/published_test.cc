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
    return test::error_of([&] { (void)read(text); });
  }

  static inline const std::vector<base::EmbeddedFile> kFiles = {
      {"table.csv", "name,tflops,remark\na,6,read off\nb,,\n"}};
  test::TemporaryFolder folder_;
};

TEST_F(PublishedTest, HasNumbersByName) {
  const Published published = read("name,tflops,remark\na,6.5,\nb,,none\n");
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

// Before anything is shown, or runs.
TEST_F(PublishedTest, ErrorsNameFileLineAndField) {
  EXPECT_TRUE(test::says(error("name,tflops,remark\na,6.5,\nb,six,\n"),
                         "table.csv:3: 'six' of column 'tflops' is not a number"));
  EXPECT_TRUE(test::says(error("name,tflops,remark\nb\n"), "table.csv:2: 1 fields of 3"));
  EXPECT_TRUE(test::says(error("name,gflops,remark\nb,1,\n"), "table.csv:1: there is no column 'tflops'"));
  EXPECT_TRUE(test::says(error("type,tflops,remark\nb,1,\n"), "no column 'name'"));
  EXPECT_TRUE(test::says(error("name,tflops,remark\na,1,\nc,1,\n"),
                         "table.csv:3: nothing of ours is named 'c'; names are such as 'a'"));
}

TEST_F(PublishedTest, APaperKnowsMoreRowsThanItPublished) {
  folder_.write("table.csv", "name,tflops,remark\nc,1,\n");
  const auto has_row = [](std::string_view table, const std::string& name) {
    return table == "table.csv" && name == "c";
  };
  EXPECT_EQ(Published(kFiles, folder_.path(), has_row).number("table.csv", "c", "tflops"), 1);
}

TEST_F(PublishedTest, CommentsAreSkippedAndCounted) {
  EXPECT_TRUE(test::says(error("# from here\nname,tflops,remark\n# and there\na,6.5,\nb\n"),
                         "table.csv:5: 1 fields of 3"));
}

TEST_F(PublishedTest, AFolderThatIsNoneIsRejected) {
  EXPECT_THROW(Published(kFiles, folder_.path() / "nowhere"), UsageError);
}

}  // namespace
}  // namespace tessera::studies
