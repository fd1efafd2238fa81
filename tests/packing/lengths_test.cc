// Lengths of sequences from arrays, files and text.
#include <gtest/gtest.h>
#include <tessera/packing.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "io/files.h"
#include "packing/npy_text.h"
#include "packing/text_lengths.h"
#include "support/error_of.h"

namespace tessera::pack {
namespace {

using test::error_of;
using test::npy_text;
using test::says;

std::vector<uint64_t> all_of(const Lengths& lengths) {
  std::vector<uint64_t> values(lengths.size());
  lengths.read(0, values);
  for (uint64_t i = 0; i < lengths.size(); ++i) EXPECT_EQ(values[i], lengths[i]);
  return values;
}

using Values = std::vector<uint64_t>;

template <class T>
void expect_array(const std::string& code) {
  const test::TemporaryFolder folder;
  const T most = std::numeric_limits<T>::max();
  const std::vector<T> values = {1, 2, 100, static_cast<T>(std::min<uint64_t>(most, INT64_MAX))};
  const Values expected = {1, 2, 100, static_cast<uint64_t>(values.back())};
  EXPECT_EQ(all_of(Lengths(std::span<const T>(values))), expected) << code;
  EXPECT_EQ(all_of(read_lengths(folder.write("a.npy", npy_text(values, "<" + code)))), expected) << code;
  EXPECT_EQ(all_of(read_lengths(folder.write("b.npy", npy_text(values, ">" + code, true)))), expected)
      << code;
  const std::vector<T> offsets = {0, 1, 5, 12};
  EXPECT_EQ(all_of(Lengths::of_offsets(std::span<const T>(offsets))), (Values{1, 4, 7})) << code;
  EXPECT_EQ(all_of(read_offsets(folder.write("o.npy", npy_text(offsets, ">" + code, true)))),
            (Values{1, 4, 7}));
}

TEST(Lengths, OfEveryTypeAndByteOrder) {
  expect_array<int8_t>("i1");
  expect_array<uint8_t>("u1");
  expect_array<int16_t>("i2");
  expect_array<uint16_t>("u2");
  expect_array<int32_t>("i4");
  expect_array<uint32_t>("u4");
  expect_array<int64_t>("i8");
  expect_array<uint64_t>("u8");
}

TEST(Lengths, OfTextWithOneALine) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(all_of(read_lengths(folder.write("a.txt", "5\n 7 \r\n\t12"))), (Values{5, 7, 12}));
  EXPECT_EQ(all_of(read_lengths(folder.write("a.txt", "5\n9223372036854775807\n1\n"))),
            (Values{5, INT64_MAX, 1}));
  EXPECT_EQ(all_of(read_lengths(folder.write("a.txt", ""))), Values{});
}

TEST(Lengths, OfTextAreTheSameHoweverItArrives) {
  std::string text;
  Values expected;
  for (uint64_t i = 1; i < 200'000; ++i) {
    expected.push_back(i * i);
    text += std::to_string(i * i) + "\n";
  }
  TextLengths whole("w", text);
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  TextLengths piped("w", ends[0]);
  Values from_pipe;
  size_t written = 0;
  while (written < text.size()) {  // odd pieces, so that numbers are split
    const size_t piece = std::min<size_t>(4999, text.size() - written);
    ASSERT_EQ(::write(ends[1], text.data() + written, piece), static_cast<ssize_t>(piece));
    written += piece;
    if (written == text.size()) ::close(ends[1]);
    for (const uint64_t length : piped.next()) from_pipe.push_back(length);
  }
  for (auto part = piped.next(); !part.empty(); part = piped.next())
    from_pipe.insert(from_pipe.end(), part.begin(), part.end());
  ::close(ends[0]);
  Values from_text;
  for (auto part = whole.next(); !part.empty(); part = whole.next())
    from_text.insert(from_text.end(), part.begin(), part.end());
  EXPECT_EQ(from_text, expected);
  EXPECT_EQ(from_pipe, expected);
}

TEST(Lengths, SayWhichIsWrong) {
  const test::TemporaryFolder folder;
  const auto array_error = [&](const std::vector<int32_t>& values) {
    return error_of([&] { count(read_lengths(folder.write("a.npy", npy_text(values, "<i4"))), 512); });
  };
  EXPECT_TRUE(says(array_error({5, 0, 7}), "a.npy: entry 1: 0 tokens"));
  EXPECT_TRUE(says(array_error({5, 6, -7}), "a.npy: entry 2: -7 tokens"));
  EXPECT_TRUE(
      says(array_error({5, 6, 7, 513}), "a.npy: entry 3: a sequence of 513 tokens, and a pack holds 512"));
  const auto offset_error = [&](const std::vector<uint32_t>& values) {
    return error_of([&] { count(read_offsets(folder.write("a.npy", npy_text(values, "<u4"))), 512); });
  };
  EXPECT_TRUE(says(offset_error({0, 5, 5, 6}), "entry 1: offset 2 follows, which makes 0 tokens"));
  EXPECT_TRUE(says(offset_error({0, 5, 3}), "which makes -2 tokens"));
  EXPECT_TRUE(says(offset_error({}), "no offsets"));
  const auto text_error = [&](const std::string& text) {
    return error_of([&] { count(read_lengths(folder.write("a.txt", text)), 512); });
  };
  EXPECT_TRUE(says(text_error("5\n0\n"), "a.txt: line 2: there is 0"));
  EXPECT_TRUE(says(text_error("5\n\n6\n"), "line 2: there is nothing"));
  EXPECT_TRUE(says(text_error("5\n6\n-7\n"), "line 3: there is a negative number"));
  EXPECT_TRUE(says(text_error("5\n6.5\n"), "line 2: there is \".\""));
  EXPECT_TRUE(says(text_error("5 6\n"), "line 1: there is a second number"));
  EXPECT_TRUE(says(text_error("9223372036854775808\n"), "a number above 9223372036854775807"));
  EXPECT_TRUE(says(text_error("5\n6\n600\n"), "line 3: a sequence of 600 tokens"));
}

TEST(Lengths, RefuseDamagedArrays) {
  const test::TemporaryFolder folder;
  const std::vector<int32_t> values = {5, 6, 7};
  const std::string good = npy_text(values, "<i4");
  const auto error = [&](const std::string& text) {
    return error_of([&] { read_lengths(folder.write("a.npy", text)); });
  };
  EXPECT_TRUE(says(error(good.substr(0, good.size() - 1)), "3 elements of 4 bytes, and 11 bytes follow"));
  EXPECT_TRUE(says(error(good + "x"), "3 elements of 4 bytes, and 13 bytes follow"));
  EXPECT_TRUE(says(error(good.substr(0, 20)), "truncated"));
  EXPECT_TRUE(says(error(""), "not a .npy file"));
  EXPECT_TRUE(says(error(npy_text(std::vector<float>{1}, "<f4")), "other numbers than integers"));
  EXPECT_TRUE(says(error(npy_text(std::vector<uint8_t>{1}, "|b1")), "other numbers than integers"));
  std::string square = good;
  square.replace(square.find("(3,)"), 4, "(3,1");
  EXPECT_TRUE(says(error(square), "malformed"));
  EXPECT_ERROR("cannot open the file", read_lengths(folder.file("missing.npy")));
  EXPECT_ERROR("cannot open the file", read_lengths(folder.file("missing.txt")));
  EXPECT_ERROR("cannot read: Is a directory", read_lengths(folder.path().string()));
}

TEST(Count, DoesWithTooLongOnesWhatItsPolicySays) {
  const std::vector<uint32_t> values = {3, 10, 11, 25, 10};
  const Lengths lengths{std::span<const uint32_t>(values)};
  const Input dropped = count(lengths, 10, Overlong::drop);
  EXPECT_EQ(dropped.sequences, 5u);
  EXPECT_EQ(dropped.tokens, 59u);
  EXPECT_EQ(dropped.overlong_sequences, 2u);
  EXPECT_EQ(dropped.lost_tokens, 36u);
  EXPECT_EQ(dropped.histogram.sequences(), 3u);
  const Input truncated = count(lengths, 10, Overlong::truncate);
  EXPECT_EQ(truncated.lost_tokens, 16u);
  EXPECT_EQ(truncated.histogram.counts[10], 4u);
  const Input split = count(lengths, 10, Overlong::split);
  EXPECT_EQ(split.lost_tokens, 0u);
  EXPECT_EQ(split.histogram.tokens(), 59u);
  EXPECT_EQ(split.histogram.counts[10], 5u);
  EXPECT_EQ(split.histogram.counts[1], 1u);
  EXPECT_EQ(split.histogram.counts[5], 1u);
  EXPECT_EQ(count(lengths, 25).overlong_sequences, 0u);
}

TEST(Count, IsTheSameInAnyOrder) {
  std::vector<uint16_t> values(5000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(1 + i * i % 701);
  const Input forwards = count(Lengths{std::span<const uint16_t>(values)}, 500, Overlong::split);
  std::reverse(values.begin() + 17, values.end());
  const Input backwards = count(Lengths{std::span<const uint16_t>(values)}, 500, Overlong::split);
  EXPECT_EQ(forwards.histogram.counts, backwards.histogram.counts);
  const Certificate one = plan(forwards.histogram, {.certify = true}).certificate;
  const Certificate other = plan(backwards.histogram, {.certify = true}).certificate;
  EXPECT_EQ(one.weights, other.weights);
  EXPECT_EQ(one.lower_bound, other.lower_bound);
}

TEST(Count, KnowsLengthsBeyondItsFastTable) {
  const std::vector<uint32_t> values = {65535, 65536, 70000, 1, 65536};
  const Input input = count(Lengths{std::span<const uint32_t>(values)}, 70000);
  EXPECT_EQ(input.histogram.counts[65535], 1u);
  EXPECT_EQ(input.histogram.counts[65536], 2u);
  EXPECT_EQ(input.histogram.counts[70000], 1u);
  EXPECT_EQ(input.tokens, 65535u + 2 * 65536 + 70000 + 1);
}

TEST(Count, RefusesSumsBeyond64Bits) {
  const std::vector<uint64_t> values(3, INT64_MAX);
  EXPECT_ERROR("more than 9223372036854775807 tokens",
               count(Lengths{std::span<const uint64_t>(values)}, 512, Overlong::split));
}

TEST(HistogramFile, IsReadInAnyOrder) {
  const test::TemporaryFolder folder;
  const Input input =
      read_histogram(folder.write("h.csv", "length,count\r\n3,4\n0,0\n1,5000000000\n3,1\n"), 8);
  EXPECT_EQ(input.histogram.counts[3], 5u);
  EXPECT_EQ(input.histogram.counts[1], 5'000'000'000u);
  EXPECT_EQ(input.sequences, 5'000'000'005u);
  EXPECT_EQ(read_histogram(folder.write("h.csv", "20,2"), 8, Overlong::split).histogram.counts[8], 4u);
  EXPECT_EQ(read_histogram(folder.write("h.csv", ""), 8).sequences, 0u);
}

TEST(HistogramFile, SaysWhichLineIsWrong) {
  const test::TemporaryFolder folder;
  const auto error = [&](const std::string& text) {
    return error_of([&] { read_histogram(folder.write("h.csv", text), 8); });
  };
  EXPECT_TRUE(says(error("length,count\n1,2\n3;4\n"), "h.csv: line 3: there is \"3;4\""));
  EXPECT_TRUE(says(error("1\n"), "line 1"));
  EXPECT_TRUE(says(error("1,2,3\n"), "line 1"));
  EXPECT_TRUE(says(error("1,-2\n"), "line 1"));
  EXPECT_TRUE(says(error("1,2\n\n3,4\n"), "line 2: there is \"\""));
  EXPECT_TRUE(says(error("0,5\n"), "line 1: 5 sequences of length 0"));
  EXPECT_TRUE(says(error("9,5\n"), "line 1: a sequence of 9 tokens, and a pack holds 8"));
  EXPECT_TRUE(says(error("1,18446744073709551616\n"), "line 1"));
  EXPECT_TRUE(says(error("2,18446744073709551615\n"), "more than"));
  EXPECT_EQ(error("9,0\n"), "(no error)");
  EXPECT_ERROR("a pack may have 1 to", read_histogram(folder.file("h.csv"), 0));
}

}  // namespace
}  // namespace tessera::pack
