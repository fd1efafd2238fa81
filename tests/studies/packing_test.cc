// The study of sequence packing, on a small histogram.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "studies/packing/study.h"

namespace tessera::studies::packing {
namespace {

class PackingStudyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("tessera_packing_study_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "lengths.csv") << "length,count\n1,20\n2,30\n3,9\n5,14\n7,6\n8,4\n";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Study study(const std::string& name, std::vector<uint32_t> depths) const {
    return reproduce({name, "lengths.csv", 8, std::move(depths)}, folder_.string(), 0,
                     [](const std::string&) {});
  }

  std::filesystem::path folder_;
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
  try {
    (void)reproduce({"ours", "nowhere.csv", 8, {1}}, folder_.string(), 0, [](const std::string&) {});
    FAIL() << "a file that is not there was read";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("nowhere.csv"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tessera::studies::packing
