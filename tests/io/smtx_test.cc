#include "io/smtx.h"

#include <gtest/gtest.h>

#include "io/files.h"
#include "sparse/pattern.h"
#include "support/error_of.h"

namespace tessera::io {
namespace {

using test::error_of;
using test::in_memory;
using test::says;

Pattern read(const std::string& text) { return read_smtx(in_memory(text)); }

TEST(Smtx, ReadsAPattern) {
  const Pattern p = read("3, 5, 4\n0 2 2 4\n1 4 0 3\n");
  sparse::validate(p);
  EXPECT_EQ(p.rows, 3u);
  EXPECT_EQ(p.cols, 5u);
  EXPECT_EQ(p.crow_indices, (std::vector<uint64_t>{0, 2, 2, 4}));
  EXPECT_EQ(p.col_indices, (std::vector<uint32_t>{1, 4, 0, 3}));
}

TEST(Smtx, TakesAnySpacingAndOrderOfColumns) {
  const Pattern expected = read("3, 5, 4\n0 2 2 4\n1 4 0 3\n");
  for (const char* text : {"3,5,4\r\n0,2,2,4\r\n4,1,3,0", "3 5 4\n0\n2\n2\n4\n1\n4\n3\n0\n\n",
                           "  3, 5, 4  \n 0 2\t2 4 \n 1 4 0 3 "}) {
    const Pattern p = read(text);
    EXPECT_EQ(p.crow_indices, expected.crow_indices) << text;
    EXPECT_EQ(p.col_indices, expected.col_indices) << text;
  }
}

TEST(Smtx, TakesEmptyMatrices) {
  for (const char* text : {"0, 0, 0\n0\n\n", "0, 7, 0\n0\n", "2, 0, 0\n0 0 0\n\n"}) {
    const Pattern p = read(text);
    sparse::validate(p);
    EXPECT_EQ(p.blocks(), 0u);
  }
}

TEST(Smtx, SaysWhatIsWrong) {
  struct Case {
    const char* text;
    const char* message;
  };
  constexpr Case kCases[] = {
      {"", "w: line 1: number of rows: a whole number"},
      {"3, 5",
       "line 1: number of non-zeros: a whole number up to 18446744073709551615 was "
       "expected, and there is the end of the file"},
      {"x, 5, 4\n", "there is \"x\""},
      {"-3, 5, 4\n", "there is \"-3\""},
      {"3.5, 5, 4\n", "there is \"3.5\""},
      {"3, 5, 4, 6\n0 2 2 4\n1 4 0 3\n", "sizes: the end of the line was expected"},
      {"3, 5, 16\n0 2 2 4\n1 4 0 3\n", "16 non-zeros do not fit into a matrix of 3 x 5"},
      {"3, 5, 4\n0 2 2 4\n1 4 0\n", "line 4: column index: a whole number up to 4 was expected"},
      {"3, 5, 4\n0 2 2", "it may be truncated"},
      {"3, 5, 4\n0 2 2 4\n1 5 0 3\n",
       "line 3: column index: a whole number up to 4 was expected, "
       "and there is \"5\""},
      {"3, 5, 4\n0 2 1 4\n1 4 0 3\n", "the offset of row 2 is 1, less than the one before, 2"},
      {"3, 5, 4\n0 2 2 5\n1 4 0 3\n", "line 2: row offset: a whole number up to 4"},
      {"3, 5, 4\n0 2 2 3\n1 4 0 3\n", "row offsets go from 0 to 3"},
      {"3, 5, 4\n1 2 2 4\n1 4 0 3\n", "row offsets go from 1 to 4"},
      {"3, 5, 4\n0 2 2 4\n1 1 0 3\n", "row 0 has column 1 twice"},
      {"3, 5, 4\n0 2 2 4\n1 4 0 3 2\n", "line 3: after the last column index: the end of the file"},
      {"3, 5, 4\n0 2 2 4\n1 4 0 99999999999999999999\n", "\"99999999999999999999\""},
      {"1000000000000000000, 1, 0\n0\n", "each side may have at most 2147483647"},
      {"4096, 4096, 1000000\n0 1\n", "announces 4096 x 4096 with 1000000 non-zeros"},
      {"2147483647, 2147483647, 1000000000000000000\n0 1\n", "it may be truncated"},
      {"2147483647, 1, 0\n0 1\n", "with only 0 non-zeros"},
  };
  for (const Case& c : kCases) {
    EXPECT_ERROR(c.message, read(c.text)) << c.text;
  }
}

TEST(Smtx, MessagesQuoteOnlyPrintableExcerpts) {
  const std::string message = error_of([] { read(std::string(1000, '\x01')); });
  EXPECT_TRUE(says(message, "\"????"));
  EXPECT_LT(message.size(), 250u);
}

}  // namespace
}  // namespace tessera::io
