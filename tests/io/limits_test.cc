// Limits on the sizes of matrices in files, at their boundaries.
#include "io/limits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "io/files.h"
#include "io/gzip.h"
#include "io/npy.h"
#include "sparse/pattern.h"
#include "support/error_of.h"
#include "support/gzipped.h"

namespace tessera::io {
namespace {

using test::error_of;
using test::says;

constexpr uint64_t kSide = sparse::kMaxDimension;
constexpr uint64_t kFree = uint64_t{1} << 22;

std::string sizes_error(uint64_t rows, uint64_t cols, uint64_t non_zeros) {
  return error_of([&] { require_sane_sizes("file", rows, cols, non_zeros); });
}

TEST(Limits, OfSides) {
  EXPECT_EQ(error_of([] { require_sane_sides("file", kSide, kSide); }), "(no error)");
  EXPECT_ERROR("2147483648 x 1", require_sane_sides("file", kSide + 1, 1));
  EXPECT_ERROR("at most 2147483647", require_sane_sides("file", 1, kSide + 1));
  EXPECT_TRUE(says(sizes_error(kSide + 1, 1, kSide + 1), "at most 2147483647"));
}

TEST(Limits, OfNonZeros) {
  EXPECT_EQ(sizes_error(7, 9, 63), "(no error)");
  EXPECT_TRUE(says(sizes_error(7, 9, 64), "64 non-zeros do not fit into a matrix of 7 x 9"));
  EXPECT_TRUE(says(sizes_error(0, 9, 1), "1 non-zeros do not fit"));
}

/// More than 2^22 rows or columns need at least the same number of non-zeros.
TEST(Limits, OfEmptyRows) {
  EXPECT_EQ(sizes_error(kFree, kFree, 0), "(no error)");
  EXPECT_TRUE(says(sizes_error(kFree + 1, 1, 0), "above 4194304 rows or columns"));
  EXPECT_TRUE(says(sizes_error(1, kFree + 1, kFree), "with only 4194304 non-zeros"));
  EXPECT_EQ(sizes_error(kFree + 1, 1, kFree + 1), "(no error)");
  EXPECT_EQ(sizes_error(1, kFree + 1, kFree + 1), "(no error)");
}

/// A file may have as many bytes as it decompresses to, and no more.
TEST(Limits, OfDecompressedBytes) {
  const std::string content(1000, 'a');
  const std::string compressed = test::gzipped(content);
  EXPECT_EQ(read_decompressed(test::in_memory(content), 1000).size(), 1000U);
  EXPECT_EQ(read_decompressed(test::in_memory(compressed), 1000).size(), 1000U);
  EXPECT_ERROR("1000 bytes are more", read_decompressed(test::in_memory(content), 999));
  EXPECT_ERROR("decompresses to more than 999 bytes", read_decompressed(test::in_memory(compressed), 999));
}

/// Numbers up to the middle between the greatest of FP32 and the next power of two are rounded to the former.
TEST(Limits, OfNumbersInFloat32) {
  const auto read = [](double value) {
    std::string header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1), }";
    header.resize(118, ' ');
    header.back() = '\n';
    const std::string file = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + test::bytes_of(value);
    return read_npy(test::in_memory(file)).values.at(0);
  };
  const double middle = 0x1.ffffffp127;
  EXPECT_EQ(read(std::nextafter(middle, 0)), 0x1.fffffep127F);
  EXPECT_EQ(read(-std::nextafter(middle, 0)), -0x1.fffffep127F);
  EXPECT_ERROR("which FP32 cannot hold", read(middle));
  EXPECT_ERROR("which FP32 cannot hold", read(-middle));
}

}  // namespace
}  // namespace tessera::io
