// Zeros of arrays and models through the public API.
#include <gtest/gtest.h>
#include <tessera/inspect.h>
#include <tessera/io.h>

#include <cmath>

#include "base/half.h"
#include "io/files.h"
#include "sparse/pattern.h"
#include "support/error_of.h"
#include "support/safetensors_file.h"

namespace tessera {
namespace {

using test::SafetensorsFile;

TEST(ZerosOf, ArraysAndPatternsAgree) {
  const SparseMatrix matrix = generate({PatternKind::random, 300, 200, 0.1, 1, 1});
  const std::vector<float> dense = sparse::to_dense(matrix);
  const Zeros of_array = zeros_of(dense.data(), Type::f32, 300, 200, 200, {.n = 64, .threads = 1});
  const Zeros of_pattern = zeros_of(matrix.pattern, Type::f32, {.n = 64, .threads = 1});
  EXPECT_EQ(of_array.non_zeros, matrix.pattern.blocks());
  EXPECT_EQ(of_array.non_zeros, of_pattern.non_zeros);
  EXPECT_EQ(of_array.dense_seconds, of_pattern.dense_seconds);
  EXPECT_EQ(of_array.sparse_seconds, of_pattern.sparse_seconds);
  EXPECT_EQ(of_array.best_block_size, of_pattern.best_block_size);
  EXPECT_TRUE(of_array.pays());
  ASSERT_EQ(of_array.blocks.size(), 5U);
  EXPECT_EQ(of_array.blocks[0].seconds, of_array.sparse_seconds);
}

TEST(ZerosOf, ReadsRowsWithAStrideOfAnyType) {
  // Each row of two elements is followed by one that is not read.
  const std::vector<base::Bfloat16> bf16 = {base::to_bfloat16(1),   base::to_bfloat16(0),
                                            base::to_bfloat16(9),   base::to_bfloat16(-0.0F),
                                            base::to_bfloat16(NAN), base::to_bfloat16(9)};
  const Zeros zeros = zeros_of(bf16.data(), Type::bf16, 2, 2, 3);
  EXPECT_EQ(zeros.non_zeros, 2U);
  EXPECT_EQ(zeros.zero_rows, 0U);
  EXPECT_EQ(zeros.zero_cols, 0U);
}

TEST(ZerosOf, RefusesWrongArguments) {
  const float one = 1;
  EXPECT_USAGE_ERROR("values of type u32", zeros_of(&one, Type::u32, 1, 1, 1));
  EXPECT_USAGE_ERROR("0 columns of X", zeros_of(&one, Type::f32, 1, 1, 1, {.n = 0}));
  EXPECT_USAGE_ERROR("each side may have", zeros_of(&one, Type::f32, 1U << 31, 1, 1));
  EXPECT_USAGE_ERROR("block size 4", zeros_of(Pattern{8, 8, 4, {0, 0, 0}, {}}, Type::f32));
}

TEST(ZerosOf, TakesMatricesWithoutElements) {
  const Zeros zeros = zeros_of(nullptr, Type::f32, 0, 5, 5);
  EXPECT_EQ(zeros.reason, NoGain::not_a_product);
  EXPECT_EQ(zeros.zero_cols, 5U);
  EXPECT_EQ(zeros.density, 0);
}

class InspectFile : public ::testing::Test {
 protected:
  std::string write(const SafetensorsFile& file) const {
    return folder_.write("m.safetensors", file.content());
  }
  const test::TemporaryFolder folder_;
};

TEST_F(InspectFile, TellsProductsFromOtherTensors) {
  SafetensorsFile file;
  const std::vector<float> values(64 * 64, 1);
  file.floats("a.weight", {64, 64}, values)
      .floats("a.bias", {64}, std::vector<float>(64))
      .floats("h.embed_tokens.weight", {64, 64}, values)
      .floats("transformer.wte.weight", {64, 64}, values)
      .floats("conv.weight", {64, 16, 2, 2}, values)
      .floats("empty", {0, 4}, {})
      .integers("ids", {1, 2});
  const InspectedModel model = inspect(write(file));
  ASSERT_EQ(model.tensors.size(), 7U);
  for (const InspectedTensor& tensor : model.tensors) {
    SCOPED_TRACE(tensor.name);
    if (tensor.name == "ids") {
      EXPECT_FALSE(tensor.zeros);
      EXPECT_EQ(tensor.dense_bytes, 16U);
      continue;
    }
    ASSERT_TRUE(tensor.zeros);
    EXPECT_EQ(tensor.zeros->reason != NoGain::not_a_product,
              tensor.name == "a.weight" || tensor.name == "conv.weight");
  }
  EXPECT_EQ(model.totals.elements, 4U * 64 * 64 + 64);
  EXPECT_EQ(model.totals.zeros, 64U);
  EXPECT_EQ(model.totals.dense_bytes, sizeof(float) * model.totals.elements + 16);
}

TEST_F(InspectFile, ReportsProgress) {
  const std::string path = write(SafetensorsFile().floats("b", {1}, {1}).floats("a", {1}, {1}));
  std::vector<std::string> names;
  inspect(path, "", {}, [&](size_t done, size_t total, const std::string& next) {
    EXPECT_EQ(done, names.size());
    EXPECT_EQ(total, 2U);
    names.push_back(next);
  });
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b"}));
}

TEST_F(InspectFile, WantsTheTensorsOfTheIndex) {
  folder_.write("a", SafetensorsFile().floats("x_orig", {1}, {1}).content());
  folder_.write("model.safetensors.index.json", R"({"weight_map": {"x": "a"}})");
  EXPECT_ERROR("a: it lacks the tensor \"x\"", inspect(folder_.path().string()));
}

TEST_F(InspectFile, TakesFilesOfOneMatrix) {
  const std::string path = folder_.write("w.smtx", "4, 8, 4\n0 1 2 3 4\n0 1 2 7\n");
  const InspectedModel model = inspect(path);
  ASSERT_EQ(model.tensors.size(), 1U);
  EXPECT_EQ(model.tensors[0].form, "pattern");
  EXPECT_EQ(model.tensors[0].zeros->non_zeros, 4U);
  EXPECT_USAGE_ERROR("holds one matrix without a name", inspect(path, "w"));
  EXPECT_USAGE_ERROR("the extension .xyz is not known", inspect("a.xyz"));
  EXPECT_ERROR("bert-base-uncased: there is no such folder", inspect("bert-base-uncased"));
}

}  // namespace
}  // namespace tessera
