#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/half.h"
#include "io/files.h"
#include "sparse/pattern.h"
#include "support/error_of.h"

namespace tessera::io {
namespace {

using test::bytes_of;
using test::error_of;
using test::in_memory;
using test::says;

std::string with_header(const std::string& json, const std::string& data) {
  return bytes_of(uint64_t{json.size()}) + json + data;
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
         offsets + "]}";
}

std::string list_error(const std::string& file) {
  return error_of([&] { list_safetensors(in_memory(file)); });
}

std::vector<float> dense(const std::string& file, const std::string& name = "") {
  const SparseMatrix m = read_safetensors(in_memory(file), name);
  sparse::validate(m);
  return sparse::to_dense(m);
}

using Values = std::vector<float>;

TEST(Safetensors, ReadsEveryFloatingPointType) {
  const std::string f32 = bytes_of(1.5F) + bytes_of(0.0F) + bytes_of(-2.0F);
  const std::string f64 = bytes_of(1.5) + bytes_of(0.0) + bytes_of(-2.0);
  std::string f16, bf16;
  for (float value : {1.5F, 0.0F, -2.0F}) {
    f16 += bytes_of(base::to_half(value));
    bf16 += bytes_of(base::to_bfloat16(value));
  }
  const Values expected = {1.5, 0, -2};
  EXPECT_EQ(dense(with_header("{" + tensor("w", "F32", "1,3", "0,12") + "}", f32)), expected);
  EXPECT_EQ(dense(with_header("{" + tensor("w", "F64", "1,3", "0,24") + "}", f64)), expected);
  EXPECT_EQ(dense(with_header("{" + tensor("w", "F16", "1,3", "0,6") + "}", f16)), expected);
  EXPECT_EQ(dense(with_header("{" + tensor("w", "BF16", "1,3", "0,6") + "}", bf16)), expected);
}

TEST(Safetensors, FindsTheTensorByName) {
  const std::string file = with_header(
      "{\"__metadata__\":{\"format\":\"pt\",\"format\":\"x\"}," + tensor("b", "F32", "1,1", "4,8") + "," +
          tensor("a", "F32", "1,1", "0,4") + "," + tensor("bias", "F32", "1", "8,12") + "}  ",
      bytes_of(1.0F) + bytes_of(2.0F) + bytes_of(3.0F));
  EXPECT_EQ(dense(file, "a"), (Values{1}));
  EXPECT_EQ(dense(file, "b"), (Values{2}));
  const auto tensors = list_safetensors(in_memory(file));
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[2].shape, (std::vector<uint64_t>{1}));
  const auto message = [&](const std::string& name) {
    return error_of<UsageError>([&] { read_safetensors(in_memory(file), name); });
  };
  EXPECT_TRUE(says(message(""), "several matrices; name one of the tensors \"a\" (F32 [1, 1]), \"b\""));
  EXPECT_TRUE(says(message("c"), "no tensor \"c\"; the file has \"a\""));
  EXPECT_ERROR("has the shape [1]; a weight matrix has 2 dimensions",
               read_safetensors(in_memory(file), "bias"));
}

TEST(Safetensors, TakesEmptyFilesAndTensors) {
  EXPECT_TRUE(list_safetensors(in_memory(with_header("{}", ""))).empty());
  EXPECT_USAGE_ERROR("no 2-D tensor; the file has no tensors",
                     read_safetensors(in_memory(with_header("{}", "")), ""));
  EXPECT_EQ(dense(with_header("{" + tensor("w", "F32", "0,5", "0,0") + "}", "")), Values{});
}

TEST(Safetensors, ListsTypesThatItCannotRead) {
  const std::string file = with_header("{" + tensor("w", "F4_NEW", "2,2", "0,2") + "}", "xx");
  EXPECT_EQ(list_safetensors(in_memory(file))[0].dtype, "F4_NEW");
  EXPECT_ERROR("elements of type \"F4_NEW\"", dense(file));
  const std::string eight = with_header("{" + tensor("w", "F8_E4M3", "1,2", "0,2") + "}", "xx");
  EXPECT_ERROR("elements of type \"F8_E4M3\"", dense(eight));
}

TEST(Safetensors, SaysWhatIsWrongWithTheHeader) {
  struct Case {
    std::string json;
    const char* message;
  };
  const std::string good = tensor("w", "F32", "1,1", "0,4");
  const Case cases[] = {
      {"", "not valid JSON"},
      {"{" + good, "not valid JSON"},
      {"{" + good + "}}", "not valid JSON"},
      {"{\"w\xff\":{}}", "not valid JSON"},
      {"[]", "the header has an array where it may not be"},
      {"7", "the header has a number"},
      {"null", "the header has null"},
      {"{\"w\":7}", "the header has a number"},
      {"{\"w\":{}}", "tensor \"w\" lacks a dtype, a shape or two data_offsets"},
      {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0]}}", "lacks"},
      {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4,8]}}", "has a number where"},
      {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1,-1],\"data_offsets\":[0,4]}}", "a negative number"},
      {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1,1.5],\"data_offsets\":[0,4]}}", "a fraction"},
      {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1,1e99],\"data_offsets\":[0,4]}}", "a fraction"},
      {"{\"w\":{\"dtype\":4,\"shape\":[1,1],\"data_offsets\":[0,4]}}", "has a number where"},
      {"{\"w\":{\"dtype\":\"F32\",\"shape\":\"x\",\"data_offsets\":[0,4]}}", "has a string where"},
      {"{\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", "tensor \"w\" has dtype twice"},
      {"{\"w\":{\"colour\":\"red\"}}", "tensor \"w\" has an unknown key \"colour\""},
      {"{" + good + "," + good + "}", "tensor \"w\" is there twice"},
      {"{\"__metadata__\":{\"a\":{}}}", "has an object where it may not be"},
      {"{\"__metadata__\":7}", "has a number where"},
      {"{" + tensor("w", "F32", "1,1", "0,8") + "}", "data_offsets [0, 8], and the file has 4 bytes"},
      {"{" + tensor("w", "F32", "1,1", "4,0") + "}", "data_offsets [4, 0]"},
      {"{" + tensor("w", "F32", "1,2", "0,4") + "}", "of F32 [1, 2] has data of 4 bytes, which do not agree"},
      {"{" + tensor("w", "F32", "4294967296,4294967296,4", "0,4") + "}", "do not agree"},
      {"{" + tensor("w", "U8", "1,2", "1,3") + "}", "there is a gap"},
      {"{" + tensor("w", "U8", "1,2", "0,2") + "}", "2 bytes after the last tensor belong to none"},
      {"{" + tensor("v", "U8", "1,3", "0,3") + "," + tensor("w", "U8", "1,2", "2,4") + "}", "they overlap"},
  };
  for (const Case& c : cases) {
    EXPECT_TRUE(says(list_error(with_header(c.json, "xxxx")), c.message)) << c.json;
  }
}

