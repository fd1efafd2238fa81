// Weights in each form in which their zeros are stored.
#include "io/stored_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "io/files.h"
#include "io/non_zeros.h"
#include "sparse/pattern.h"
#include "support/error_of.h"
#include "support/safetensors_file.h"

namespace tessera::io {
namespace {

using test::SafetensorsFile;

/// The weights of a file in memory.
class Model {
 public:
  explicit Model(const SafetensorsFile& file) : content_(file.content()), source_(test::in_memory(content_)) {
    std::vector<StoredTensor> tensors;
    for (const TensorInfo& info : list_safetensors(source_)) tensors.push_back({&source_, info});
    weights_ = group_weights(std::move(tensors));
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const StoredWeight& weight : weights_) names.push_back(weight.name);
    return names;
  }
  const StoredWeight& front() const { return weights_.front(); }

  /// The non-zeros of the first weight, row by row: "10.1/0..1".
  std::string non_zeros() const {
    const WeightHeader header = read_header(front());
    const sparse::NonZeros non_zeros = read_non_zeros(front(), header);
    const Pattern pattern = sparse::cover(non_zeros, 1);
    sparse::validate(pattern);
    EXPECT_EQ(pattern.rows, header.rows());
    EXPECT_EQ(pattern.cols, header.cols());
    std::string text;
    for (uint32_t r = 0; r < pattern.rows; ++r) {
      std::string row(pattern.cols, '.');
      for (uint64_t i = pattern.crow_indices[r]; i < pattern.crow_indices[r + 1]; ++i)
        row[pattern.col_indices[i]] = '1';
      text += (r == 0 ? "" : "/") + row;
    }
    return text;
  }

