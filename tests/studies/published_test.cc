// Tables of published measurements.
#include "studies/popsparse/published.h"

#include <gtest/gtest.h>
#include <tessera/error.h>

#include <algorithm>
#include <string>

#include "io/files.h"
#include "support/error_of.h"

namespace tessera::studies::popsparse {
namespace {

class PublishedTest : public ::testing::Test {
 protected:
  void file(const std::string& name, const std::string& text) const { folder_.write(name, text); }
  std::string error() const {
    return test::error_of([&] { (void)read_dense(folder_.path()); });
  }

  test::TemporaryFolder folder_;
};

TEST_F(PublishedTest, ReadsTables) {
  file("static-vs-dense-bow-fp16.csv",
       "block,inv_density,m_eq_k,n,speedup\n1,4,4096,256,0.272\n1,4,4096,1024,\n");
  file("dense-bow.csv", "type,m_eq_k,n,tflops\nFP32,1024,8,6.5\n");
  const auto ratios = read_ratios(folder_.path());
  ASSERT_EQ(ratios.size(), 2U);
  EXPECT_EQ(ratios[0].speedup, 0.272);
  EXPECT_EQ(ratios[1].n, 1024U);
  EXPECT_FALSE(ratios[1].speedup);
  const auto dense = read_dense(folder_.path());
  ASSERT_EQ(dense.size(), 1U);
  EXPECT_EQ(dense[0].type, Type::f32);
  EXPECT_EQ(dense[0].tflops, 6.5);
}

TEST_F(PublishedTest, AMissingTableHasNoRows) {
  EXPECT_TRUE(read_ratios(folder_.path()).empty());
  EXPECT_TRUE(read_dense(folder_.path()).empty());
}

TEST_F(PublishedTest, ErrorsNameFileLineAndField) {
  file("dense-bow.csv", "type,m_eq_k,n,tflops\nFP16,1024,8,6.5\nFP16,1024,eight,6.5\n");
  EXPECT_TRUE(test::says(error(), "dense-bow.csv:3: 'eight' of column 'n'"));
  file("dense-bow.csv", "type,m_eq_k,n,tflops\nFP8,1024,8,6.5\n");
  EXPECT_TRUE(test::says(error(), "dense-bow.csv:2: type 'FP8'"));
  file("dense-bow.csv", "type,m_eq_k,n,tflops\nFP16,1024,8\n");
  EXPECT_TRUE(test::says(error(), "dense-bow.csv:2: 3 fields of 4"));
  file("dense-bow.csv", "type,m_eq_k,tflops\nFP16,1024,8\n");
  EXPECT_TRUE(test::says(error(), "no column 'n'"));
}

TEST_F(PublishedTest, CommentsAreSkippedAndCounted) {
  file("dense-bow.csv", "# from here\ntype,m_eq_k,n,tflops\n# and there\nFP16,1024,8,6.5\nFP16,1024,8\n");
  EXPECT_TRUE(test::says(error(), "dense-bow.csv:5: 3 fields of 4"));
}

TEST_F(PublishedTest, AFolderThatIsNoneIsRejected) {
  EXPECT_THROW(read_dense(folder_.path() / "nowhere"), UsageError);
  EXPECT_THROW(read_ratios(folder_.path() / "nowhere"), UsageError);
}

// Figures 2 and 7 as committed: how many there are, and some of them.
TEST(PublishedTables, AreCommitted) {
  const auto dense = read_dense();
  EXPECT_EQ(dense.size(), 41U);
  EXPECT_TRUE(std::any_of(dense.begin(), dense.end(), [](const DenseCell& c) {
    return c.type == Type::f16 && c.size == 1024 && c.n == 256 && c.tflops == 88.9;
  }));
  const auto ratios = read_ratios();
  EXPECT_EQ(ratios.size(), 160U);
  EXPECT_EQ(std::count_if(ratios.begin(), ratios.end(), [](const RatioCell& c) { return !c.speedup; }), 1);
  EXPECT_EQ(ratios.front().speedup, 0.923);
}

}  // namespace
}  // namespace tessera::studies::popsparse