TEST(Safetensors, RefusesAbsurdHeaderLengths) {
  EXPECT_TRUE(says(list_error("1234567"), "a file of 7 bytes"));
  EXPECT_TRUE(says(list_error(bytes_of(uint64_t{1} << 60) + "{}"), "a header of 1152921504606846976"));
  EXPECT_TRUE(says(list_error(bytes_of(~uint64_t{0}) + "{}"), "a header of 18446744073709551615"));
}

TEST(Safetensors, DeepNestingIsRefusedAtOnce) {
  const std::string json(1'000'000, '[');
  EXPECT_TRUE(says(list_error(with_header(json, "")), "an array where it may not be"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_TRUE(says(list_error(with_header(objects, "")), "unknown key"));
}

TEST(Safetensors, WritesWhatItReads) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("w.safetensors");
  const Values a = {1, 0, 2, 0, 3, NAN};
  const std::vector<uint16_t> b = {0x3F80, 0};
  const TensorData tensors[] = {
      {.name = "a", .dtype = "F32", .shape = {2, 3}, .bytes = std::as_bytes(std::span(a))},
      {.name = "layer \"b\"", .dtype = "BF16", .shape = {2, 1}, .bytes = std::as_bytes(std::span(b))},
  };
  write_safetensors(path, tensors);
  EXPECT_EQ(read_safetensors(Source::open(path), "a").pattern.col_indices,
            (std::vector<uint32_t>{0, 2, 1, 2}));
  EXPECT_EQ(sparse::to_dense(read_safetensors(Source::open(path), "layer \"b\"")), (Values{1, 0}));
  EXPECT_EQ(list_safetensors(Source::open(path))[0].begin % 8, 0u);
}

TEST(Safetensors, KeepsMetadata) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("w.safetensors");
  const TensorMetadata written = {{"format", "1"}, {"settings", "{\"rate\": 0.5, \"é\": [1]}"}};
  const Values a = {1, 2};
  const TensorData tensors[] = {
      {.name = "a", .dtype = "F32", .shape = {2}, .bytes = std::as_bytes(std::span(a))}};
  write_safetensors(path, tensors, written);
  TensorMetadata read;
  EXPECT_EQ(list_safetensors(Source::open(path), &read).size(), 1u);
  EXPECT_EQ(read, written);
  write_safetensors(path, tensors);
  read.clear();
  list_safetensors(Source::open(path), &read);
  EXPECT_TRUE(read.empty());
}

TEST(Safetensors, RefusesToWriteNonsense) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("w.safetensors");
  const Values a = {1, 2};
  TensorData tensor{.name = "a", .dtype = "F32", .shape = {3}, .bytes = std::as_bytes(std::span(a))};
  const auto message = [&](std::vector<TensorData> tensors) {
    return error_of<UsageError>([&] { write_safetensors(path, tensors); });
  };
  EXPECT_TRUE(says(message({tensor}), "tensor \"a\" of F32 [3] with 8 bytes; they do not agree"));
  tensor.shape = {2};
  EXPECT_TRUE(says(message({tensor, tensor}), "tensor \"a\" is there twice"));
  tensor.dtype = "F33";
  EXPECT_TRUE(says(message({tensor}), "F33"));
  EXPECT_EQ(folder.count(), 0u);
}

}  // namespace
}  // namespace tessera::io
