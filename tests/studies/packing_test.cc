// The study of sequence packing, on a small histogram.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "io/files.h"
#include "studies/packing/study.h"
#include "support/error_of.h"

namespace tessera::studies::packing {
namespace {

class PackingStudyTest : public ::testing::Test {
 protected:
  PackingStudyTest() { folder_.write("lengths.csv", "length,count\n1,20\n2,30\n3,9\n5,14\n7,6\n8,4\n"); }

  Study study(const std::string& name, std::vector<uint32_t> depths) const {
    return reproduce({name, "lengths.csv", 8, std::move(depths)}, folder_.path().string(), 0,
                     [](const std::string&) {});
  }

  test::TemporaryFolder folder_;
};

TEST_F(PackingStudyTest, EveryAlgorithmRunsAtEveryDepth) {
  const Study s = study("ours", {1, 2, 3, 0});
  std::vector<std::string> rows;
  for (const Reproduced& row : s.rows)
    rows.push_back(row.ours.algorithm + " " + std::to_string(row.ours.max_per_pack));
  const std::vector<std::string> expected = {"none 1",  "spfhp 2", "lpfhp 2",  "best 2",
                                             "spfhp 3", "lpfhp 3", "nnlshp 3", "best 3",
                                             "spfhp 0", "lpfhp 0", "best 0"};
  EXPECT_EQ(rows, expected);
  EXPECT_EQ(s.rows.front().ours.packs, 83U);  // a sequence each
  for (const Reproduced& row : s.rows) {
    EXPECT_GE(row.ours.packs, row.ours.lower_bound) << row.ours.algorithm;
    EXPECT_EQ(row.ours.sequences, 83U);
    EXPECT_FALSE(row.published) << "no such table was published";
  }
}

TEST_F(PackingStudyTest, RowsOfADepthShareTheBestBound) {
  const Study s = study("ours", {2});
  for (const Reproduced& row : s.rows) EXPECT_EQ(row.ours.lower_bound, s.rows.back().ours.lower_bound);
}

TEST_F(PackingStudyTest, PublishedRowsStandBeside) {
  const Study s = study("Wikipedia", {3});
  const auto row_of = [&](const std::string& algorithm) {
    return *std::find_if(s.rows.begin(), s.rows.end(),
                         [&](const Reproduced& row) { return row.ours.algorithm == algorithm; });
  };
  ASSERT_TRUE(row_of("spfhp").published);
  EXPECT_EQ(row_of("spfhp").published->packs, 9.095e6);
  EXPECT_EQ(row_of("nnlshp").published->speedup, 1.913);
  EXPECT_FALSE(row_of("best").published);
  const auto all = nlohmann::json::parse(json({s}));
  EXPECT_EQ(all["results"].size(), 4U);
  EXPECT_EQ(all["results"][0]["published"]["efficiency"], .8944);
  EXPECT_TRUE(all["results"][3]["published"].is_null());
  EXPECT_NE(csv({s}).find("Wikipedia,3,spfhp,"), std::string::npos);
  EXPECT_NE(text(s).find("1.790"), std::string::npos);
}

TEST_F(PackingStudyTest, AMissingFileIsNamed) {
  const auto read = [&] {
    (void)reproduce({"ours", "nowhere.csv", 8, {1}}, folder_.path().string(), 0, [](const std::string&) {});
  };
  EXPECT_TRUE(test::says(test::error_of(read), "nowhere.csv"));
}

}  // namespace
}  // namespace tessera::studies::packing
