// Tables of published measurements.
#include "report/published.h"

#include <gtest/gtest.h>
#include <tessera/error.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tessera::report {
namespace {

class PublishedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("tessera_published_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void file(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }

  std::filesystem::path folder_;
};

TEST_F(PublishedTest, ReadsTables) {
  file("static-vs-dense-bow-fp16.csv",
       "block,inv_density,m_eq_k,n,speedup\n1,4,4096,256,0.272\n1,4,4096,1024,\n");
  file("dense-bow.csv", "type,m_eq_k,n,tflops\nFP32,1024,8,6.5\n");
  const auto ratios = read_ratios(folder_);
  ASSERT_EQ(ratios.size(), 2U);
  EXPECT_EQ(ratios[0].speedup, 0.272);
  EXPECT_EQ(ratios[1].n, 1024U);
  EXPECT_FALSE(ratios[1].speedup);
  const auto dense = read_dense(folder_);
  ASSERT_EQ(dense.size(), 1U);
  EXPECT_EQ(dense[0].type, Type::f32);
  EXPECT_EQ(dense[0].tflops, 6.5);
}

TEST_F(PublishedTest, AMissingTableHasNoRows) {
  EXPECT_TRUE(read_ratios(folder_).empty());
  EXPECT_TRUE(read_dense(folder_).empty());
}

TEST_F(PublishedTest, ErrorsNameFileLineAndField) {
  const auto message = [&] {
    try {
      (void)read_dense(folder_);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  file("dense-bow.csv", "type,m_eq_k,n,tflops\nFP16,1024,8,6.5\nFP16,1024,eight,6.5\n");
  EXPECT_NE(message().find("dense-bow.csv:3: 'eight' of column 'n'"), std::string::npos) << message();
  file("dense-bow.csv", "type,m_eq_k,n,tflops\nFP8,1024,8,6.5\n");
  EXPECT_NE(message().find("dense-bow.csv:2: type 'FP8'"), std::string::npos) << message();
  file("dense-bow.csv", "type,m_eq_k,n,tflops\nFP16,1024,8\n");
  EXPECT_NE(message().find("dense-bow.csv:2: 3 fields of 4"), std::string::npos) << message();
  file("dense-bow.csv", "type,m_eq_k,tflops\nFP16,1024,8\n");
  EXPECT_NE(message().find("no column 'n'"), std::string::npos) << message();
}

TEST_F(PublishedTest, TheFolderIsGivenOrBesideOtherData) {
  EXPECT_EQ(published_folder(folder_.string()), folder_);
  EXPECT_THROW(published_folder((folder_ / "nowhere").string()), UsageError);
  setenv("TESSERA_DATA", folder_.c_str(), 1);
  EXPECT_TRUE(published_folder("").empty());
  std::filesystem::create_directory(folder_ / "published");
  EXPECT_EQ(published_folder(""), folder_ / "published");
  unsetenv("TESSERA_DATA");
  EXPECT_TRUE(published_folder("").empty());
}

}  // namespace
}  // namespace tessera::report
