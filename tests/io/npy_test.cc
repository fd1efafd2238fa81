#include "io/npy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "io/files.h"
#include "sparse/generate.h"
#include "sparse/pattern.h"
#include "support/error_of.h"

namespace tessera::io {
namespace {

using test::bytes_of;
using test::in_memory;

std::string with_header(const std::string& dictionary, const std::string& data, char version = 1) {
  std::string text = "\x93NUMPY";
  text +=
      {version, '\0', static_cast<char>(dictionary.size() & 0xFF), static_cast<char>(dictionary.size() >> 8)};
  if (version > 1) text += std::string(2, '\0');
  return text + dictionary + data;
}

std::string header(const std::string& descr, const std::string& shape, bool fortran = false) {
  return "{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + shape + ", }\n";
}

std::vector<float> read_dense_values(const std::string& file) {
  const SparseMatrix m = read_npy(in_memory(file));
  sparse::validate(m);
  return sparse::to_dense(m);
}

template <class T>
std::string data_of(std::initializer_list<T> values, bool swap = false) {
  std::string text;
  for (T value : values) {
    std::string bytes = bytes_of(value);
    if (swap) std::reverse(bytes.begin(), bytes.end());
    text += bytes;
  }
  return text;
}

using Values = std::vector<float>;

template <class T>
void expect_both_orders(const std::string& code, std::initializer_list<T> values, const Values& expected) {
  EXPECT_EQ(read_dense_values(with_header(header("<" + code, "(2, 2)"), data_of(values))), expected) << code;
  EXPECT_EQ(read_dense_values(with_header(header(">" + code, "(2, 2)"), data_of(values, true))), expected)
      << code;
}

TEST(Npy, ReadsEveryTypeInBothByteOrders) {
  expect_both_orders<float>("f4", {1.5F, 0, -2, 3}, {1.5, 0, -2, 3});
  expect_both_orders<double>("f8", {1.5, 0, -2, 0.1}, {1.5, 0, -2, 0.1F});
  expect_both_orders<base::Half>(
      "f2", {base::to_half(1.5F), base::to_half(0), base::to_half(-2), base::to_half(0x1p-24F)},
      {1.5, 0, -2, 0x1p-24F});
  expect_both_orders<int8_t>("i1", {-128, 0, 1, 127}, {-128, 0, 1, 127});
  expect_both_orders<uint8_t>("u1", {255, 0, 1, 127}, {255, 0, 1, 127});
  expect_both_orders<int16_t>("i2", {-32768, 0, 1, 2}, {-32768, 0, 1, 2});
  expect_both_orders<uint16_t>("u2", {65535, 0, 1, 2}, {65535, 0, 1, 2});
  expect_both_orders<int32_t>("i4", {-70000, 0, 1, 2}, {-70000, 0, 1, 2});
  expect_both_orders<uint32_t>("u4", {4294967295U, 0, 1, 2}, {4294967296.0F, 0, 1, 2});
  expect_both_orders<int64_t>("i8", {-(int64_t{1} << 40), 0, 1, 2}, {-0x1p40F, 0, 1, 2});
  expect_both_orders<uint64_t>("u8", {uint64_t{1} << 63, 0, 1, 2}, {0x1p63F, 0, 1, 2});
  EXPECT_EQ(read_dense_values(with_header(header("|b1", "(2, 2)"), std::string("\1\0\0\1", 4))),
            (Values{1, 0, 0, 1}));
}

TEST(Npy, ReadsEveryVersionAndBothOrders) {
  const std::string data = data_of<float>({1, 2, 3, 4, 5, 6});
  for (char version : {1, 2, 3}) {
    EXPECT_EQ(read_dense_values(with_header(header("<f4", "(2, 3)"), data, version)),
              (Values{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(read_dense_values(with_header(header("<f4", "(2, 3)", true), data, version)),
              (Values{1, 3, 5, 2, 4, 6}));
  }
}

TEST(Npy, TakesAnySpellingOfTheHeader) {
  const std::string data = data_of<float>({1, 2});
  for (const char* dictionary :
       {"{'shape':(1,2),'fortran_order':False,'descr':'<f4'}",
        "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (1, 2, ) , }      \n"}) {
    EXPECT_EQ(read_dense_values(with_header(dictionary, data)), (Values{1, 2}));
  }
}

TEST(Npy, KeepsNanAndInfinityAndDropsZeros) {
  const SparseMatrix m = read_npy(
      in_memory(with_header(header("<f8", "(1, 5)"), data_of<double>({0, -0.0, NAN, -INFINITY, 1e-300}))));
  EXPECT_EQ(m.pattern.col_indices, (std::vector<uint32_t>{2, 3}));
  EXPECT_TRUE(std::isnan(m.values[0]));
  EXPECT_EQ(m.values[1], -INFINITY);
}

TEST(Npy, TakesEmptyArrays) {
  for (const char* shape : {"(0, 0)", "(0, 9)", "(9, 0)"}) {
    for (bool fortran : {false, true}) {
      EXPECT_EQ(read_dense_values(with_header(header("<f4", shape, fortran), "")), Values{});
    }
  }
}

TEST(Npy, SaysWhatIsWrong) {
  struct Case {
    std::string file;
    const char* message;
  };
  const std::string eight(8, 'x');
  const Case cases[] = {
      {"", "not a .npy file"},
      {"PK\x03\x04 something else", "not a .npy file"},
      {with_header(header("<f4", "(1, 2)"), eight, 4), "version 4; versions 1 to 3"},
      {with_header(header("<f4", "(1, 2)"), eight).substr(0, 30), "it may be truncated"},
      {"\x93NUMPY\x02" + std::string(1, '\0') + "\xff\xff\xff\xff", "a header of 4294967295 bytes"},
      {with_header(header("<f4", "(1, 2)"), "xxx"), "1 x 2 elements of 4 bytes, and the file has only 3"},
      {with_header(header("<f4", "(1, 2)"), eight + "x"), "1 bytes follow the array"},
      {with_header(header("<c8", "(1, 1)"), eight), "elements of type \"<c8\""},
      {with_header(header("|O", "(1, 1)"), eight), "elements of type \"|O\""},
      {with_header(header("", "(1, 1)"), eight), "elements of type \"\""},
      {with_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1, 1)}", eight), "records"},
      {with_header(header("<f4", "(2,)"), eight), "an array of 1 dimension; a weight matrix has 2"},
      {with_header(header("<f4", "()"), eight), "an array of 0 dimensions"},
      {with_header(header("<f4", "(1, 1, 2)"), eight), "an array of 3 dimensions"},
      {with_header(header("<f4", "(1000000000000000000, 1000000000000000000)"), eight), "at most 2147483647"},
      {with_header(header("<f4", "(2147483647, 2147483647)"), eight), "it may be truncated"},
      {with_header(header("<f4", "(2147483647, 0)"), ""), "with only 0 non-zeros"},
      {with_header(header("<f4", "(99999999999999999999, 1)"), eight), "malformed: a size"},
      {with_header(header("<f4", "(-1, 1)"), eight), "malformed: a size"},
      {with_header("{'descr': '<f4', 'shape': (1, 2)}", eight), "lacks one of"},
      {with_header("{'descr': '<f4', 'descr': '<f4'}", eight), "unknown or repeated key \"descr\""},
      {with_header("{'descr': '<f4', 'colour': 'red'}", eight), "unknown or repeated key \"colour\""},
      {with_header("{'descr': '<f4', 'fortran_order': Maybe}", eight), "True or False was expected"},
      {with_header("{'descr': '<f4", eight.substr(0, 0)), "a closing quote"},
      {with_header("{'descr' '<f4'}", eight), "':' was expected"},
      {with_header(header("<f4", "(1, 2)") + "}", eight), "nothing was expected"},
      {with_header(header("<f8", "(1, 1)"), data_of<double>({1e39})),
       "element 0 is 1e+39, which FP32 cannot hold"},
  };
  for (const Case& c : cases) {
    EXPECT_ERROR(c.message, read_npy(in_memory(c.file)));
  }
}

TEST(Npy, WritesWhatItReads) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("w.npy");
  // More than one piece of the reader, with rows across its borders.
  const SparseMatrix m = generate({PatternKind::random, 301, 1007, 0.3, 1, 1});
  write_npy(path, 301, 1007, sparse::to_dense(m));
  const SparseMatrix back = read_npy(Source::open(path));
  EXPECT_EQ(back.pattern.crow_indices, m.pattern.crow_indices);
  EXPECT_EQ(back.pattern.col_indices, m.pattern.col_indices);
  EXPECT_EQ(back.values, m.values);
  EXPECT_EQ(std::filesystem::file_size(path) % 4, 0u);
  EXPECT_USAGE_ERROR("3 values for an array of 2 x 2", write_npy(path, 2, 2, Values(3)));
}

TEST(Npy, FortranOrderAcrossPieces) {
  const SparseMatrix m = generate({PatternKind::random, 501, 307, 0.3, 1, 2});
  const Values columns = sparse::to_dense(sparse::transpose(m));
  std::string data;
  for (float value : columns) data += bytes_of(value);
  const SparseMatrix back = read_npy(in_memory(with_header(header("<f4", "(501, 307)", true), data)));
  EXPECT_EQ(back.pattern.col_indices, m.pattern.col_indices);
  EXPECT_EQ(back.values, m.values);
}

}  // namespace
}  // namespace tessera::io
