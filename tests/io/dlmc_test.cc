// Real layers of the Deep Learning Matrix Collection, if $TESSERA_DATA has them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "io/smtx.h"
#include "sparse/pattern.h"

namespace tessera::io {
namespace {

std::vector<std::filesystem::path> layers() {
  std::vector<std::filesystem::path> paths;
  const char* data = std::getenv("TESSERA_DATA");
  if (data == nullptr || !std::filesystem::is_directory(std::filesystem::path(data) / "dlmc")) {
    return paths;
  }
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::filesystem::path(data) / "dlmc")) {
    if (entry.path().extension() == ".smtx") paths.push_back(entry.path());
  }
  return paths;
}

// A straightforward reader of the format, to compare with.
Pattern read_plainly(const std::filesystem::path& path) {
  std::ifstream file(path);
  Pattern p;
  char comma = 0;
  uint64_t non_zeros = 0;
  file >> p.rows >> comma >> p.cols >> comma >> non_zeros;
  p.crow_indices.resize(size_t{p.rows} + 1);
  for (uint64_t& begin : p.crow_indices) file >> begin;
  p.col_indices.resize(non_zeros);
  for (uint32_t& column : p.col_indices) file >> column;
  EXPECT_TRUE(file.good() || file.eof());
  for (size_t r = 0; r < p.rows; ++r) {
    std::sort(p.col_indices.begin() + static_cast<ptrdiff_t>(p.crow_indices[r]),
              p.col_indices.begin() + static_cast<ptrdiff_t>(p.crow_indices[r + 1]));
  }
  return p;
}

TEST(Dlmc, EveryLayerIsReadRight) {
  const auto paths = layers();
  if (paths.empty()) GTEST_SKIP() << "TESSERA_DATA names no folder with dlmc/ in it";
  for (const auto& path : paths) {
    SCOPED_TRACE(path);
    const Pattern p = read_smtx(Source::open(path));
    sparse::validate(p);
    const Pattern expected = read_plainly(path);
    EXPECT_EQ(p.rows, expected.rows);
    EXPECT_EQ(p.cols, expected.cols);
    EXPECT_EQ(p.crow_indices, expected.crow_indices);
    EXPECT_EQ(p.col_indices, expected.col_indices);
    // The folder is named for the sparsity; variational dropout only approximates it.
    const double sparsity = std::stod(path.parent_path().filename());
    const bool aims = path.string().find("variational") != std::string::npos;
    EXPECT_NEAR(sparse::density(p), 1 - sparsity, aims ? 0.1 : 1e-4);
  }
}

}  // namespace
}  // namespace tessera::io
