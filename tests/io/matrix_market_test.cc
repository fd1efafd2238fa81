#include "io/matrix_market.h"

#include <gtest/gtest.h>

#include <cmath>

#include "io/files.h"
#include "sparse/pattern.h"
#include "support/error_of.h"

namespace tessera::io {
namespace {

using test::in_memory;

MatrixMarket read(const std::string& text) { return read_matrix_market(in_memory(text)); }

// Row-major, after "%%MatrixMarket matrix ".
std::vector<float> dense(const std::string& text) {
  const MatrixMarket market = read("%%MatrixMarket matrix " + text);
  sparse::validate(market.matrix);
  EXPECT_TRUE(market.has_values);
  return sparse::to_dense(market.matrix);
}

using Values = std::vector<float>;

TEST(MatrixMarket, Coordinates) {
  EXPECT_EQ(dense("coordinate real general\n% a comment\n\n%\n2 3 3\n2 3 -1.5e1\n1 1 .25\n2 1 +4\n"),
            (Values{0.25, 0, 0, 4, 0, -15}));
  EXPECT_EQ(dense("coordinate integer general\r\n2 2 1\r\n1 2 -7\r\n"), (Values{0, -7, 0, 0}));
  EXPECT_EQ(dense("coordinate double general\n1 1 1\n1 1 2"), (Values{2}));
  EXPECT_EQ(dense("coordinate real symmetric\n3 3 3\n1 1 1\n3 1 2\n3 2 3\n"),
            (Values{1, 0, 2, 0, 0, 3, 2, 3, 0}));
  EXPECT_EQ(dense("coordinate real skew-symmetric\n2 2 1\n2 1 5\n"), (Values{0, -5, 5, 0}));
}

TEST(MatrixMarket, Arrays) {
  EXPECT_EQ(dense("array real general\n2 3\n1\n2\n3\n4\n5\n6\n"), (Values{1, 3, 5, 2, 4, 6}));
  EXPECT_EQ(dense("array integer symmetric\n2 2\n1 2 3\n"), (Values{1, 2, 2, 3}));
  EXPECT_EQ(dense("array real skew-symmetric\n3 3\n1 2 3\n"), (Values{0, -1, -2, 1, 0, -3, 2, 3, 0}));
}

TEST(MatrixMarket, TheBannerIsCaseInsensitive) {
  EXPECT_EQ(read("%%MATRIXMARKET Matrix Coordinate Real General\n1 1 1\n1 1 3\n").matrix.values, (Values{3}));
}

TEST(MatrixMarket, PatternsHaveNoValues) {
  const MatrixMarket market = read("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 3\n");
  EXPECT_FALSE(market.has_values);
  EXPECT_TRUE(market.matrix.values.empty());
  EXPECT_EQ(market.matrix.pattern.crow_indices, (std::vector<uint64_t>{0, 1, 2, 3}));
  EXPECT_EQ(market.matrix.pattern.col_indices, (std::vector<uint32_t>{1, 0, 2}));
}

TEST(MatrixMarket, StoredZerosStayOnlyAsCoordinates) {
  EXPECT_EQ(read("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 0\n").matrix.pattern.blocks(),
            1u);
  EXPECT_EQ(read("%%MatrixMarket matrix array real general\n2 2\n0 1 0 0\n").matrix.pattern.blocks(), 1u);
}

TEST(MatrixMarket, TakesSpecialValues) {
  const auto values = read(
                          "%%MatrixMarket matrix coordinate real general\n1 4 4\n1 1 nan\n1 2 "
                          "inf\n1 3 -Infinity\n1 4 1e-300\n")
                          .matrix.values;
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(values[1], INFINITY);
  EXPECT_EQ(values[2], -INFINITY);
  EXPECT_EQ(values[3], 0);
}

TEST(MatrixMarket, TakesEmptyMatrices) {
  EXPECT_EQ(dense("coordinate real general\n0 5 0\n"), Values{});
  EXPECT_EQ(dense("coordinate real general\n2 1 0"), (Values{0, 0}));
  EXPECT_EQ(dense("array real symmetric\n0 0\n"), Values{});
}

TEST(MatrixMarket, SaysWhatIsWrong) {
  struct Case {
    const char* text;
    const char* message;
  };
  constexpr Case kCases[] = {
      {"matrix coordinate complex general\n1 1 1\n1 1 1 1\n", "line 1: complex numbers"},
      {"matrix coordinate real hermitian\n1 1 1\n1 1 1\n", "line 1: a hermitian matrix is complex"},
      {"matrix coordinate pattern skew-symmetric\n", "a skew-symmetric pattern"},
      {"matrix array pattern general\n1 1\n", "an array with field pattern"},
      {"matrix coordinate text general\n", "field \"text\""},
      {"matrix coordinate real round\n", "symmetry \"round\""},
      {"matrix list real general\n", "format \"list\""},
      {"vector coordinate real general\n", "it must be \"%%MatrixMarket matrix\""},
      {"matrix coordinate real\n", "it must be \"%%MatrixMarket matrix\""},
      {"matrix coordinate real general\n", "number of rows: a whole number"},
      {"matrix coordinate real general\n2 2 1 7\n1 1 1\n", "sizes: the end of the line"},
      {"matrix coordinate real general\n% x\n2 2 1\n3 1 1\n", "w: line 4: row: a whole number up to 2"},
      {"matrix coordinate real general\n2 2 1\n1 0 1\n",
       "line 3: entry (1, 0); rows and columns count from 1"},
      {"matrix coordinate real general\n2 2 1\n1 1 x\n",
       "line 3: value: a number in the range of FP32 was expected, and there is \"x\""},
      {"matrix coordinate real general\n2 2 1\n1 1 +-5\n", "and there is \"+-5\""},
      {"matrix coordinate real general\n2 2 1\n1 1 1e39\n", "and there is \"1e39\""},
      {"matrix coordinate real general\n2 2 1\n1 1 1e9999999\n", "\"1e9999999\""},
      {"matrix coordinate integer general\n2 2 1\n1 1 1.5\n",
       "value: a whole number was expected, and there is \"1.5\""},
      {"matrix coordinate pattern general\n2 2 1\n1 1 1\n", "entry: the end of the line"},
      {"matrix coordinate real general\n2 2 1\n1 1 1 2\n", "line 3: entry: the end of the line"},
      {"matrix coordinate real general\n2 2 1\n1 1 1\n2 2 2\n", "after the last entry: the end of the file"},
      {"matrix coordinate real general\n2 2 2\n1 1 1\n1 1 2\n", "in block row 0 column 0 comes after 0"},
      {"matrix coordinate real general\n2 2 2\n1 1 1\n", "the end of the file"},
      {"matrix coordinate real general\n2 2 5\n1 1 1\n", "5 non-zeros do not fit"},
      {"matrix coordinate real symmetric\n2 3 1\n1 1 1\n", "it must be square"},
      {"matrix coordinate real symmetric\n2 2 1\n1 2 1\n", "entry (1, 2); a symmetric matrix is given by"},
      {"matrix coordinate real skew-symmetric\n2 2 1\n1 1 1\n", "entry (1, 1); a skew-symmetric"},
      {"matrix coordinate real general\n1000000 1000000 1000000000000\n1 1 1\n",
       "announces 1000000000000 entries"},
      {"matrix coordinate real general\n2147483647 2147483647 1\n1 1 1\n", "with only 1 non-zeros"},
      {"matrix array real general\n9000000000000000000 2\n", "at most 2147483647"},
      {"matrix array real general\n2147483647 2147483647\n1\n", "it may be truncated"},
      {"matrix array real general\n2 2\n1\n2\n3\n", "value: a number"},
  };
  for (const Case& c : kCases) {
    EXPECT_ERROR(c.message, read(std::string("%%MatrixMarket ") + c.text)) << c.text;
  }
  EXPECT_ERROR("line 1 is \"1 1 1\"", read("1 1 1\n"));
  EXPECT_ERROR("line 1 is \"\"", read(""));
}

}  // namespace
}  // namespace tessera::io
