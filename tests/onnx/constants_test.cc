// Arrays of ONNX files, and values computed from them while models are read.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "onnx/run.h"

namespace tessera::onnx {
namespace {

using graph::WideArrays;
using test::Numbers;
using test::OnnxFile;
using test::run;

TEST(OnnxConstants, RangesAndStepsMayBeLarge) {
  constexpr int64_t kLarge = int64_t{1} << 62;
  OnnxFile file;
  file.output("y").output("z").output("s");
  file.integers("least", {}, {kLarge}).integers("end", {}, {kLarge + 3}).integers("by", {}, {1});
  file.node("Range", {"least", "end", "by"}, {"r"}).node("Sub", {"r", "least"}, {"y"});
  file.integers("lowest", {}, {INT64_MIN}).integers("highest", {}, {INT64_MAX});
  file.node("Range", {"lowest", "highest", "least"}, {"w"}).node("Div", {"w", "least"}, {"z"});
  file.integers("x", {2}, {5, 6}).integers("zero", {1}, {0}).integers("steps", {1}, {INT64_MAX});
  file.integers("ends", {1}, {2}).node("Slice", {"x", "zero", "ends", "zero", "steps"}, {"s"});
  const WideArrays results = run(file, {});
  EXPECT_EQ(results.at("y"), (Numbers{0, 1, 2}));
  EXPECT_EQ(results.at("z"), (Numbers{-2, -1, 0, 1}));
  EXPECT_EQ(results.at("s"), (Numbers{5}));
}

TEST(OnnxConstants, SumsHave64Bits) {
  constexpr int64_t kLarge = int64_t{1} << 31;
  OnnxFile file;
  file.output("p").output("s").output("t").output("u").integers("axis", {}, {0}).integers("by", {}, {100000});
  file.integers("x", {2, 2}, {100000, 3, 100000, 4}).node("CumProd", {"x", "axis"}, {"products"});
  file.node("Div", {"products", "by"}, {"p"});
  file.integers("z", {3}, {1, kLarge, kLarge}).integers("large", {}, {kLarge});
  file.node("CumSum", {"z", "axis"}, {"sums"}, {{"reverse", int64_t{1}}, {"exclusive", int64_t{1}}});
  file.node("Div", {"sums", "large"}, {"s"}).integers("last", {}, {-1});
  file.node("CumSum", {"x", "last"}, {"t"});
  file.node("Sum", {"large", "z", "large"}, {"all"}).node("Div", {"all", "large"}, {"u"});
  const WideArrays results = run(file, {});
  EXPECT_EQ(results.at("p"), (Numbers{1, 0, 100000, 0}));
  EXPECT_EQ(results.at("s"), (Numbers{2, 1, 0}));
  EXPECT_EQ(results.at("t"), (Numbers{100000, 100003, 100000, 100004}));
  EXPECT_EQ(results.at("u"), (Numbers{2, 3, 3}));
}

TEST(OnnxConstants, NormsHave64Bits) {
  constexpr int64_t kLarge = int64_t{1} << 31;
  constexpr int32_t kUint64 = 13;
  OnnxFile file;
  file.output("m").output("s").output("u").output("t").integers("axis", {1}, {1});
  file.integers("x", {2, 2}, {-3 * kLarge, kLarge, -1, 7}).integers("large", {}, {kLarge});
  file.node("ReduceL1", {"x", "axis"}, {"sizes"}, {{"keepdims", int64_t{0}}});
  file.node("Div", {"sizes", "large"}, {"m"});
  // The last sum is 2^63, which wraps around as in NumPy.
  file.integers("y", {3, 2}, {kLarge, 1, -3, 4, kLarge, -kLarge}).integers("by", {}, {int64_t{1} << 60});
  file.node("ReduceSumSquare", {"y", "axis"}, {"squares"}).node("Div", {"squares", "by"}, {"s"});
  wire::TensorProto& whole = file.initializer("z", {2}, kUint64);
  whole.add_uint64_data(UINT64_MAX);
  whole.add_uint64_data(6);
  file.node("ReduceL1", {"z"}, {"u"}).integers("none", {0, 2}, {}).node("ReduceL1", {"none"}, {"t"});
  const WideArrays results = run(file, {});
  EXPECT_EQ(results.at("m"), (Numbers{4, 0}));
  EXPECT_EQ(results.at("s"), (Numbers{4, 0, -8}));
  EXPECT_EQ(results.at("u"), (Numbers{5}));
  EXPECT_EQ(results.at("t"), (Numbers{0}));
}

TEST(OnnxConstants, IntegersWithoutASignMayHave64Bits) {
  constexpr int32_t kUint64 = 13;
  OnnxFile file;
  const auto numbers = [&](const char* name, const std::vector<uint64_t>& values) {
    wire::TensorProto& made = file.initializer(name, {static_cast<int64_t>(values.size())}, kUint64);
    for (const uint64_t value : values) made.add_uint64_data(value);
  };
  numbers("x", {UINT64_MAX, 6});
  numbers("y", {7});
  numbers("quarter", {uint64_t{1} << 62});
  const auto add = [&](const char* operation, const std::vector<std::string>& inputs) {
    file.output(operation).node(operation, inputs, {operation});
  };
  const auto add_quarters = [&](const char* operation, const std::vector<std::string>& inputs) {
    const std::string all = std::string(operation) + " in units";
    file.output(operation).node(operation, inputs, {all}).node("Div", {all, "quarter"}, {operation});
  };
  for (const char* comparison : {"Less", "Greater", "LessOrEqual"}) add(comparison, {"x", "y"});
  for (const char* operation : {"Min", "Mod"}) add(operation, {"x", "y"});
  for (const char* operation : {"Sign", "ReduceMin"}) add(operation, {"x"});
  add_quarters("Max", {"x", "y"});
  for (const char* operation : {"Abs", "ReduceMax"}) add_quarters(operation, {"x"});
  file.output("Cast").node("Cast", {"x"}, {"Cast"}, {{"to", int64_t{1}}});
  const WideArrays results = run(file, {});
  EXPECT_EQ(results.at("Less"), (Numbers{0, 1}));
  EXPECT_EQ(results.at("Greater"), (Numbers{1, 0}));
  EXPECT_EQ(results.at("LessOrEqual"), (Numbers{0, 1}));
  EXPECT_EQ(results.at("Min"), (Numbers{7, 6}));
  EXPECT_EQ(results.at("Mod"), (Numbers{1, 6}));  // 2^64 is 2 more than a multiple of 7
  EXPECT_EQ(results.at("Sign"), (Numbers{1, 1}));
  EXPECT_EQ(results.at("ReduceMin"), (Numbers{6}));
  EXPECT_EQ(results.at("Max"), (Numbers{3, 0}));
  EXPECT_EQ(results.at("Abs"), (Numbers{3, 0}));
  EXPECT_EQ(results.at("ReduceMax"), (Numbers{3}));
  EXPECT_EQ(results.at("Cast"), (Numbers{18446744073709551616.0, 6}));
}

TEST(OnnxConstants, TheLargestOrLeastOfTruthValuesIsWhetherAnyOrAllHold) {
  OnnxFile file;
  file.output("any").output("all").initializer("x", {2}, test::kBool).set_raw_data(std::string("\x01\0", 2));
  file.node("ReduceMax", {"x"}, {"any"}).node("ReduceMin", {"x"}, {"all"});
  const WideArrays results = run(file, {});
  EXPECT_EQ(results.at("any"), (Numbers{1}));
  EXPECT_EQ(results.at("all"), (Numbers{0}));
}

TEST(OnnxConstants, ConstantsHaveNumbersOfTheirTypes) {
  constexpr int32_t kInt8 = 3;
  OnnxFile file;
  file.output("b").output("i").output("u");
  file.initializer("truth", {2}, test::kBool).add_int32_data(2);
  file.initializer("narrow", {2}, kInt8).add_int32_data(300);
  file.initializer("wide", {2}, test::kUint32).add_uint64_data((uint64_t{1} << 32) + 5);
  wire::GraphProto& graph = *file.model().mutable_graph();
  for (int i = 0; i < 2; ++i) graph.mutable_initializer(i)->add_int32_data(0);
  graph.mutable_initializer(2)->add_uint64_data(7);
  file.node("Cast", {"truth"}, {"b"}, {{"to", int64_t{test::kInt64}}}).node("Identity", {"narrow"}, {"i"});
  file.node("Identity", {"wide"}, {"u"});
  const WideArrays results = run(file, {});
  EXPECT_EQ(results.at("b"), (Numbers{1, 0}));
  EXPECT_EQ(results.at("i"), (Numbers{44, 0}));
  EXPECT_EQ(results.at("u"), (Numbers{5, 7}));
}

TEST(OnnxConstants, IntegersOfFewBitsShareBytes) {
  struct Case {
    int32_t type;
    Numbers numbers;
  };
  const Case cases[] = {{21, {15, 8, 1}}, {22, {-1, -8, 1}}, {25, {3, 3, 0}}, {26, {-1, -1, 0}}};
  for (const Case& each : cases)
    for (const bool is_raw : {true, false}) {
      OnnxFile file;
      file.input("x", {3}).output("y").output("i").floats("scale", {}, {0.5F});
      wire::TensorProto& numbers = file.initializer("q", {3}, each.type);
      if (is_raw) {
        numbers.set_raw_data(each.type < 25 ? "\x8F\x01" : "\x8F");
      } else {
        numbers.add_int32_data(0x8F);
        if (each.type < 25) numbers.add_int32_data(1);
      }
      file.initializer("zero", {}, each.type).add_int32_data(1);
      file.node("DequantizeLinear", {"q", "scale", "zero"}, {"w"}).node("Add", {"x", "w"}, {"y"});
      file.node("Cast", {"q"}, {"i"}, {{"to", int64_t{test::kInt64}}});
      const WideArrays results = run(file, {{"x", {0, 0, 0}}});
      EXPECT_EQ(results.at("i"), each.numbers) << each.type;
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(results.at("y")[i], 0.5 * (each.numbers[i] - 1)) << each.type;
    }
}

TEST(OnnxConstants, FewBitsBoundWhatIsQuantised) {
  for (const auto& [type, low, high] :
       {std::tuple(21, 0.0, 7.5), {22, -4.0, 3.5}, {25, 0.0, 1.5}, {26, -1.0, 0.5}}) {
    OnnxFile file(25);
    file.input("x", {3})
        .output("y")
        .output("w")
        .floats("scale", {}, {0.5F})
        .floats("c", {3}, {-100, 0.4F, 100});
    for (const auto& [from, to] : {std::pair("x", "y"), {"c", "w"}}) {
      const std::string quantised = std::string("q") + from;
      file.node("QuantizeLinear", {from, "scale"}, {quantised}, {{"output_dtype", int64_t{type}}});
      file.node("DequantizeLinear", {quantised, "scale"}, {to});
    }
    const WideArrays results = run(file, {{"x", {-100, 0.25, 100}}});
    EXPECT_EQ(results.at("y"), (Numbers{low, 0.25, high})) << type;
    EXPECT_EQ(results.at("w"), (Numbers{low, 0.5, high})) << type;
  }
}

TEST(OnnxConstants, SparseIntegersAreTheirElements) {
  constexpr int32_t kInt8 = 3;
  OnnxFile file;
  file.input("x", {1, 2}).output("y").floats("scale", {}, {0.5F});
  wire::SparseTensorProto& sparse = *file.model().mutable_graph()->add_sparse_initializer();
  for (const int64_t size : {2, 3}) sparse.add_dims(size);
  wire::TensorProto &values = *sparse.mutable_values(), &indices = *sparse.mutable_indices();
  values.set_name("s");
  values.set_data_type(kInt8);
  values.add_dims(2);
  indices.set_data_type(test::kInt64);
  indices.add_dims(2);
  for (const int32_t each : {-6, 8}) values.add_int32_data(each);
  for (const int64_t each : {1, 5}) indices.add_int64_data(each);
  file.node("DequantizeLinear", {"s", "scale"}, {"w"}).node("MatMul", {"x", "w"}, {"y"});
  EXPECT_EQ(run(file, {{"x", {1, 2}}}).at("y"), (Numbers{0, -3, 8}));
  EXPECT_EQ(test::import(file).layers.at(0).zeros.non_zeros, 2U);
}

}  // namespace
}  // namespace tessera::onnx
