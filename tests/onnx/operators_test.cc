// Models of ONNX files compared with float64, operator by operator.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "onnx/run.h"
#include "support/error_of.h"

namespace tessera::onnx {
namespace {

using graph::WideArrays;
using test::count;
using test::import;
using test::Numbers;
using test::OnnxFile;
using test::run;

TEST(OnnxOperators, ProductsHaveTheirWeightsAndBiases) {
  OnnxFile file;
  file.input("x", {2, 3}).output("y");
  file.floats("w", {3, 2}, {1, 2, 3, 4, 5, 6}).floats("b", {2}, {10, 20});
  file.node("MatMul", {"x", "w"}, {"p"}).node("Add", {"p", "b"}, {"y"});
  EXPECT_EQ(run(file, {{"x", {1, 0, 0, 0, 1, 1}}}).at("y"), (Numbers{11, 22, 18, 30}));
  // The sum is part of the product.
  EXPECT_EQ(import(file).graph.nodes().size(), 1u);
}

TEST(OnnxOperators, ProductsMayPassThroughSixDimensions) {
  OnnxFile file;
  file.input("x", {2, 2}).output("y").floats("w", {2, 2}, {1, 0, 0, 1}).floats("b", {2}, {10, 20});
  file.integers("six", {6}, {1, 2, 1, 1, 1, 2}).integers("two", {2}, {2, 2});
  file.node("MatMul", {"x", "w"}, {"p"})
      .node("Reshape", {"p", "six"}, {"r"})
      .node("Add", {"r", "b"}, {"s"})
      .node("Transpose", {"s"}, {"t"}, {{"perm", std::vector<int64_t>{0, 5, 2, 3, 4, 1}}})
      .node("Reshape", {"t", "two"}, {"y"});
  EXPECT_EQ(run(file, {{"x", {1, 2, 3, 4}}}).at("y"), (Numbers{11, 13, 22, 24}));

  OnnxFile factor;  // transposed before its elements are grouped in another way
  factor.input("x", {2, 3, 4}).input("a", {8, 1, 1}).output("y");
  factor.integers("six", {6}, {2, 2, 2, 1, 1, 3}).integers("three", {3}, {8, 1, 3});
  factor.node("Transpose", {"x"}, {"t"}, {{"perm", std::vector<int64_t>{0, 2, 1}}})
      .node("Reshape", {"t", "six"}, {"s"})
      .node("Reshape", {"s", "three"}, {"r"})
      .node("MatMul", {"a", "r"}, {"y"});
  Numbers x(24), transposed;
  std::iota(x.begin(), x.end(), 0);
  for (size_t i = 0; i < 24; ++i) transposed.push_back(x[i / 12 * 12 + i % 3 * 4 + i / 3 % 4]);
  EXPECT_EQ(run(factor, {{"x", x}, {"a", Numbers(8, 1)}}).at("y"), transposed);
}

TEST(OnnxOperators, WeightsMayBeReshapedTransposes) {
  OnnxFile file;
  file.input("x", {1, 2}).output("y").floats("w", {2, 3}, {1, 2, 3, 4, 5, 6}).integers("shape", {2}, {2, 3});
  file.node("Transpose", {"w"}, {"t"})
      .node("Reshape", {"t", "shape"}, {"r"})
      .node("MatMul", {"x", "r"}, {"y"});
  EXPECT_EQ(run(file, {{"x", {1, 10}}}).at("y"), (Numbers{51, 34, 62}));
}

TEST(OnnxOperators, WeightsMayHaveMoreDimensionsOfOne) {
  struct Case {
    std::vector<int64_t> weight, x;
    bool is_left;
    const char* shape;
  };
  const Numbers rows = {1, 0, 0, 1, 1, 1}, columns = {1, 0, 1, 0, 1, 1};
  for (const Case& each : {Case{{1, 2, 2}, {3, 1, 2}, false, "float32[3, 1, 2]"},
                           Case{{1, 1, 2, 2}, {3, 2}, false, "float32[1, 1, 3, 2]"},
                           Case{{1, 2, 2}, {2, 3}, true, "float32[1, 2, 3]"}}) {
    OnnxFile file;
    file.input("x", each.x).output("y").floats("w", each.weight, {1, 2, 3, 4});
    file.node("MatMul",
              each.is_left ? std::vector<std::string>{"w", "x"} : std::vector<std::string>{"x", "w"}, {"y"});
    const ImportedModel imported = import(file);
    EXPECT_EQ(to_string(imported.outputs[0]), each.shape);
    ASSERT_EQ(imported.layers.size(), 1u);
    EXPECT_EQ(imported.layers[0].name, "w");
    EXPECT_EQ(imported.layers[0].why_dense(), "no zeros");
    EXPECT_EQ(run(imported, {{"x", each.is_left ? columns : rows}}).at("y"),
              each.is_left ? (Numbers{1, 2, 3, 3, 4, 7}) : (Numbers{1, 2, 3, 4, 4, 6}));
  }
  OnnxFile vector;
  vector.input("x", {2}).output("y").floats("w", {1, 2, 2}, {1, 2, 3, 4}).node("MatMul", {"x", "w"}, {"y"});
  EXPECT_EQ(run(vector, {{"x", {1, 10}}}).at("y"), (Numbers{31, 42}));
  EXPECT_EQ(to_string(import(vector).outputs[0]), "float32[1, 2]");
}

TEST(OnnxOperators, GeneralProductsScaleAndTranspose) {
  OnnxFile file;
  file.input("x", {2, 1}).input("c", {1}).output("y");
  file.floats("w", {3, 2}, {1, 2, 3, 4, 5, 6});
  file.node("Gemm", {"x", "w", "c"}, {"y"},
            {{"transA", int64_t{1}}, {"transB", int64_t{1}}, {"alpha", 2.0F}, {"beta", 3.0F}});
  EXPECT_EQ(run(file, {{"x", {1, 10}}, {"c", {1}}}).at("y"), (Numbers{45, 89, 133}));

  OnnxFile left;
  left.input("x", {1, 2}).input("c", {3, 1}).output("y");
  left.floats("w", {2, 3}, {1, 2, 3, 4, 5, 6});
  left.node("Gemm", {"w", "x", "c"}, {"y"},
            {{"transA", int64_t{1}}, {"transB", int64_t{1}}, {"alpha", 2.0F}, {"beta", 3.0F}});
  EXPECT_EQ(run(left, {{"x", {1, 10}}, {"c", {1, 2, 3}}}).at("y"), (Numbers{85, 110, 135}));
  const ImportedModel imported = import(left);
  ASSERT_EQ(imported.layers.size(), 1u);
  EXPECT_EQ(imported.layers[0].name, "w");
  EXPECT_EQ(imported.layers[0].why_dense(), "no zeros");
}

/// An equation of the numbers 1, 2, … in inputs of these shapes; one of them may be a constant.
Numbers einsum(const char* equation, const std::vector<std::vector<int64_t>>& shapes,
               std::optional<size_t> constant = {}) {
  OnnxFile file;
  WideArrays inputs;
  std::vector<std::string> names;
  for (const std::vector<int64_t>& shape : shapes) {
    names.push_back(std::string(1, static_cast<char>('a' + names.size())));
    int64_t size = 1;
    for (const int64_t each : shape) size *= each;
    Numbers numbers(static_cast<size_t>(size));
    std::iota(numbers.begin(), numbers.end(), 1);
    if (constant == names.size() - 1) {
      file.floats(names.back(), shape, {numbers.begin(), numbers.end()});
    } else {
      file.input(names.back(), shape);
      inputs[names.back()] = numbers;
    }
  }
  file.output("y").node("Einsum", names, {"y"}, {{"equation", equation}});
  return run(file, inputs).at("y");
}

TEST(OnnxOperators, EquationsHaveAnyNumberOfInputs) {
  EXPECT_EQ(einsum("->", {{}}), (Numbers{1}));
  EXPECT_EQ(einsum("ij->i", {{2, 3}}), (Numbers{6, 15}));
  EXPECT_EQ(einsum("ij->ji", {{2, 3}}), (Numbers{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(einsum("ba", {{2, 3}}), (Numbers{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(einsum("ii->i", {{2, 2}}), (Numbers{1, 4}));
  EXPECT_EQ(einsum("ii", {{2, 2}}), (Numbers{5}));
  EXPECT_EQ(einsum("iii->i", {{2, 2, 2}}), (Numbers{1, 8}));
  EXPECT_EQ(einsum("...ii ->...i", {{2, 2, 2}}), (Numbers{1, 4, 5, 8}));
  EXPECT_EQ(einsum("ij...->...j", {{2, 2, 2}}), (Numbers{6, 10, 8, 12}));
  EXPECT_EQ(einsum("i,i", {{3}, {3}}), (Numbers{14}));
  EXPECT_EQ(einsum("ij,k->ik", {{2, 3}, {2}}), (Numbers{6, 12, 15, 30}));
  EXPECT_EQ(einsum("i,jj->i", {{2}, {2, 2}}), (Numbers{5, 10}));
  EXPECT_EQ(einsum("...ij,...j->...i", {{2, 1, 2}, {2, 2}}), (Numbers{5, 25}));
  EXPECT_EQ(einsum("i,ij,jk->k", {{2}, {2, 2}, {2, 3}}), (Numbers{47, 64, 81}));
}

TEST(OnnxOperators, EquationsMayHaveWeightsOnEitherSide) {
  const auto expect_same = [](const char* equation, const std::vector<std::vector<int64_t>>& shapes) {
    for (const size_t constant : {0U, 1U})
      EXPECT_EQ(einsum(equation, shapes, constant), einsum(equation, shapes)) << equation << constant;
  };
  expect_same("ij,jk->ik", {{2, 3}, {3, 2}});
  expect_same("ji,bkj->bik", {{3, 4}, {2, 2, 3}});
  expect_same("bth,hnd->btnd", {{2, 3, 2}, {2, 3, 2}});
  expect_same("nhd,bdnt->bth", {{2, 3, 2}, {2, 2, 2, 2}});
  expect_same("gij,gjk->gik", {{2, 3, 2}, {2, 2, 4}});
  expect_same("bij,ij->b", {{2, 3, 2}, {3, 2}});
  expect_same("i,j->ij", {{2}, {3}});
  expect_same("ijl,jk->ik", {{2, 3, 2}, {3, 2}});
}

TEST(OnnxOperators, EquationsFitTheirInputs) {
  EXPECT_ERROR("names other dimensions", einsum("ij->i", {{2}}));
  EXPECT_ERROR("names other dimensions", einsum("ij...->i", {{2}}));
  EXPECT_ERROR("more inputs", einsum("i,i->i", {{2}}));
  EXPECT_ERROR("fewer inputs", einsum("i->i", {{2}, {2}}));
  EXPECT_ERROR("that no input has", einsum("i->j", {{2}}));
  EXPECT_ERROR("a dimension twice", einsum("i->ii", {{2}}));
  EXPECT_ERROR("only letters", einsum("0->0", {{2}}));
  EXPECT_ERROR("only letters", einsum("i->i->i", {{2}}));
  EXPECT_ERROR("two sizes", einsum("ii->i", {{2, 3}}));
  EXPECT_ERROR("two sizes", einsum("i,i->i", {{2}, {3}}));
}

TEST(OnnxOperators, ShapesAreComputedWhileTheModelIsRead) {
  OnnxFile file;
  file.input("x", {-1, -2, 4}).output("y");
  file.integers("zero", {}, {0})
      .integers("one", {}, {1})
      .integers("rest", {1}, {-1})
      .integers("axes", {1}, {0});
  file.node("Shape", {"x"}, {"s"})
      .node("Gather", {"s", "zero"}, {"n"})
      .node("Gather", {"s", "one"}, {"t"})
      .node("Mul", {"n", "t"}, {"rows"})
      .node("Unsqueeze", {"rows", "axes"}, {"first"})
      .node("Concat", {"first", "rest"}, {"shape"}, {{"axis", int64_t{0}}})
      .node("Reshape", {"x", "shape"}, {"y"});
  const ImportedModel imported = import(file, {.shapes = {{"x", {2, 3, 4}}}});
  EXPECT_EQ(to_string(imported.outputs[0]), "float32[6, 4]");
  EXPECT_EQ(imported.graph.nodes().size(), 1u);
  EXPECT_EQ(to_string(import(file, {.shapes = {{"a", {5}}, {"b", {1}}}}).outputs[0]), "float32[5, 4]");
}

/// softmax(q · kᵀ / 2 + mask) · v of two heads, as exporters write it; `in_steps`, through a logarithm, which
/// attention does not have.
OnnxFile attention(const std::vector<float>& mask, bool in_steps = false) {
  OnnxFile file;
  file.input("q", {1, 3, 8}).input("k", {1, 3, 8}).input("v", {1, 3, 8}).output("y");
  file.integers("heads", {4}, {0, 0, 2, 4}).integers("whole", {3}, {0, 0, -1});
  file.floats("half", {}, {0.5F}).floats("mask", {1, 1, 3, 3}, mask);
  const std::vector<int64_t> heads_first = {0, 2, 1, 3}, keys = {0, 2, 3, 1};
  for (const char* each : {"q", "k", "v"}) file.node("Reshape", {each, "heads"}, {std::string(each) + "h"});
  file.node("Transpose", {"qh"}, {"qt"}, {{"perm", heads_first}})
      .node("Transpose", {"kh"}, {"kt"}, {{"perm", keys}})
      .node("Transpose", {"vh"}, {"vt"}, {{"perm", heads_first}})
      .node("MatMul", {"qt", "kt"}, {"s"})
      .node("Mul", {"s", "half"}, {"scaled"})
      .node("Add", {"scaled", "mask"}, {"masked"})
      .node(in_steps ? "LogSoftmax" : "Softmax", {"masked"}, {in_steps ? "l" : "p"}, {{"axis", int64_t{-1}}});
  if (in_steps) file.node("Exp", {"l"}, {"p"});
  file.node("MatMul", {"p", "vt"}, {"o"})
      .node("Transpose", {"o"}, {"ot"}, {{"perm", heads_first}})
      .node("Reshape", {"ot", "whole"}, {"y"});
  return file;
}

TEST(OnnxOperators, AttentionIsOneOperation) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  const auto causal = import(attention({0, kHidden, kHidden, 0, 0, kHidden, 0, 0, 0}));
  EXPECT_EQ(count(causal.graph, "attention"), 1u) << to_string(causal.graph);
  EXPECT_EQ(count(causal.graph, "softmax"), 0u) << to_string(causal.graph);
  EXPECT_EQ(count(causal.graph, "right"), 1u) << to_string(causal.graph);
  const auto other = import(attention({0, -1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(count(other.graph, "softmax"), 0u);
  EXPECT_EQ(count(other.graph, "right"), 0u);
}

TEST(OnnxOperators, AttentionIsWhatItsPartsAre) {
  const std::vector<float> mask = {0, -1, 2, 0, 0, 0, 0.5F, 0, 0};
  WideArrays inputs;
  for (const std::string name : {"q", "k", "v"})
    for (int i = 0; i < 24; ++i) inputs[name].push_back(std::sin(1.7 * i + static_cast<double>(name[0])));
  const Numbers fused = run(attention(mask), inputs).at("y"),
                plain = run(attention(mask, true), inputs).at("y");
  ASSERT_EQ(fused.size(), plain.size());
  for (size_t i = 0; i < fused.size(); ++i) EXPECT_NEAR(fused[i], plain[i], 1e-6);
}

/// The separate operator, with queries 1 and -2, keys 1, 2, 3 and values 5, 7, 100; the first `keys` of them
/// are no padding.
WideArrays attention_of(double keys, const std::vector<OnnxFile::Attribute>& attributes) {
  OnnxFile file(24);
  file.input("q", {1, 1, 2, 1})
      .input("k", {1, 1, 3, 1})
      .input("v", {1, 1, 3, 1})
      .input("n", {1}, test::kInt64);
  file.output("y").output("s").node("Attention", {"q", "k", "v", "", "", "", "n"}, {"y", "", "", "s"},
                                    attributes);
  WideArrays results = run(file, {{"q", {1, -2}}, {"k", {1, 2, 3}}, {"v", {5, 7, 100}}, {"n", {keys}}});
  // Without the output of scores it is one operation, unless scores have a cap.
  wire::GraphProto& graph = *file.model().mutable_graph();
  graph.mutable_node(0)->mutable_output()->RemoveLast();
  graph.mutable_output()->RemoveLast();
  const Numbers alone =
      run(file, {{"q", {1, -2}}, {"k", {1, 2, 3}}, {"v", {5, 7, 100}}, {"n", {keys}}}).at("y");
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(results.at("y")[i], alone[i], 1e-6);
  return results;
}

TEST(OnnxOperators, AttentionHasCapsAndScores) {
  const OnnxFile::Attribute scale("scale", 1.0F), cap("softcap", 2.0F);
  const auto mode = [](int64_t of) { return OnnxFile::Attribute("qk_matmul_output_mode", of); };
  const Numbers raw = {1, 2, 3, -2, -4, -6};
  EXPECT_EQ(attention_of(2, {scale, cap, mode(0)}).at("s"), raw);
  const WideArrays capped = attention_of(2, {scale, cap, mode(1)});
  Numbers powers;
  for (size_t i = 0; i < raw.size(); ++i) {
    const double score = 2 * std::tanh(raw[i] / 2);
    EXPECT_NEAR(capped.at("s")[i], score, 1e-6);
    powers.push_back(i % 3 < 2 ? std::exp(score) : 0);
  }
  for (size_t i = 0; i < 2; ++i) {
    const double* const p = &powers[3 * i];
    EXPECT_NEAR(capped.at("y")[i], (5 * p[0] + 7 * p[1]) / (p[0] + p[1]), 1e-6);
  }
  const Numbers hidden = attention_of(2, {scale, mode(2)}).at("s");
  EXPECT_EQ(hidden[1], 2);
  EXPECT_EQ(hidden[2], -std::numeric_limits<double>::infinity());
}

TEST(OnnxOperators, AttentionCountsFromTheEndOfTheKeys) {
  const OnnxFile::Attribute causal("is_causal", int64_t{1}), mode("qk_matmul_output_mode", int64_t{3});
  const auto seen = [&](double keys) {
    Numbers probabilities = attention_of(keys, {causal, mode}).at("s");
    for (double& each : probabilities) each = each > 0 ? 1 : 0;
    return probabilities;
  };
  EXPECT_EQ(seen(3), (Numbers{1, 1, 0, 1, 1, 1}));
  EXPECT_EQ(seen(2), (Numbers{1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(seen(1), (Numbers{0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(attention_of(0, {mode}).at("y"), (Numbers{0, 0}));
}

/// softmax of q · kᵀ where a condition holds, and of a number elsewhere, times v.
OnnxFile hidden(float number, bool is_constant, bool in_steps) {
  OnnxFile file;
  for (const char* each : {"q", "k", "v"}) file.input(each, {1, 2, 2});
  file.output("y").floats("low", {}, {number});
  if (is_constant)
    file.initializer("holds", {2, 2}, test::kBool).set_raw_data(std::string("\x01\x00\x00\x00", 4));
  else
    file.input("holds", {2, 2}, test::kBool);
  file.node("Transpose", {"k"}, {"kt"}, {{"perm", std::vector<int64_t>{0, 2, 1}}})
      .node("MatMul", {"q", "kt"}, {"s"})
      .node("Where", {"holds", "s", "low"}, {"masked"})
      .node(in_steps ? "LogSoftmax" : "Softmax", {"masked"}, {in_steps ? "l" : "p"}, {{"axis", int64_t{-1}}});
  if (in_steps) file.node("Exp", {"l"}, {"p"});
  file.node("MatMul", {"p", "v"}, {"y"});
  return file;
}

TEST(OnnxOperators, RowsThatAreHiddenWhollyAreMeans) {
  for (const float number : {-1e4F, -3e38F})
    for (const bool is_constant : {false, true}) {
      WideArrays inputs = {{"q", {1, 2, 3, -4}}, {"k", {0.5, 1, -1, 2}}, {"v", {1, 2, 3, 4}}};
      if (!is_constant) inputs["holds"] = {1, 0, 0, 0};
      const Numbers y = run(hidden(number, is_constant, false), inputs).at("y"),
                    expected = run(hidden(number, is_constant, true), inputs).at("y");
      const Numbers means = {1, 2, 2, 3};
      for (size_t i = 0; i < means.size(); ++i) {
        EXPECT_NEAR(expected[i], means[i], 1e-6) << number;
        EXPECT_NEAR(y[i], means[i], 1e-6) << number;
      }
    }
}

TEST(OnnxOperators, MasksThatHideWholeRowsAreNoLimits) {
  // Two more queries than keys; the last query sees no key.
  OnnxFile file;
  file.input("q", {1, 3, 1}).input("k", {1, 1, 1}).input("v", {1, 1, 1}).output("y");
  file.floats("mask", {3, 1}, {0, -3e38F, -3e38F});
  file.node("Transpose", {"k"}, {"kt"}, {{"perm", std::vector<int64_t>{0, 2, 1}}})
      .node("MatMul", {"q", "kt"}, {"s"})
      .node("Add", {"s", "mask"}, {"masked"})
      .node("Softmax", {"masked"}, {"p"}, {{"axis", int64_t{-1}}})
      .node("MatMul", {"p", "v"}, {"y"});
  EXPECT_EQ(run(file, {{"q", {1, 2, 3}}, {"k", {2}}, {"v", {5}}}).at("y"), (Numbers{5, 5, 5}));
}

TEST(OnnxOperators, NarrowIntegersWrapAround) {
  constexpr int32_t kUnsigned = 2, kSigned = 3, kInt16 = 5, kInt32 = 6;
  const auto results = [](const char* operation, int32_t type, const Numbers& a, const Numbers& b) {
    OnnxFile file;
    const auto size = static_cast<int64_t>(a.size());
    file.input("a", {size}, type).input("b", {size}, type).output("y");
    file.node(operation, {"a", "b"}, {"r"}).node("Cast", {"r"}, {"y"}, {{"to", int64_t{1}}});
    return run(file, {{"a", a}, {"b", b}}).at("y");
  };
  EXPECT_EQ(results("Add", kUnsigned, {200, 1}, {100, 2}), (Numbers{44, 3}));
  EXPECT_EQ(results("Sub", kUnsigned, {3, 5}, {5, 3}), (Numbers{254, 2}));
  EXPECT_EQ(results("Mul", kSigned, {100, -7}, {3, 3}), (Numbers{44, -21}));
  EXPECT_EQ(results("Add", kInt16, {32767, -32768}, {1, -1}), (Numbers{-32768, 32767}));
  EXPECT_EQ(results("Div", kSigned, {-128, 7}, {-1, 2}), (Numbers{-128, 3}));
  OnnxFile cast;
  cast.input("x", {4}, kInt32).output("y").output("z");
  cast.node("Cast", {"x"}, {"u"}, {{"to", int64_t{kUnsigned}}})
      .node("Cast", {"u"}, {"s"}, {{"to", int64_t{kSigned}}})
      .node("Cast", {"u"}, {"y"}, {{"to", int64_t{1}}})
      .node("Cast", {"s"}, {"z"}, {{"to", int64_t{1}}});
  const WideArrays casts = run(cast, {{"x", {300, -1, 127, 65536 + 200}}});
  EXPECT_EQ(casts.at("y"), (Numbers{44, 255, 127, 200}));
  EXPECT_EQ(casts.at("z"), (Numbers{44, -1, 127, -56}));
}

TEST(OnnxOperators, UpdatesReplaceElementsOrReduceThem) {
  const auto scattered = [](const char* operation, const char* reduction, const Numbers& ids) {
    OnnxFile file;
    file.input("x", {3, 2})
        .input("ids", {2, 1}, test::kInt64)
        .input("u", {2, std::string(operation) == "ScatterND" ? 2 : 1});
    file.output("y").node(operation, {"x", "ids", "u"}, {"y"}, {{"reduction", reduction}});
    const Numbers updates = std::string(operation) == "ScatterND" ? Numbers{10, 20, 30, 40} : Numbers{10, 30};
    return run(file, {{"x", {1, 2, 3, 4, 5, 6}}, {"ids", ids}, {"u", updates}}).at("y");
  };
  EXPECT_EQ(scattered("ScatterND", "none", {-1, 0}), (Numbers{30, 40, 3, 4, 10, 20}));
  EXPECT_EQ(scattered("ScatterND", "none", {1, 1}), (Numbers{1, 2, 30, 40, 5, 6}));
  EXPECT_EQ(scattered("ScatterND", "add", {1, 1}), (Numbers{1, 2, 43, 64, 5, 6}));
  EXPECT_EQ(scattered("ScatterElements", "none", {-1, 0}), (Numbers{30, 2, 3, 4, 10, 6}));
  EXPECT_EQ(scattered("ScatterElements", "add", {1, 1}), (Numbers{1, 2, 43, 4, 5, 6}));
  EXPECT_NE(test::error_of([&] { scattered("ScatterND", "none", {3, 0}); }), "(no error)");
  EXPECT_NE(test::error_of([&] { scattered("ScatterElements", "none", {0, -4}); }), "(no error)");
  const Numbers ids = {1, 1};
  EXPECT_EQ(scattered("ScatterND", "mul", ids), (Numbers{1, 2, 900, 3200, 5, 6}));
  EXPECT_EQ(scattered("ScatterND", "max", ids), (Numbers{1, 2, 30, 40, 5, 6}));
  EXPECT_EQ(scattered("ScatterND", "min", ids), (Numbers{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(scattered("ScatterElements", "mul", {0, -1}), (Numbers{10, 2, 3, 4, 150, 6}));
  EXPECT_EQ(scattered("ScatterElements", "max", ids), (Numbers{1, 2, 30, 4, 5, 6}));
  EXPECT_EQ(scattered("ScatterElements", "min", ids), (Numbers{1, 2, 3, 4, 5, 6}));
  for (const char* reduction : {"add", "mul", "max", "min"})
    EXPECT_NE(test::error_of([&] { scattered("ScatterND", reduction, {3, 0}); }), "(no error)") << reduction;
  EXPECT_ERROR("a reduction by 'median' is not possible", scattered("ScatterND", "median", ids));
}

TEST(OnnxOperators, UpdatesOfIntegersWrapAround) {
  const auto scattered = [](const char* reduction, bool is_constant) {
    constexpr int32_t kSigned = 3;
    OnnxFile file;
    file.input("u", {2}, kSigned).output("y").integers("ids", {2, 1}, {1, 1});
    if (is_constant)
      file.initializer("x", {3}, kSigned).set_raw_data("\x01\x64\x03");
    else
      file.input("x", {3}, kSigned);
    file.node("ScatterND", {"x", "ids", "u"}, {"r"}, {{"reduction", reduction}})
        .node("Cast", {"r"}, {"y"}, {{"to", int64_t{1}}});
    WideArrays inputs = {{"u", {20, 30}}};
    if (!is_constant) inputs["x"] = {1, 100, 3};
    return run(file, inputs).at("y");
  };
  for (const bool is_constant : {false, true}) {
    EXPECT_EQ(scattered("add", is_constant), (Numbers{1, 150 - 256, 3}));
    EXPECT_EQ(scattered("mul", is_constant), (Numbers{1, 96, 3}));  // 60000 = 234 · 256 + 96
    EXPECT_EQ(scattered("min", is_constant), (Numbers{1, 20, 3}));
  }
}

TEST(OnnxOperators, ClassesMayHaveAFloatingPoint) {
  const auto one_hot = [](int32_t type, const Numbers& ids, float classes) {
    OnnxFile file;
    file.input("ids", {2}, type).output("y").floats("classes", {}, {classes}).floats("values", {2}, {1, 3});
    file.node("OneHot", {"ids", "classes", "values"}, {"y"});
    return run(file, {{"ids", ids}}).at("y");
  };
  EXPECT_EQ(one_hot(test::kInt64, {0, -1}, 3.5F), (Numbers{3, 1, 1, 1, 1, 3}));
  EXPECT_EQ(one_hot(test::kFloat, {1.75, -2}, 3), (Numbers{1, 3, 1, 1, 3, 1}));
  EXPECT_EQ(one_hot(test::kFloat, {3, 0}, 3), (Numbers{1, 1, 1, 3, 1, 1}));
  for (const float classes : {0.5F, -1.0F, std::nanf("")})
    EXPECT_ERROR("classes are not possible", one_hot(test::kInt64, {0, 1}, classes));
}

/// Adds [[0, 10, 0], [0, 0, 20]], by the positions of its numbers or by their rows and columns.
wire::SparseTensorProto& add_sparse(OnnxFile& file, bool by_place) {
  wire::SparseTensorProto& sparse = *file.model().mutable_graph()->add_sparse_initializer();
  for (const int64_t size : {2, 3}) sparse.add_dims(size);
  wire::TensorProto &values = *sparse.mutable_values(), &indices = *sparse.mutable_indices();
  values.set_name("s");
  values.set_data_type(test::kFloat);
  values.add_dims(2);
  for (const float each : {10.0F, 20.0F}) values.add_float_data(each);
  indices.set_data_type(test::kInt64);
  indices.add_dims(2);
  if (!by_place) indices.add_dims(2);
  for (const int64_t each : by_place ? std::vector<int64_t>{1, 5} : std::vector<int64_t>{0, 1, 1, 2})
    indices.add_int64_data(each);
  return sparse;
}

TEST(OnnxOperators, SparseInitializersAreTheirElements) {
  for (const bool by_place : {true, false}) {
    OnnxFile file;
    file.input("x", {2, 3}).output("y").node("Add", {"x", "s"}, {"y"});
    wire::SparseTensorProto& sparse = add_sparse(file, by_place);
    EXPECT_EQ(run(file, {{"x", {0, 0, 0, 0, 0, 1}}}).at("y"), (Numbers{0, 10, 0, 0, 0, 21}));
    wire::TensorProto& indices = *sparse.mutable_indices();
    for (const int64_t beyond : {int64_t{6}, int64_t{-1}}) {
      indices.set_int64_data(1, beyond);
      EXPECT_ERROR("is beyond [2, 3]", import(file));
    }
    for (int i = 0; i < indices.int64_data_size(); ++i) indices.set_int64_data(i, 1);
    EXPECT_ERROR("is given twice", import(file));
    indices.mutable_int64_data()->RemoveLast();
    indices.set_dims(0, 1);
    if (by_place) {
      EXPECT_ERROR("need as many whole indices", import(file));
    }
  }
}

TEST(OnnxOperators, SparseWeightsAreThoseOfProducts) {
  OnnxFile file;
  file.input("x", {1, 2}).output("y").node("MatMul", {"x", "s"}, {"y"});
  add_sparse(file, false);
  const ImportedModel imported = import(file);
  EXPECT_EQ(imported.layers.at(0).name, "s");
  EXPECT_EQ(imported.layers.at(0).zeros.non_zeros, 2u);
  EXPECT_EQ(run(imported, {{"x", {1, 2}}}).at("y"), (Numbers{0, 10, 40}));
}

TEST(OnnxOperators, WeightsMayHave16Bits) {
  const auto product = [](int32_t type, const std::vector<uint16_t>& bits, bool is_raw) {
    OnnxFile file;
    file.input("x", {1, 2}, type).output("y").node("MatMul", {"x", "w"}, {"y"});
    wire::TensorProto& weight = file.initializer("w", {2, 1}, type);
    if (is_raw) weight.set_raw_data(bits.data(), bits.size() * sizeof(uint16_t));
    for (const uint16_t each : bits)
      if (!is_raw) weight.add_int32_data(each);
    const ImportedModel imported = import(file);
    EXPECT_EQ(imported.layers.at(0).name, "w");
    EXPECT_EQ(to_string(imported.outputs[0]), type == 10 ? "float16[1, 1]" : "bfloat16[1, 1]");
    return run(imported, {{"x", {2, 1}}}).at("y");
  };
  for (const bool is_raw : {true, false}) {  // 1.5 and -2
    EXPECT_EQ(product(10, {0x3E00, 0xC000}, is_raw), (Numbers{1}));
    EXPECT_EQ(product(16, {0x3FC0, 0xC000}, is_raw), (Numbers{1}));
  }
}

TEST(OnnxOperators, NewerOperatorSetsAreNoted) {
  const auto notes_of = [](int64_t opset) {
    OnnxFile file(opset);
    return import(file.input("x", {2}).output("y").node("Relu", {"x"}, {"y"})).notes;
  };
  EXPECT_TRUE(notes_of(28).empty());
  ASSERT_EQ(notes_of(29).size(), 1u);
  EXPECT_TRUE(test::says(notes_of(29)[0], "the model is of operator set 29, newer than 28"));
}

TEST(OnnxOperators, QuotientsAreNoProducts) {
  for (const float divisor : {49.0F, 41.0F, 7.0F, 0.1F}) {
    OnnxFile file;
    file.input("x", {3}).output("y").floats("d", {}, {divisor});
    file.node("Div", {"x", "d"}, {"q"}).node("Floor", {"q"}, {"y"});
    const double d = divisor;
    EXPECT_EQ(run(file, {{"x", {d, 5 * d, -3 * d}}}).at("y"), (Numbers{1, 5, -3}));
    EXPECT_EQ(count(import(file).graph, "div"), 1u);
  }
  OnnxFile power;
  power.input("x", {1}).output("y").floats("d", {}, {-8}).node("Div", {"x", "d"}, {"y"});
  EXPECT_EQ(run(power, {{"x", {4}}}).at("y"), (Numbers{-0.5}));
  EXPECT_EQ(count(import(power).graph, "div"), 0u);
}

TEST(OnnxOperators, QuotientsBecomePartOfProducts) {
  OnnxFile file;
  file.input("x", {1, 2}).output("y").floats("w", {2, 2}, {1, 2, 3, 4}).floats("d", {2}, {3, 5});
  file.node("MatMul", {"x", "w"}, {"p"}).node("Div", {"p", "d"}, {"y"});
  const Numbers y = run(file, {{"x", {1, 10}}}).at("y");
  EXPECT_NEAR(y[0], 31.0 / 3, 1e-5);
  EXPECT_NEAR(y[1], 42.0 / 5, 1e-5);
  EXPECT_EQ(import(file).graph.nodes().size(), 1u);
  OnnxFile none = file;
  none.node("Div", {"d", "p"}, {"z"}).output("z");  // the product is the divisor
  EXPECT_NEAR(run(none, {{"x", {1, 10}}}).at("z")[1], 5.0 / 42, 1e-6);
}

TEST(OnnxOperators, BoundsBeyond32BitsBoundNothing) {
  OnnxFile file;
  file.input("x", {2}, test::kInt64)
      .output("y")
      .integers("least", {}, {INT64_MIN})
      .integers("most", {}, {INT64_MAX});
  file.integers("start", {1}, {0}).integers("end", {1}, {INT64_MAX});
  file.node("Clip", {"x", "least", "most"}, {"c"})
      .node("Min", {"c", "most"}, {"m"})
      .node("Max", {"least", "m"}, {"s"})
      .node("Slice", {"s", "start", "end"}, {"y"});
  const Numbers numbers = {-2147483648.0, 2147483647};
  EXPECT_EQ(run(file, {{"x", numbers}}).at("y"), numbers);
}

TEST(OnnxOperators, FunctionsAreExactAtBothEnds) {
  const auto expect_near = [](const char* operation, const Numbers& x, double (*function)(double)) {
    OnnxFile file;
    file.input("x", {static_cast<int64_t>(x.size())}).output("y").node(operation, {"x"}, {"y"});
    const ImportedModel imported = import(file);
    graph::Session session(imported.graph, Machine::host());
    const auto y = session.run({{"x", std::vector<float>(x.begin(), x.end())}}).at("y");
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = function(static_cast<double>(static_cast<float>(x[i])));
      EXPECT_NEAR(y[i], expected, 4e-6 * std::abs(expected)) << operation << " of " << x[i];
    }
  };
  expect_near("Asinh", {1e-20, -1e-6, 1e-3, -0.3, 0.9, 2, -4095, 4097, 1e20, -3e38}, std::asinh);
  expect_near("Acosh", {1, 1.00001, 1.5, 4095, 4097, 1e20, 3e38}, std::acosh);
  expect_near("Atanh", {1e-20, -1e-6, 1e-3, 0.4, -0.6, 0.999}, std::atanh);
  expect_near("Sinh", {1e-20, -1e-6, 1e-3, -0.49, 0.51, 3, -20, 89}, std::sinh);
  expect_near("Cosh", {0, 1e-3, -2, 20, 89}, std::cosh);
  expect_near("Atan", {0, 1e-20, -1e-6, 0.3, -0.5, 0.99, 2.4, -2.5, 1e20}, std::atan);
  expect_near("Asin", {0, 1e-20, -1e-6, 0.3, 0.49, -0.51, 0.99, 1, -1}, std::asin);
  expect_near("Acos", {-1, -0.51, -0.3, 0, 0.3, 0.49, 0.51, 0.99, 0.9999}, std::acos);
}

TEST(OnnxOperators, SlicesBackwardsFromBeforeTheStartTakeTheFirst) {
  for (const bool is_constant : {false, true}) {
    OnnxFile file;
    file.input("z", {1}).output("y");
    if (is_constant)
      file.floats("x", {4}, {1, 2, 3, 4});
    else
      file.input("x", {4});
    file.integers("start", {1}, {-10})
        .integers("end", {1}, {-20})
        .integers("axis", {1}, {0})
        .integers("step", {1}, {-1});
    file.node("Slice", {"x", "start", "end", "axis", "step"}, {"s"}).node("Add", {"s", "z"}, {"y"});
    WideArrays inputs = {{"z", {0}}};
    if (!is_constant) inputs["x"] = {1, 2, 3, 4};
    EXPECT_EQ(run(file, inputs).at("y"), (Numbers{1}));
  }
}

TEST(OnnxOperators, AnOrderThatIsEmptyIsTheReverse) {
  for (const bool is_constant : {false, true}) {
    OnnxFile file;
    file.input("z", {1}).output("y");
    if (is_constant)
      file.floats("x", {2, 3}, {1, 2, 3, 4, 5, 6});
    else
      file.input("x", {2, 3});
    file.node("Transpose", {"x"}, {"t"}, {{"perm", std::vector<int64_t>{}}}).node("Add", {"t", "z"}, {"y"});
    WideArrays inputs = {{"z", {0}}};
    if (!is_constant) inputs["x"] = {1, 2, 3, 4, 5, 6};
    EXPECT_EQ(run(file, inputs).at("y"), (Numbers{1, 4, 2, 5, 3, 6}));
  }
}

TEST(OnnxOperators, NothingIsInfiniteInWhatIsNotLookedAt) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                   kNan = std::numeric_limits<double>::quiet_NaN();
  OnnxFile file;
  file.input("x", {1, 4}).output("none").output("before").integers("axis", {}, {0});
  file.node("IsInf", {"x"}, {"none"}, {{"detect_negative", int64_t{0}}, {"detect_positive", int64_t{0}}})
      .node("CumSum", {"x", "axis"}, {"before"}, {{"exclusive", int64_t{1}}});
  const WideArrays results = run(file, {{"x", {kInfinity, -kInfinity, kNan, 1}}});
  EXPECT_EQ(results.at("none"), (Numbers{0, 0, 0, 0}));
  EXPECT_EQ(results.at("before"), (Numbers{0, 0, 0, 0}));
}

TEST(OnnxOperators, QuantisedWeightsAreWhatTheyMean) {
  OnnxFile file;
  file.input("x", {1, 2}).output("y");
  file.initializer("q", {2, 2}, 3).set_raw_data(std::string("\x01\x02\xFF\x00", 4));
  file.floats("scale", {}, {0.5F});
  file.initializer("zero", {}, 3).set_raw_data(std::string("\x01", 1));
  file.node("DequantizeLinear", {"q", "scale", "zero"}, {"w"}).node("MatMul", {"x", "w"}, {"y"});
  EXPECT_EQ(run(file, {{"x", {1, 1}}}).at("y"), (Numbers{-1, 0}));
  EXPECT_EQ(import(file).notes.size(), 1u);
}

TEST(OnnxOperators, WhatIsDequantisedHasTheTypeThatTheFileSays) {
  constexpr int32_t kSigned = 3, kHalf = 10;
  OnnxFile file(23);
  file.input("x", {2}, kSigned).output("of_value").output("of_constant").output("of_quantised");
  file.initializer("w", {2}, kSigned).set_raw_data(std::string("\x01\x02", 2));
  file.input("z", {2})
      .floats("scale", {}, {1 / 3.0F})
      .initializer("zero", {}, kSigned)
      .set_raw_data(std::string(1, '\0'));
  file.node("QuantizeLinear", {"z", "scale", "zero"}, {"q"});
  for (const auto& [from, to] :
       std::map<std::string, std::string>{{"x", "of_value"}, {"w", "of_constant"}, {"q", "of_quantised"}})
    file.node("DequantizeLinear", {from, "scale", "zero"}, {to}, {{"output_dtype", int64_t{kHalf}}});
  for (const ValueType& output : import(file).outputs) EXPECT_EQ(output.type, "float16") << output.name;
  const WideArrays results = run(file, {{"x", {1, 2}}, {"z", {1, 2}}});
  EXPECT_NEAR(results.at("of_value")[1], 2 / 3.0, 1e-3);
  EXPECT_NEAR(results.at("of_constant")[1], 2 / 3.0, 1e-3);
}

TEST(OnnxOperators, NormsOfHalfPrecisionDoNotOverflow) {
  constexpr int32_t kHalf = 10;
  OnnxFile file;
  file.input("x", {1, 1, 1, 2}, kHalf).input("z", {1, 1, 1, 2}, kHalf);
  for (const char* output : {"norm", "direction", "pooled", "local", "normal"}) file.output(output);
  file.node("ReduceL2", {"x"}, {"norm"}).node("LpNormalization", {"x"}, {"direction"});
  file.node("LpPool", {"x"}, {"pooled"}, {{"kernel_shape", std::vector<int64_t>{1, 2}}});
  file.node("LRN", {"x"}, {"local"}, {{"size", int64_t{1}}, {"alpha", 1.0F}, {"beta", 0.5F}, {"bias", 0.0F}});
  file.node("MeanVarianceNormalization", {"z"}, {"normal"});
  graph::Session session(import(file).graph, Machine::host(1));
  const graph::Arrays inputs = {{"x", {300, 400}}, {"z", {-300, 300}}};
  const graph::Arrays found = session.run(inputs);
  const WideArrays expected = {
      {"norm", {500}}, {"direction", {0.6, 0.8}}, {"pooled", {500}}, {"local", {1, 1}}, {"normal", {-1, 1}}};
  for (const auto& [name, numbers] : expected)
    for (size_t i = 0; i < numbers.size(); ++i)
      EXPECT_NEAR(found.at(name).at(i), numbers[i], 1e-3 * std::abs(numbers[i])) << name;
}

/// x quantised with one scale, and dequantised with another one.
OnnxFile quantised(float scale, float other) {
  OnnxFile file;
  file.input("x", {1, 3}).output("y").floats("s", {}, {scale}).floats("t", {}, {other});
  file.initializer("zero", {}, 2).set_raw_data(std::string(1, '\0'));
  file.node("QuantizeLinear", {"x", "s", "zero"}, {"q"}).node("DequantizeLinear", {"q", "t", "zero"}, {"y"});
  return file;
}

TEST(OnnxOperators, QuantisedValuesAreBounded) {
  // Only the bounds are left of a Relu.
  EXPECT_EQ(run(quantised(0.5F, 0.5F), {{"x", {-3, 2.25, 200}}}).at("y"), (Numbers{0, 2.25, 127.5}));
  OnnxFile followed = quantised(0.5F, 0.5F);
  followed.node("Neg", {"y"}, {"z"}).output("z");
  EXPECT_EQ(run(followed, {{"x", {-3, 2.25, 200}}}).at("z"), (Numbers{0, -2.25, -127.5}));
  const auto error = [](const OnnxFile& file) { return test::error_of([&] { import(file); }); };
  EXPECT_NE(error(quantised(0.5F, 1)).find("its scale or zero point differs from"), std::string::npos);
  OnnxFile taken = quantised(0.5F, 0.5F);
  taken.node("Cast", {"q"}, {"z"}, {{"to", int64_t{1}}}).output("z");
  EXPECT_NE(error(taken).find("only DequantizeLinear may"), std::string::npos);
  OnnxFile none = quantised(0.5F, 0.5F);
  none.floats("none", {0}, {}).initializer("w", {2}, 3).set_raw_data("ab");
  none.node("DequantizeLinear", {"w", "none"}, {"z"}).output("z");
  EXPECT_NE(error(none).find("it has no scale"), std::string::npos);
}

/// 0 is the least, which has no negative.
TEST(OnnxOperators, LeastPlacesOfUnsignedIntegers) {
  OnnxFile file;
  file.input("x", {2, 4}, test::kUint32).output("first").output("last");
  file.node("ArgMin", {"x"}, {"first"}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}})
      .node("ArgMin", {"x"}, {"last"},
            {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}, {"select_last_index", int64_t{1}}});
  constexpr double kMost = 4294967295;
  const WideArrays found = run(file, {{"x", {3, 0, kMost, 0, kMost, 2147483648, 7, 7}}});
  EXPECT_EQ(found.at("first"), (Numbers{1, 2}));
  EXPECT_EQ(found.at("last"), (Numbers{3, 3}));
}

TEST(OnnxOperators, ConvolutionsOfBothKindsShareAWeight) {
  OnnxFile file;
  file.input("x", {1, 2, 1}).output("y").floats("w", {2, 2, 1}, {1, 2, 3, 4});
  file.node("Conv", {"x", "w"}, {"h"}).node("ConvTranspose", {"h", "w"}, {"y"});
  EXPECT_EQ(run(file, {{"x", {1, 10}}}).at("y"), (Numbers{150, 214}));  // h = w · x = (21, 43), y = wᵀ · h
}

TEST(OnnxOperators, WeightsOfOneNameAreTheirOwn) {
  OnnxFile file;
  file.input("x", {1, 2}).output("y");
  for (const float factor : {2.0F, 3.0F}) {
    const std::string name = factor == 2 ? "a" : "b";
    file.node("Constant", {}, {name});
    wire::AttributeProto& value = *file.model().mutable_graph()->mutable_node()->rbegin()->add_attribute();
    value.set_name("value");
    wire::TensorProto& tensor = *value.mutable_t();
    tensor.set_name("value");
    tensor.set_data_type(test::kFloat);
    for (const int64_t size : {2, 2}) tensor.add_dims(size);
    for (const float each : {factor, 0.0F, 0.0F, 1.0F}) tensor.add_float_data(each);
  }
  file.node("MatMul", {"x", "a"}, {"h"}).node("MatMul", {"h", "b"}, {"y"});
  EXPECT_EQ(run(file, {{"x", {1, 1}}}).at("y"), (Numbers{6, 1}));
  const std::string content = file.content();
  const Model model = Model::parse(std::as_bytes(std::span(content)));
  for (int i = 0; i < 2; ++i) {  // which is the first graph, and one that has the weights of another
    const ImportedModel imported = model.import({});
    EXPECT_EQ(imported.layers.at(0).name, "value");
    EXPECT_EQ(imported.layers.at(1).name, "value#2");
  }
}

TEST(OnnxOperators, WeightsThatDependOnShapesAreNotThoseOfOthers) {
  OnnxFile file;
  file.input("x", {-1, 1}).output("y").floats("w", {1, 1}, {5});
  file.node("Shape", {"x"}, {"s"}, {{"end", int64_t{1}}})
      .node("Cast", {"s"}, {"n"}, {{"to", int64_t{1}}})
      .node("Mul", {"w", "n"}, {"v"})
      .node("MatMul", {"x", "v"}, {"y"});
  const std::string content = file.content();
  const Model model = Model::parse(std::as_bytes(std::span(content)));
  std::map<std::string, std::vector<float>> first, second;
  for (const uint32_t rows : {2U, 3U}) {
    const ImportedModel imported = model.import({.shapes = {{"x", {rows, 1}}}});
    for (const auto& [name, values] : initial_state(imported.graph))
      (rows == 2 ? first : second)[name].assign(values.begin(), values.end());
  }
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(first.begin()->second, (std::vector<float>{10}));
  EXPECT_EQ(second.begin()->second, (std::vector<float>{15}));
  EXPECT_NE(first.begin()->first, second.begin()->first);
}

TEST(OnnxOperators, ZerosAreKeptWhereThatPays) {
  OnnxFile file;
  const int64_t n = 512;
  std::vector<float> weight(n * n);
  for (size_t i = 0; i < weight.size(); i += 50) weight[i] = 1;
  file.input("x", {64, n}).output("y").floats("w", {n, n}, weight).node("MatMul", {"x", "w"}, {"y"});
  const ImportedModel sparse = import(file, {.threads = 1}),
                      dense = import(file, {.sparse = false, .threads = 1});
  ASSERT_EQ(sparse.layers.size(), 1u);
  EXPECT_TRUE(sparse.layers[0].is_sparse);
  EXPECT_FALSE(dense.layers[0].is_sparse);
  EXPECT_NEAR(sparse.layers[0].zeros.density, 0.02, 1e-3);
  WideArrays inputs;
  for (int i = 0; i < 64 * n; ++i) inputs["x"].push_back(i % 7 - 3);
  EXPECT_EQ(run(file, inputs).at("y"), run(file, inputs, {.sparse = false}).at("y"));
}

}  // namespace
}  // namespace tessera::onnx