 private:
  std::string content_;
  Source source_;
  std::vector<StoredWeight> weights_;
};

std::string non_zeros_of(const SafetensorsFile& file) { return Model(file).non_zeros(); }

SafetensorsFile bitmask_file(const std::vector<uint8_t>& mask, const std::vector<float>& values,
                             const std::vector<int64_t>& shape, const std::vector<int64_t>& offsets) {
  const auto rows = static_cast<uint64_t>(shape[0]);
  return SafetensorsFile()
      .bytes("l.bitmask", {rows, mask.size() / rows}, mask)
      .floats("l.compressed", {values.size()}, values)
      .integers("l.shape", shape)
      .integers("l.row_offsets", offsets);
}

TEST(StoredWeights, AreInNaturalOrder) {
  SafetensorsFile file;
  for (const char* name : {"h.10.w", "h.2.w", "h.1.w", "h.1.v", "h", "a.007", "a.7", "b"})
    file.floats(name, {1}, {1});
  EXPECT_EQ(Model(file).names(),
            (std::vector<std::string>{"a.007", "a.7", "b", "h", "h.1.v", "h.1.w", "h.2.w", "h.10.w"}));
}

TEST(StoredWeights, ReadsDenseOnes) {
  EXPECT_EQ(non_zeros_of(SafetensorsFile().floats("w", {2, 3}, {0, -0.0F, 1, NAN, 0, -1})), "..1/1.1");
  EXPECT_EQ(non_zeros_of(SafetensorsFile().floats("w", {2, 1, 2}, {0, 1, 1, 0})), ".1/1.");
  EXPECT_EQ(non_zeros_of(SafetensorsFile().floats("w", {3}, {0, 1, 0})), ".1.");
  EXPECT_EQ(non_zeros_of(SafetensorsFile().floats("w", {}, {1})), "1");
  EXPECT_EQ(non_zeros_of(SafetensorsFile().floats("w", {0, 4}, {})), "");
  const std::vector<base::Bfloat16> bf16 = {base::to_bfloat16(0), base::to_bfloat16(-2)};
  EXPECT_EQ(non_zeros_of(SafetensorsFile().add("w", "BF16", {1, 2}, bf16)), ".1");
  const std::vector<base::Half> f16 = {base::to_half(3), base::to_half(-0.0F)};
  EXPECT_EQ(non_zeros_of(SafetensorsFile().add("w", "F16", {2, 1}, f16)), "1/.");
}

/// Pieces of 2^18 elements.
TEST(StoredWeights, ReadsRowsLongerThanAPiece) {
  constexpr uint64_t kCols = (1 << 18) * 2 + 77;
  std::vector<float> values(2 * kCols, 0);
  for (const uint64_t col : {uint64_t{0}, uint64_t{1} << 18, kCols - 1}) values[kCols + col] = 1;
  const std::string row = non_zeros_of(SafetensorsFile().floats("w", {2, kCols}, values)).substr(kCols + 1);
  EXPECT_EQ(row.find_first_of('1'), 0U);
  EXPECT_EQ(row.find('1', 1), uint64_t{1} << 18);
  EXPECT_EQ(row.find_last_of('1'), kCols - 1);
  EXPECT_EQ(std::ranges::count(row, '1'), 3);
}

TEST(StoredWeights, DoesNotReadOtherTypes) {
  for (const auto& [dtype, size] : {std::pair{"F64", 8U}, {"I8", 1U}, {"F8_E4M3", 1U}, {"F4_NEW", 3U}}) {
    const Model model(SafetensorsFile().add("w", dtype, {1, 1}, std::string(size, '\0')));
    EXPECT_FALSE(read_header(model.front()).type) << dtype;
  }
}

TEST(StoredWeights, AppliesMasks) {
  SafetensorsFile file;
  file.floats("l.weight_orig", {2, 2}, {1, 0, 1, NAN}).floats("l.weight_mask", {2, 2}, {1, 1, 0, 1});
  EXPECT_EQ(Model(file).names(), std::vector<std::string>{"l.weight"});
  EXPECT_EQ(non_zeros_of(file), "1./.1");
  EXPECT_EQ(non_zeros_of(SafetensorsFile()
                             .floats("w_orig", {1, 3}, {1, 1, 0})
                             .add("w_mask", "BOOL", {1, 3}, std::string("\0\1\1", 3))),
            ".1.");
  EXPECT_ERROR(
      "the shapes of NAME_orig and NAME_mask differ",
      non_zeros_of(SafetensorsFile().floats("w_orig", {2, 1}, {1, 1}).floats("w_mask", {1, 2}, {1, 1})));
}

TEST(StoredWeights, LeavesOtherNamesAlone) {
  SafetensorsFile file;
  file.floats("attention_mask", {1}, {1}).floats("spectral_orig", {1}, {1}).bytes("image.bitmask", {1}, {1});
  file.floats("video.compressed", {1}, {1});
  EXPECT_EQ(Model(file).names(), (std::vector<std::string>{"attention_mask", "image.bitmask", "spectral_orig",
                                                           "video.compressed"}));
}

TEST(StoredWeights, ReadsCsr) {
  SafetensorsFile file;
  file.add<int32_t>("w.crow_indices", "I32", {4}, {0, 2, 2, 3})
      .add<int32_t>("w.col_indices", "I32", {3}, {0, 3, 1})
      .floats("w.values", {3}, {1, 0, NAN});
  EXPECT_EQ(Model(file).names(), std::vector<std::string>{"w"});
  EXPECT_EQ(non_zeros_of(file), "1.../..../.1..");
  EXPECT_EQ(non_zeros_of(file.integers("w.shape", {3, 5})), "1..../...../.1...");
}

TEST(StoredWeights, ReadsBsrOfAnyBlocks) {
  SafetensorsFile file;
  file.integers("w.crow_indices", {0, 1, 2})
      .integers("w.col_indices", {1, 0})
      .floats("w.values", {2, 2, 3}, {1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0});
  EXPECT_EQ(non_zeros_of(file), "...111/.....1/1...../.1....");
  EXPECT_EQ(non_zeros_of(file.integers("w.shape", {3, 5})), "...11/...../1....");
}

/// The parameters of sessions have their values under the name of the weight.
TEST(StoredWeights, ReadsStatesOfSessions) {
  SafetensorsFile file;
  file.floats("w", {1, 2, 2}, {1, 0, 0, 1})
      .add<uint64_t>("w.crow_indices", "U64", {3}, {0, 0, 1})
      .add<uint32_t>("w.col_indices", "U32", {1}, {0});
  EXPECT_EQ(Model(file).names(), std::vector<std::string>{"w"});
  EXPECT_EQ(non_zeros_of(file), "../../1./.1");
}

SafetensorsFile packed_file(const std::vector<float>& values, const std::vector<int32_t>& cols) {
  return SafetensorsFile()
      .floats("l.weight", {values.size()}, values)
      .add<int32_t>("l.crow_indices", "I32", {3}, {0, 1, 2})
      .add<int32_t>("l.col_indices", "I32", {cols.size()}, cols)
      .add<int32_t>("l.packed_format", "I32", {1}, {3})
      .integers("l.sizes", {3, 4, 2});
}

TEST(StoredWeights, ReadsSparseLinearLayers) {
  const SafetensorsFile file = packed_file(std::vector<float>(12, 0), {1, 0, 77});  // with room for a block
  EXPECT_EQ(Model(file).names(), std::vector<std::string>{"l.weight"});
  EXPECT_EQ(non_zeros_of(file), "..11/..11/11..");
  EXPECT_ERROR("7 values for 2 blocks of 2", non_zeros_of(packed_file(std::vector<float>(7), {1, 0})));
  EXPECT_ERROR("crow_indices end with 2, and there are 1",
               non_zeros_of(packed_file(std::vector<float>(8), {1})));
}

TEST(StoredWeights, RefusesRowsThatDoNotFit) {
  const auto error = [](std::vector<int64_t> crow, std::vector<int64_t> cols, std::vector<float> values,
                        std::vector<int64_t> shape) {
    return test::error_of([&] {
      non_zeros_of(SafetensorsFile()
                       .integers("w.crow_indices", crow)
                       .integers("w.col_indices", cols)
                       .floats("w.values", {values.size()}, values)
                       .integers("w.shape", shape));
    });
  };
  EXPECT_TRUE(test::says(error({0, 1}, {0}, {1}, {1, 1}), "(no error)"));
  EXPECT_TRUE(
      test::says(error({0, 2}, {0}, {1}, {1, 1}), "crow_indices end with 2, and there are 1 col_indices"));
  EXPECT_TRUE(test::says(error({0, 1}, {0}, {1, 1}, {1, 1}), "2 values for 1 blocks"));
  EXPECT_TRUE(test::says(error({0, 1}, {1}, {1}, {1, 1}), "block row 0 has a block in column 1"));
  EXPECT_TRUE(test::says(error({0, 2}, {1, 0}, {1, 1}, {1, 2}), "columns must ascend"));
  EXPECT_TRUE(test::says(error({1, 1}, {0}, {1}, {1, 1}), "crow_indices[0] is 1"));
  EXPECT_TRUE(test::says(error({0, -1}, {0}, {1}, {1, 1}), "is -1; it must be from 0"));
  EXPECT_TRUE(test::says(error({0, 1}, {0}, {1}, {2, 1}), "describe 1 rows of blocks"));
  EXPECT_TRUE(test::says(error({}, {}, {}, {0, 0}), "crow_indices are empty"));
  EXPECT_TRUE(test::says(error({0, 1}, {0}, {1}, {1}), "its shape has 1 numbers"));
  EXPECT_TRUE(test::says(error({0, 1}, {0}, {1}, {1, 1'000'000'000'000}), "is 1000000000000; it must be"));
  EXPECT_TRUE(test::says(error({0, 1}, {0}, {1}, {1, 2'000'000'000}), "there must be as many non-zeros"));
}

/// A small file must not ask for much memory.
TEST(StoredWeights, RefusesEmptyBlocksOfManyRows) {
  EXPECT_ERROR("there must be as many non-zeros",
               non_zeros_of(SafetensorsFile()
                                .integers("w.crow_indices", std::vector<int64_t>(60'000, 0))
                                .integers("w.col_indices", {})
                                .floats("w.values", {0, 32768, 1}, {})));
}

TEST(StoredWeights, WantsAllTensorsOfAWeight) {
  EXPECT_ERROR("has \"w.crow_indices\" and lacks \"w.col_indices\"",
               Model(SafetensorsFile().integers("w.crow_indices", {0}).floats("w.values", {0}, {})));
  EXPECT_ERROR("lacks \"w.values\"",
               Model(SafetensorsFile().integers("w.crow_indices", {0}).integers("w.col_indices", {})));
  EXPECT_ERROR("lacks \"w.shape\"",
               Model(SafetensorsFile().bytes("w.bitmask", {1, 1}, {0}).floats("w.compressed", {0}, {})));
  EXPECT_ERROR("has \"w.compressed\" and lacks \"w.bitmask\"",
               Model(SafetensorsFile().floats("w.compressed", {1}, {1}).integers("w.shape", {1, 8})));
  EXPECT_ERROR("has \"w.compressed\" and lacks \"w.bitmask\"",
               Model(SafetensorsFile().floats("w.compressed", {1}, {1}).integers("w.row_offsets", {0})));
  EXPECT_ERROR("has \"w.bitmask\" and lacks \"w.compressed\"",
               Model(SafetensorsFile().bytes("w.bitmask", {1, 1}, {0}).integers("w.shape", {1, 8})));
}

TEST(StoredWeights, ReadsBitmasks) {
  // Bits beyond the last column are ignored.
  const SafetensorsFile file = bitmask_file({0b0000'0101, 0b1111'1100, 0, 0b10}, {1, 2, 3}, {2, 10}, {0, 2});
  EXPECT_EQ(Model(file).names(), std::vector<std::string>{"l.weight"});
  EXPECT_EQ(name_of(Model(file).front().form), "sparse-bitmask");
  EXPECT_EQ(non_zeros_of(file), "1.1......./.........1");
  EXPECT_EQ(non_zeros_of(bitmask_file({0b11}, {0, 1}, {1, 2}, {0})), ".1");  // a value that is zero
}

/// In the first versions all parameters had bitmasks, under their whole names; later, the weights of layers,
/// under the layers' names.
TEST(StoredWeights, NamesWeightsWithBitmasks) {
  const auto with = [](const std::vector<std::string>& names) {
    SafetensorsFile file;
    for (const std::string& name : names)
      file.bytes(name + ".bitmask", {1, 1}, {1})
          .floats(name + ".compressed", {1}, {1})
          .integers(name + ".shape", {1, 8});
    return Model(file).names();
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(with({"a", "b.0"}), (Names{"a.weight", "b.0.weight"}));
  EXPECT_EQ(with({"a.bias", "a.weight", "gamma"}), (Names{"a.bias", "a.weight", "gamma"}));
  EXPECT_EQ(with({"bias", "weight"}), (Names{"bias", "weight"}));
}

TEST(StoredWeights, ReadsBitmasksOfVectorsAndConvolutions) {
  SafetensorsFile vector;
  vector.bytes("n.bitmask", {1}, {0b101}).floats("n.compressed", {2}, {1, 2}).integers("n.shape", {3});
  EXPECT_EQ(non_zeros_of(vector.integers("n.row_offsets", {0})), "1.1");
  // Lines of three bits, two to a row; in a longer row lines cross the border of a word.
  EXPECT_EQ(non_zeros_of(bitmask_file({0b011, 0b100, 0b000, 0b101}, {1, 1, 1, 1, 1}, {2, 2, 3}, {0, 3})),
            "11...1/...1.1");
  const SafetensorsFile wide =
      bitmask_file(std::vector<uint8_t>(30, 0b101), std::vector<float>(60, 1), {1, 30, 3}, {0});
  std::string expected;
  for (int i = 0; i < 30; ++i) expected += "1.1";
  EXPECT_EQ(non_zeros_of(wide), expected);
}

TEST(StoredWeights, ReadsTwoOfFourBitmasks) {
  SafetensorsFile file;
  file.bytes("l.bitmask", {2, 1}, {0b0110'0011, 0b1100'1001})
      .floats("l.compressed", {2, 4}, {1, 0, 2, 3, 0, 0, 4, 5})
      .add<int64_t>("l.shape", "I64", {2, 1}, {2, 8});
  EXPECT_EQ(name_of(Model(file).front().form), "sparse-24-bitmask");
  EXPECT_EQ(non_zeros_of(file), "1....11./......11");
}

TEST(StoredWeights, RefusesBitmasksThatDoNotFit) {
  EXPECT_ERROR("has 3 bits that are set, and there are 2 values",
               non_zeros_of(bitmask_file({0b111}, {1, 2}, {1, 8}, {0})));
  EXPECT_ERROR("its row_offsets do not match its bitmask",
               non_zeros_of(bitmask_file({0b1, 0b1}, {1, 2}, {2, 8}, {0, 2})));
  EXPECT_ERROR("its row_offsets do not match its bitmask",
               non_zeros_of(bitmask_file({0b1, 0b1}, {1, 2}, {2, 8}, {0, 1, 2})));
  EXPECT_ERROR("2 lines of 9 bits need U8 with 4",
               non_zeros_of(bitmask_file({0b1, 0b1}, {1, 2}, {2, 9}, {0, 1})));
  EXPECT_ERROR("its shape has 0 numbers", non_zeros_of(SafetensorsFile()
                                                           .bytes("l.bitmask", {1, 1}, {1})
                                                           .floats("l.compressed", {1}, {1})
                                                           .integers("l.shape", {})));
  EXPECT_ERROR("it must have integers", non_zeros_of(SafetensorsFile()
                                                         .bytes("l.bitmask", {1, 1}, {1})
                                                         .floats("l.compressed", {1}, {1})
                                                         .floats("l.shape", {2}, {1, 8})));
  EXPECT_ERROR("its shape has too many elements",
               non_zeros_of(SafetensorsFile()
                                .bytes("l.bitmask", {1, 1}, {1})
                                .floats("l.compressed", {1}, {1})
                                .integers("l.shape", {1 << 30, 1 << 30, 1 << 30})));
}

}  // namespace
}  // namespace tessera::io
