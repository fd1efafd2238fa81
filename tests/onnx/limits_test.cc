// Messages on wrong files, and on models that cannot become graphs.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/onnx.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/memory.h"
#include "support/error_of.h"
#include "support/onnx_file.h"

namespace tessera::onnx {
namespace {

using test::OnnxFile;

ImportedModel import(const std::string& content, const ImportOptions& options = {}) {
  return Model::parse(std::as_bytes(std::span(content)), "m.onnx").import(options);
}

std::string error_of(const OnnxFile& file, const ImportOptions& options = {}) {
  return test::error_of([&] { import(file.content(), options); });
}

void expect_says(const std::string& error, const std::string& part) {
  EXPECT_NE(error.find(part), std::string::npos) << error;
  EXPECT_NE(error.find("m.onnx"), std::string::npos) << error;
}

/// y = relu(x).
OnnxFile small() {
  OnnxFile file;
  file.input("x", {2}).output("y").node("Relu", {"x"}, {"y"});
  return file;
}

TEST(OnnxLimits, OtherFilesAreNone) {
  for (const std::string content : {"", "hello", "\x08\x07"})
    expect_says(test::error_of([&] { import(content); }), "it is not an ONNX file");
  expect_says(error_of([] {
                OnnxFile file(12);
                file.output("y");
                return file;
              }()),
              "its operator set is 12");
}

TEST(OnnxLimits, AllThatIsMissingIsListed) {
  OnnxFile file = small();
  file.node("Unheard", {"y"}, {"u"}).node("Relu", {"u"}, {"v"}).node("Strange", {"v"}, {"w"}).output("w");
  file.node("Einsum", {"x"}, {"z"}, {{"equation", "ij->ji"}});
  file.node("Foreign", {"w"}, {"f"}).output("f");
  wire::GraphProto& graph = *file.model().mutable_graph();
  graph.mutable_node(graph.node_size() - 1)->set_domain("com.acme");
  const std::string error = error_of(file);
  expect_says(error, "4 operators");
  for (const char* part :
       {"Unheard (\"u\")", "Strange (\"w\")", "Einsum (\"z\"): its equation", "com.acme.Foreign (\"f\")"})
    expect_says(error, part);
  EXPECT_THROW(import(file.content()), UnsupportedModelError);
}

TEST(OnnxLimits, CyclesAndDuplicatesAreNamed) {
  OnnxFile cycle;
  cycle.input("x", {2})
      .output("y")
      .node("Add", {"x", "b"}, {"a"})
      .node("Add", {"x", "a"}, {"b"})
      .node("Relu", {"b"}, {"y"});
  expect_says(error_of(cycle), "takes \"a\", which nothing before it computes");
  OnnxFile missing = small();
  missing.node("Relu", {"nothing"}, {"z"});
  expect_says(error_of(missing), "the node \"z\" (\"Relu\") takes \"nothing\", which nothing before it");
  OnnxFile twice = small();
  twice.node("Tanh", {"x"}, {"y"});
  expect_says(error_of(twice), "\"y\" is computed, or given, twice");
  OnnxFile two = small();
  two.floats("w", {1}, {1}).floats("w", {1}, {1});
  expect_says(error_of(two), "m.onnx: it has two initializers \"w\"");
  OnnxFile none = small();
  none.output("z");
  expect_says(error_of(none), "nothing computes its output \"z\"");
}

TEST(OnnxLimits, WhatIsMissingIsListedWithItsPlace) {
  OnnxFile file = small();
  const std::string layer = "/" + std::string(60, 'm') + "/layer.11/";
  file.node("Strange", {"y"}, {"s"}).node("F", {"x"}, {"f"}).node("F", {"y"}, {"g"}).output("f").output("g");
  file.node("Shape", {"s"}, {"n"}).node("If", {"n"}, {"i"}).output("i");  // which is not missing
  wire::GraphProto& graph = *file.model().mutable_graph();
  graph.mutable_node(1)->set_name(layer + "Strange");
  for (const int i : {2, 3}) graph.mutable_node(i)->set_domain("own");
  wire::FunctionProto& function = *file.model().add_functions();
  function.set_name("F");
  function.set_domain("own");
  function.add_input("a");
  function.add_output("b");
  wire::NodeProto& node = *function.add_node();
  node.set_op_type("Unheard");
  node.add_input("a");
  node.add_output("b");
  const std::string error = error_of(file);
  expect_says(error, "3 operators cannot be part of a graph");
  for (const std::string& part : {"Strange (\"" + layer + "Strange\")", std::string("Unheard (\"f/b\")"),
                                  std::string("Unheard (\"g/b\")")})
    expect_says(error, part);
}

TEST(OnnxLimits, ConstantsAreNotComputedWithoutEnd) {
  const ImportOptions few{.most_computed = 1 << 16};
  const auto of_constants = [](const std::vector<int64_t>& shape) {
    OnnxFile file;
    file.input("x", {1}).output("y").integers("shape", {static_cast<int64_t>(shape.size())}, shape);
    return file.node("ConstantOfShape", {"shape"}, {"c"});
  };
  const auto finished = [&](OnnxFile& file) {
    return error_of(file.node("ReduceMax", {"r"}, {"m"}).node("Add", {"x", "m"}, {"y"}), few);
  };
  constexpr const char* kTooMany = "takes too many steps";
  OnnxFile small_product = of_constants({64, 64}), product = of_constants({160, 160});
  EXPECT_EQ(finished(small_product.node("MatMul", {"c", "c"}, {"r"})), "(no error)");
  expect_says(finished(product.node("MatMul", {"c", "c"}, {"r"})), kTooMany);
  OnnxFile equation = of_constants({160, 160}), general = of_constants({160, 160});
  expect_says(finished(equation.node("Einsum", {"c", "c"}, {"r"}, {{"equation", "ij,kj->ik"}})), kTooMany);
  expect_says(finished(general.node("Gemm", {"c", "c"}, {"r"}, {{"transA", int64_t{1}}})), kTooMany);
  OnnxFile pooled = of_constants({1, 1, 128, 128}), convolved = pooled;
  pooled.node("MaxPool", {"c"}, {"r"}, {{"kernel_shape", std::vector<int64_t>{64, 64}}});
  expect_says(finished(pooled), kTooMany);
  convolved.integers("kernel", {4}, {1, 1, 64, 64}).node("ConstantOfShape", {"kernel"}, {"w"});
  expect_says(finished(convolved.node("Conv", {"c", "w"}, {"r"})), kTooMany);
  for (const int32_t type : {test::kFloat, test::kInt64}) {
    OnnxFile reduced = of_constants({1 << 15});
    reduced.node("Cast", {"c"}, {"numbers"}, {{"to", int64_t{type}}});
    for (int i = 0; i < 100; ++i) reduced.node("ReduceSum", {"numbers"}, {"r" + std::to_string(i)});
    expect_says(error_of(reduced.node("Identity", {"x"}, {"y"}), few), kTooMany);
  }
}

TEST(OnnxLimits, MessagesAreNotTooMany) {
  const auto field = [](int number, const std::string& content) {
    std::string bytes(1, static_cast<char>((number << 3) | 2));
    size_t left = content.size();
    for (; left > 127; left >>= 7) bytes += static_cast<char>(left % 128 + 128);
    return bytes + static_cast<char>(left) + content;
  };
  std::string many;
  for (int i = 0; i <= 1 << 23; ++i) many += std::string("\x0A\0", 2);  // fields 1 without content
  for (const std::string& graph : {many, field(1, many)})               // nodes, and inputs of a node
    expect_says(test::error_of([&] { import(field(7, graph)); }), "more than 8388608 messages and names");
}

TEST(OnnxLimits, AnnouncedSizesTakeNoMemory) {
  OnnxFile gigabytes = small();
  gigabytes.initializer("w", {1 << 20, 1 << 14}, test::kFloat).set_raw_data("abcd");
  expect_says(error_of(gigabytes), "4 are stored");
  OnnxFile absurd = small();
  absurd.initializer("w", {int64_t{1} << 40, int64_t{1} << 40}, test::kFloat);
  expect_says(error_of(absurd), "more than 2^40 elements");
  OnnxFile negative = small();
  negative.initializer("w", {-3}, test::kFloat);
  expect_says(error_of(negative), "a dimension is -3");
  OnnxFile computed;
  computed.output("y").integers("shape", {2}, {1 << 20, 1 << 19}).node("ConstantOfShape", {"shape"}, {"y"});
  expect_says(error_of(computed), "too many elements");
  OnnxFile sparse = small();
  auto& tensor = *sparse.model().mutable_graph()->add_sparse_initializer();
  tensor.mutable_values()->set_name("s");
  tensor.mutable_values()->set_data_type(test::kFloat);
  tensor.mutable_values()->add_dims(0);
  tensor.mutable_indices()->set_data_type(test::kInt64);
  tensor.mutable_indices()->add_dims(0);
  for (int i = 0; i < 2; ++i) tensor.add_dims(1 << 15);
  expect_says(error_of(sparse), "far more elements than the 0 that are stored");
  for (const auto& [size, part] :
       {std::pair(int64_t{1} << 40, "more than 2^40"), {-4, "a dimension is -4"}}) {
    tensor.set_dims(0, size);
    expect_says(error_of(sparse), "the sparse tensor \"s\": ");
    expect_says(error_of(sparse), part);
  }
}

TEST(OnnxLimits, ArraysWithoutElementsTakeNoTime) {
  constexpr int64_t kMany = int64_t{1} << 40;
  const auto file_of = [](const std::vector<int64_t>& shape) {
    OnnxFile file;
    file.output("y").integers("zero", {1}, {0}).initializer("e", shape, test::kInt64);
    return file;
  };
  OnnxFile gathered = file_of({kMany, 1, 0});
  gathered.node("Gather", {"e", "zero"}, {"g"}, {{"axis", int64_t{1}}}).node("Size", {"g"}, {"y"});
  EXPECT_EQ(error_of(gathered), "(no error)");
  OnnxFile joined = file_of({kMany, 0});
  joined.node("Concat", {"e", "e"}, {"c"}, {{"axis", int64_t{1}}}).node("Size", {"c"}, {"y"});
  EXPECT_EQ(error_of(joined), "(no error)");
  OnnxFile reduced = file_of({0, kMany});
  expect_says(error_of(reduced.node("ReduceSum", {"e", "zero"}, {"y"})), "too many elements");
  OnnxFile largest = file_of({0, 2});
  expect_says(error_of(largest.node("ReduceMax", {"e"}, {"y"}, {{"axes", std::vector<int64_t>{0}}})),
              "[0, 2] has no element");
  expect_says(error_of(file_of({0, INT64_MAX})), "more than 2^40 elements");
}

TEST(OnnxLimits, DimensionsAreNotTooMany) {
  OnnxFile initial = small();
  initial.integers("w", std::vector<int64_t>(65, 1), {1});
  expect_says(error_of(initial), "65 dimensions are not possible");
  OnnxFile made;
  std::vector<int64_t> axes(1000);
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  made.input("x", {2}).output("y").integers("axes", {1000}, axes).node("Unsqueeze", {"x", "axes"}, {"y"});
  expect_says(error_of(made), "1000 more dimensions are not possible");
}

TEST(OnnxLimits, RangesHaveSteps) {
  const auto range = [](const std::vector<float>& ends, bool are_whole) {
    OnnxFile file;
    for (size_t i = 0; i < ends.size(); ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      if (are_whole)
        file.integers(name, {}, {static_cast<int64_t>(ends[i])});
      else
        file.floats(name, {}, {ends[i]});
    }
    return error_of(file.output("y").node("Range", {"a", "b", "c"}, {"y"}));
  };
  for (const bool are_whole : {true, false}) {
    expect_says(range({0, 0, 0}, are_whole), "a range from 0");
    expect_says(range({2, 1, 0}, are_whole), "a range from 2");
  }
}

TEST(OnnxLimits, ShapesHaveToFit) {
  OnnxFile file;
  file.input("x", {-1, 3}).output("y").node("Relu", {"x"}, {"y"});
  expect_says(error_of(file), "the input 'x' is float32[a, 3]: give its shape");
  expect_says(error_of(file, {.shapes = {{"x", {2, 4}}}}), "does not fit");
  expect_says(error_of(file, {.shapes = {{"z", {2, 4}}}}), "a shape is given for 'z'");
  expect_says(error_of(file, {.shapes = {{"x", {0, 3}}}}), "the input x: a dimension is 0 in [0, 3]");
  OnnxFile wrong;
  wrong.input("x", {2, 3})
      .output("y")
      .floats("w", {4, 5}, std::vector<float>(20))
      .node("MatMul", {"x", "w"}, {"y"});
  expect_says(error_of(wrong), "[2, 3] and [4, 5] do not fit");
}

TEST(OnnxLimits, DimensionsAreNamedOnce) {
  for (const bool is_constant : {false, true}) {
    OnnxFile file;
    file.output("y");
    file.integers("starts", {2}, {3, 3}).integers("ends", {2}, {4, 4}).integers("axes", {2}, {1, -1});
    if (is_constant)
      file.floats("x", {2, 4}, std::vector<float>(8));
    else
      file.input("x", {2, 4});
    const std::vector<std::vector<int64_t>> orders = {{int64_t{1} << 40, 0}, {0, 0}, {1}, {0, 1, 2}};
    for (const std::vector<int64_t>& order : orders) {
      OnnxFile transposed = file;
      transposed.node("Transpose", {"x"}, {"y"}, {{"perm", order}});
      expect_says(error_of(transposed), "does not name each of 2 dimensions once");
    }
    OnnxFile unsqueezed = file;
    unsqueezed.integers("places", {2}, {1, -3}).node("Unsqueeze", {"x", "places"}, {"y"});
    expect_says(error_of(unsqueezed), "its axes name dimension 1 twice");
    file.node("Slice", {"x", "starts", "ends", "axes"}, {"y"});
    expect_says(error_of(file), "its axes name dimension 1 twice");
  }
}

TEST(OnnxLimits, PartsAreAllOfADimension) {
  for (const int64_t second : {1, 2, 3}) {
    OnnxFile file;
    file.input("x", {3}).output("a").output("b").integers("sizes", {2}, {1, second});
    file.node("Split", {"x", "sizes"}, {"a", "b"});
    if (second == 2)
      EXPECT_EQ(error_of(file), "(no error)");
    else
      expect_says(error_of(file), fmt::format("parts of [1, {}]", second));
  }
}

TEST(OnnxLimits, OperandsAreOfOneType) {
  constexpr int32_t kHalf = 10;
  const auto error = [](const char* operation, int32_t other) {
    OnnxFile file;
    file.input("x", {2, 2}).input("z", {2, 2}, other).output("y").node(operation, {"x", "z"}, {"y"});
    return error_of(file);
  };
  expect_says(error("Add", test::kInt64),
              "Add (\"y\"): add: f32[2, 2] and i32[2, 2] have different types: cast one");
  expect_says(error("Add", kHalf), "f32[2, 2] and f16[2, 2] have different types");
  OnnxFile scalar;
  scalar.input("x", {2}, test::kInt64)
      .output("y")
      .floats("half", {}, {0.5F})
      .node("Add", {"x", "half"}, {"y"});
  expect_says(error_of(scalar), "have different types");
  expect_says(error("Add", test::kBool), "Add (\"y\"): its input 1 has truth values: cast them to numbers");
  expect_says(error("Less", test::kBool), "it is given float32 and bool");
  expect_says(error("MatMul", test::kInt64), "MatMul (\"y\"): products of integers are not possible");
  expect_says(error("MatMul", kHalf),
              "f32[2, 2] and f16[2, 2] are not [..., m, k] and [..., k, n] of one type");
  OnnxFile weight;
  weight.input("x", {1, 1}).output("y").node("MatMul", {"x", "w"}, {"y"});
  weight.initializer("w", {1, 1}, kHalf).set_raw_data("\x01\x3C");
  expect_says(error_of(weight), "MatMul (\"y\"): linear");
}

TEST(OnnxLimits, TruthValuesAreNoNumbers) {
  struct Case {
    const char* operation;
    std::vector<std::string> others;
  };
  const std::vector<Case> cases = {
      {"Abs", {}},        {"Add", {"a"}},     {"CumProd", {"axis"}}, {"CumSum", {"axis"}},
      {"Div", {"a"}},     {"LogSoftmax", {}}, {"MatMul", {"a"}},     {"Max", {"a"}},
      {"Mean", {"a"}},    {"Min", {"a"}},     {"Mod", {"a"}},        {"Mul", {"a"}},
      {"Neg", {}},        {"Pow", {"a"}},     {"ReduceL1", {}},      {"ReduceMean", {}},
      {"ReduceProd", {}}, {"ReduceSum", {}},  {"Sign", {}},          {"ReduceSumSquare", {}},
      {"Softmax", {}},    {"Sub", {"a"}},     {"Sum", {"a"}}};
  for (const Case& each : cases)
    for (const char* given : {"truths", "x"}) {
      OnnxFile file;
      file.input("x", {2}, test::kBool).output("y").integers("axis", {}, {0});
      file.initializer("truths", {2}, test::kBool).set_raw_data(std::string("\x01\0", 2));
      std::vector<std::string> inputs = {given};
      for (const std::string& other : each.others) inputs.push_back(other == "a" ? given : other);
      file.node(each.operation, inputs, {"y"});
      expect_says(
          error_of(file),
          fmt::format("{} (\"y\"): its input 0 has truth values: cast them to numbers", each.operation));
    }
}

TEST(OnnxLimits, ConstantIntegersAreOfOneType) {
  constexpr int32_t kInt32 = 6;
  for (const char* operation : {"Add", "BitwiseAnd", "Div", "Max", "Mod", "Sub", "Sum"}) {
    OnnxFile file;
    file.output("y").integers("a", {1}, {7}).node(operation, {"a", "b"}, {"y"});
    file.initializer("b", {1}, kInt32).add_int32_data(3);
    expect_says(error_of(file), fmt::format("{} (\"y\"): it is given int64 and int32", operation));
  }
  OnnxFile compared;
  compared.output("y").integers("a", {1}, {1}).node("Equal", {"a", "b"}, {"y"});
  compared.initializer("b", {1}, test::kBool).add_int32_data(1);
  expect_says(error_of(compared), "Equal (\"y\"): it is given int64 and bool");
}

TEST(OnnxLimits, ConditionsAreTruthValues) {
  struct Case {
    const char* operation;
    std::vector<std::string> inputs;
    size_t wrong;
  };
  const std::vector<Case> cases = {{"And", {"c", "truth"}, 0},
                                   {"And", {"truth", "c"}, 1},
                                   {"And", {"x", "c"}, 1},
                                   {"Or", {"truth", "c"}, 1},
                                   {"Xor", {"c", "c"}, 0},
                                   {"Not", {"c"}, 0},
                                   {"Where", {"c", "c", "c"}, 0},
                                   {"Where", {"c", "x", "x"}, 0},
                                   {"Compress", {"x", "c"}, 1},
                                   {"Dropout", {"x", "", "c"}, 2},
                                   {"If", {"c"}, 0}};
  for (const Case& each : cases)
    for (const bool is_float : {true, false}) {
      OnnxFile file;
      file.input("x", {1}, test::kBool).output("y").node(each.operation, each.inputs, {"y"});
      file.initializer("truth", {1}, test::kBool).add_int32_data(1);
      if (is_float)
        file.floats("c", {1}, {1});
      else
        file.integers("c", {1}, {1});
      expect_says(error_of(file), fmt::format("{} (\"y\"): its input {} is {}; it has to be truth values",
                                              each.operation, each.wrong, is_float ? "float32" : "int64"));
    }
}

TEST(OnnxLimits, OtherTypesAreNamed) {
  // Text, complex numbers, floating-point numbers of 8 and 4 bits, and numbers of no type.
  for (const int32_t type : {8, 14, 17, 23, 99, -1, 0}) {
    OnnxFile input;
    input.input("x", {2}, type).output("y").node("Relu", {"x"}, {"y"});
    expect_says(error_of(input), fmt::format("\"x\" has elements of type {}, which is not possible", type));
    OnnxFile tensor = small();
    tensor.initializer("w", {1}, type).set_raw_data("abcd");
    expect_says(error_of(tensor),
                fmt::format("the tensor \"w\": its elements are of type {}, which is not possible", type));
    OnnxFile cast = small();
    cast.node("Cast", {"x"}, {"z"}, {{"to", int64_t{type}}}).output("z");
    expect_says(error_of(cast), fmt::format("Cast (\"z\"): elements of type {} are not possible", type));
  }
  for (const int32_t type : {21, 22, 25, 26}) {  // integers of less than 8 bits, only for constants
    OnnxFile input;
    input.input("x", {2}, type).output("y").node("Relu", {"x"}, {"y"});
    expect_says(error_of(input), fmt::format("\"x\" has elements of type {}, which is not possible", type));
    OnnxFile output = small();
    output.node("Cast", {"x"}, {"z"}, {{"to", int64_t{type}}}).output("z");
    expect_says(error_of(output), "cast it to 8 bits or more");
    OnnxFile short_of_bytes = small();
    short_of_bytes.initializer("w", {9}, type).set_raw_data("ab");
    expect_says(error_of(short_of_bytes), fmt::format("takes {} bytes; 2 are stored", type < 25 ? 5 : 3));
  }
  OnnxFile text = small();
  text.node("Constant", {}, {"z"}, {{"value_string", "words"}}).output("z");
  expect_says(error_of(text), "Constant (\"z\"): it has no value of numbers");
}

TEST(OnnxLimits, OperatorsOfImagesHaveEnoughDimensions) {
  const OnnxFile::Attribute kernel("kernel_shape", std::vector<int64_t>{2});
  for (const char* operation :
       {"LpPool", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LRN", "BatchNormalization",
        "InstanceNormalization", "GroupNormalization", "Conv", "ConvTranspose"})
    for (const size_t rank : {0, 1}) {
      OnnxFile file;
      file.input("x", std::vector<int64_t>(rank, 3)).output("y");
      const std::vector<float> threes(rank == 0 ? 1 : 3, 1);
      for (const char* each : {"a", "b", "c", "d"}) file.floats(each, std::vector<int64_t>(rank, 3), threes);
      file.node(operation, {"x", "a", "b", "c", "d"}, {"y"},
                {kernel, {"size", int64_t{1}}, {"num_groups", int64_t{1}}});
      expect_says(error_of(file), std::string(operation) + " (\"y\"): ");
    }
}

TEST(OnnxLimits, WindowsFitTheirWeights) {
  using Sizes = std::vector<int64_t>;
  const auto error = [](const char* operation, const Sizes& weight,
                        const std::vector<OnnxFile::Attribute>& attributes) {
    OnnxFile file;
    file.input("x", {1, 4, 8}).output("y").initializer("w", weight, test::kFloat);
    wire::TensorProto& taps = *file.model().mutable_graph()->mutable_initializer(0);
    for (int64_t i = 0; i < weight[0] * weight[1] * weight[2]; ++i) taps.add_float_data(1);
    const std::vector<std::string> inputs = {"x", "w"};
    const bool is_pooling = std::string(operation) == "MaxPool";
    return error_of(
        file.node(operation, is_pooling ? std::vector<std::string>{"x"} : inputs, {"y"}, attributes));
  };
  expect_says(error("Conv", {4, 4, 1}, {{"kernel_shape", Sizes{3}}}),
              "differs from the shape of its weight, [4, 4, 1]");
  expect_says(error("Conv", {4, 0, 1}, {}), "a weight of [4, 0, 1] does not fit");
  expect_says(error("Conv", {4, 4, 1}, {{"group", int64_t{2}}}),
              "a weight of [4, 4, 1] in 2 groups does not fit [1, 4, 8]");
  expect_says(error("ConvTranspose", {3, 4, 1}, {}), "a weight of [3, 4, 1] does not fit [1, 4, 8]");
  expect_says(error("ConvTranspose", {4, 4, 2}, {{"output_shape", Sizes{-4}}}),
              "sizes of -4 are not possible");
  expect_says(error("ConvTranspose", {4, 4, 2}, {{"output_padding", Sizes{0, 0}}}),
              "'output_padding' has 2 sizes for 1 dimensions");
  expect_says(
      error("MaxPool", {1, 1, 1},
            {{"kernel_shape", Sizes{1 << 24}}, {"dilations", Sizes{1 << 24}}, {"auto_pad", "SAME_UPPER"}}),
      "paddings of ");
}

TEST(OnnxLimits, QuantisedValuesHave16BitsAtMost) {
  OnnxFile file;
  constexpr int32_t kInt32 = 6;
  file.input("x", {2}).output("y").floats("scale", {}, {0.5F}).initializer("zero", {}, kInt32);
  file.model().mutable_graph()->mutable_initializer(1)->add_int32_data(0);
  file.node("QuantizeLinear", {"x", "scale", "zero"}, {"q"});
  file.node("DequantizeLinear", {"q", "scale", "zero"}, {"y"});
  expect_says(error_of(file), "QuantizeLinear (\"q\"): results of this type are not possible");
}

TEST(OnnxLimits, WhatIsAddedToAProductHasItsDimensions) {
  for (const int64_t first : {5, 1}) {
    OnnxFile file;
    file.input("a", {2, 3}).input("b", {3, 4}).input("c", {first, 2, 4}).output("y");
    file.node("Gemm", {"a", "b", "c"}, {"y"});
    expect_says(error_of(file), "cannot be added to [2, 4]");
  }
}

TEST(OnnxLimits, RepeatsAndPaddingAreNotWithoutEnd) {
  OnnxFile repeated;
  repeated.input("x", {2}).output("y").integers("times", {1}, {100}).node("Tile", {"x", "times"}, {"y"});
  expect_says(error_of(repeated, {.most_computed = 10}), "too many elements");
  OnnxFile padded;
  padded.input("x", {2}).output("y").integers("pads", {2}, {0, 100}).node("Pad", {"x", "pads"}, {"y"});
  expect_says(error_of(padded, {.most_computed = 10}), "too many elements");
}

TEST(OnnxLimits, NodesMayHaveNoResults) {
  OnnxFile file = small();
  file.input("i", {1}, test::kInt64).input("image", {1, 4, 3});
  file.floats("table", {2, 2}, {1, 2, 3, 4}).floats("w", {4, 4, 1}, std::vector<float>(16, 1));
  file.floats("v", {4, 1, 1}, std::vector<float>(4, 1));
  file.node("Gather", {"table", "i"}, {}).node("Conv", {"image", "w"}, {});
  file.node("Conv", {"image", "v"}, {}, {{"group", int64_t{4}}}).node("ConvTranspose", {"image", "w"}, {});
  file.node("MatMul", {"x", "table"}, {}).node("Relu", {"x"}, {});
  EXPECT_EQ(error_of(file), "(no error)");
}

TEST(OnnxLimits, AttentionHasThreeDimensionsOrFour) {
  for (const size_t rank : {0, 1, 2, 5}) {
    OnnxFile file(23);
    file.input("x", std::vector<int64_t>(rank, 2)).output("y");
    file.node("Attention", {"x", "x", "x"}, {"y"},
              {{"q_num_heads", int64_t{1}}, {"kv_num_heads", int64_t{1}}});
    expect_says(error_of(file), "Attention (\"y\"): its input 0 is [");
  }
  OnnxFile past(23);
  past.input("x", {1, 2, 4}).input("p", {3}).output("y");
  past.node("Attention", {"x", "x", "x", "", "p", "p"}, {"y"},
            {{"q_num_heads", int64_t{1}}, {"kv_num_heads", int64_t{1}}});
  expect_says(error_of(past),
              "Attention (\"y\"): its input 4 is [3], which is not [batch, heads, tokens, features]");
  OnnxFile odd(23);
  odd.input("x", {1, 2, 4}).output("y");
  odd.node("Attention", {"x", "x", "x"}, {"y"}, {{"q_num_heads", int64_t{3}}, {"kv_num_heads", int64_t{3}}});
  expect_says(error_of(odd), "3 heads of 4 features are not possible");
  OnnxFile lengths(24);
  lengths.input("x", {2, 1, 2, 4}).input("n", {3}, test::kInt64).output("y");
  lengths.node("Attention", {"x", "x", "x", "", "", "", "n"}, {"y"});
  expect_says(error_of(lengths), "its input 6 is [3], which is not a length for each of 2 samples");
}

TEST(OnnxLimits, IndicesOfRowsDoNotWrapAround) {
  if (base::available_memory() < uint64_t{18} << 30) GTEST_SKIP() << "there is no memory for so many rows";
  OnnxFile file;
  file.input("x", {65535, 65537}).output("y").input("i", {1, 2}, test::kInt64);
  file.node("GatherND", {"x", "i"}, {"y"});
  expect_says(error_of(file), "indices of more than 2^31 rows are not possible");
}

TEST(OnnxLimits, IntegersBeyond32BitsAreRefused) {
  for (const int64_t number : {int64_t{1} << 40, -(int64_t{1} << 31) - 1, INT64_MAX}) {
    OnnxFile file;
    file.input("x", {2}, test::kInt64).output("y").integers("c", {2}, {1, number});
    file.node("Add", {"x", "c"}, {"y"});
    expect_says(error_of(file),
                fmt::format("Add (\"y\"): \"c\" has the integer {}, which is beyond 32 bits", number));
  }
  OnnxFile output;
  output.output("y").integers("c", {1}, {int64_t{1} << 31}).node("Identity", {"c"}, {"y"});
  expect_says(error_of(output), "has the integer 2147483648, which is beyond 32 bits");
  for (const auto& [operation, number] :
       {std::pair("Max", INT64_MAX), std::pair("Clip", int64_t{1} << 40), std::pair("Min", INT64_MIN)}) {
    OnnxFile bound;
    bound.input("x", {2}, test::kInt64).output("y").integers("c", {}, {number});
    bound.node(operation, {"x", "c"}, {"y"});
    expect_says(error_of(bound), fmt::format("\"c\" has the integer {}, which is beyond 32 bits", number));
  }
}

TEST(OnnxLimits, ShapesDoNotWrapAround) {
  for (const int64_t size : {int64_t{1} << 32, (int64_t{1} << 32) + 1, int64_t{1} << 39}) {
    OnnxFile file;
    file.input("x", {1}).output("y").integers("shape", {1}, {size}).node("Expand", {"x", "shape"}, {"y"});
    expect_says(error_of(file), "Expand (\"y\"): a value of shape [");
  }
}

TEST(OnnxLimits, PaddingIsNotMadeBeforeItFits) {
  const auto padded = [](int64_t before, int64_t after, bool is_constant) {
    OnnxFile file;
    file.output("y").integers("pads", {4}, {0, before, 0, after});
    if (is_constant)
      file.floats("x", {1, 3}, {1, 2, 3});
    else
      file.input("x", {1, 3});
    return error_of(file.node("Pad", {"x", "pads"}, {"y"}));
  };
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  expect_says(padded(kMost, kMost - 1, false),
              "Pad (\"y\"): [1, 4294967296] has more than 2^32 - 1 elements");
  expect_says(padded(kMost, 0, true), "too many elements");
  if (base::available_memory() > 2 * 4 * 2 * kMost)
    GTEST_SKIP() << "there is memory for all that a graph can pad";
  expect_says(padded(kMost, kMost - 3, false),
              "the node \"y\" (\"Pad\"): with inputs of these shapes its result with its padding takes 34");
}

TEST(OnnxLimits, InputsWithoutShapesAreGivenThem) {
  OnnxFile file = small();
  file.model().mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->clear_shape();
  expect_says(error_of(file), "the input 'x' is float32: the file lacks its shape: give it");
  EXPECT_EQ(error_of(file, {.shapes = {{"x", {3}}}}), "(no error)");
}

TEST(OnnxLimits, NamesAreText) {
  for (const char* name : {"\xFF", "a\xC3", "\xED\xA0\x80"}) {
    OnnxFile value;
    value.input(name, {2}).output("y").node("Relu", {name}, {"y"});
    expect_says(error_of(value), "is not UTF-8");
    OnnxFile operation = small();
    operation.node(name, {"x"}, {"z"});
    expect_says(error_of(operation), "is not UTF-8");
    OnnxFile constant = small();
    constant.node("Constant", {}, {"c"});
    wire::AttributeProto& of = *constant.model().mutable_graph()->mutable_node(1)->add_attribute();
    of.set_name("value");
    of.mutable_t()->set_name(name);
    expect_says(error_of(constant), "is not UTF-8");
    OnnxFile attribute = small();
    attribute.node("Gelu", {"x"}, {"z"}, {{"approximate", name}}).output("z");
    expect_says(error_of(attribute), "its attribute 'approximate' is not UTF-8");
  }
  OnnxFile text;
  text.input("größe", {2}).output("y").node("Relu", {"größe"}, {"y"});
  EXPECT_EQ(error_of(text), "(no error)");
}

TEST(OnnxLimits, ValuesFitTheMemory) {
  constexpr int64_t kSize = 65535, kBytes = 3 * kSize * kSize * 4;
  if (base::available_memory() > kBytes) GTEST_SKIP() << "there is more memory than a graph's sums can take";
  OnnxFile file;
  file.input("x", {kSize, kSize}).input("z", {kSize, kSize}).output("y").node("Add", {"x", "z"}, {"y"});
  expect_says(error_of(file), " GB of memory, and ");
}

TEST(OnnxLimits, FunctionsDoNotCallThemselves) {
  OnnxFile file;
  file.input("x", {2}).output("y").node("F", {"x"}, {"y"});
  file.model().mutable_graph()->mutable_node(0)->set_domain("own");
  wire::FunctionProto& function = *file.model().add_functions();
  function.set_name("F");
  function.set_domain("own");
  function.add_input("a");
  function.add_output("b");
  *function.add_node() = file.model().graph().node(0);
  function.mutable_node(0)->set_input(0, "a");
  function.mutable_node(0)->set_output(0, "b");
  expect_says(error_of(file), "functions call each other");
}

/// A function that calls the function before it twice, and so on, down to one that has an operator.
OnnxFile doubled(int times) {
  OnnxFile file;
  file.input("x", {2}).output("y").node("f" + std::to_string(times), {"x"}, {"y"});
  file.model().mutable_graph()->mutable_node(0)->set_domain("own");
  for (int i = 0; i <= times; ++i) {
    wire::FunctionProto& function = *file.model().add_functions();
    function.set_name("f" + std::to_string(i));
    function.set_domain("own");
    function.add_input("a");
    function.add_output("c");
    const auto add = [&](const char* from, const char* to) {
      wire::NodeProto& node = *function.add_node();
      node.set_op_type(i == 0 ? "Relu" : "f" + std::to_string(i - 1));
      if (i > 0) node.set_domain("own");
      node.add_input(from);
      node.add_output(to);
    };
    add("a", "b");
    add("b", "c");
  }
  return file;
}

TEST(OnnxLimits, FunctionsDoNotBecomeTooManyNodes) {
  EXPECT_EQ(error_of(doubled(8)), "(no error)");
  expect_says(error_of(doubled(25)),
              "has more than 131072 nodes, with the nodes of the functions that it calls");
}

TEST(OnnxLimits, FunctionsAreNotCopiedWithoutEnd) {
  OnnxFile file;
  file.input("x", {1}).output("y0");
  wire::FunctionProto& function = *file.model().add_functions();
  function.set_name("F");
  function.set_domain("own");
  function.add_input("a");
  function.add_output("a");
  wire::NodeProto& node = *function.add_node();
  node.set_op_type("Constant");
  node.add_output("c");
  wire::AttributeProto& value = *node.add_attribute();
  value.set_name("value");
  value.mutable_t()->set_data_type(test::kFloat);
  value.mutable_t()->add_dims(1 << 20);
  value.mutable_t()->set_raw_data(std::string(1 << 22, '\0'));
  for (int i = 0; i < 100; ++i) {
    file.node("F", {"x"}, {"y" + std::to_string(i)});
    file.model().mutable_graph()->mutable_node(i)->set_domain("own");
  }
  expect_says(error_of(file), "copies of the nodes of its functions");
}

TEST(OnnxLimits, FunctionsHaveTheAttributesAndOperatorsOfTheFile) {
  OnnxFile alone = small();
  alone.node("Transpose", {"x"}, {"z"}).output("z");
  wire::AttributeProto& order = *alone.model().mutable_graph()->mutable_node(1)->add_attribute();
  order.set_name("perm");
  order.set_ref_attr_name("order");
  expect_says(error_of(alone), "its attribute 'perm' is a caller's, and nothing calls it");
  OnnxFile old = doubled(0);
  old.model().mutable_functions(0)->add_opset_import()->set_version(12);
  expect_says(error_of(old), "its function is of operator set 12");
  OnnxFile two = small();
  two.model().add_opset_import()->set_version(13);
  expect_says(error_of(two), "it has the operator sets 20 and 13");
}

class ExternalData : public testing::Test {
 protected:
  ExternalData() { std::filesystem::create_directories(folder_); }
  ~ExternalData() override { std::filesystem::remove_all(folder_); }

  std::string error_at(const std::string& location, const std::string& offset = "0") const {
    OnnxFile file = small();
    wire::TensorProto& tensor = file.initializer("w", {2}, test::kFloat);
    tensor.set_data_location(1);
    for (const auto& [key, value] :
         {std::pair<std::string, std::string>{"location", location}, {"offset", offset}}) {
      auto& entry = *tensor.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
    std::ofstream(folder_ / "m.onnx", std::ios::binary) << file.content();
    return test::error_of([&] { read_onnx((folder_ / "m.onnx").string()); });
  }

  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / "tessera_external_data";
};

TEST_F(ExternalData, InspectionListsWhatCannotRun) {
  const auto unsupported_of = [&](OnnxFile file) {
    file.node("Unheard", {"x"}, {"u"}).node("Relu", {"u"}, {"v"}).node("Strange", {"v"}, {"w"}).output("w");
    file.node("Einsum", {"x"}, {"z"}, {{"equation", "ij->ji"}});
    std::ofstream(folder_ / "m.onnx", std::ios::binary) << file.content();
    std::vector<std::string> all;
    for (const UnsupportedOperator& each : inspect((folder_ / "m.onnx").string()).unsupported)
      all.push_back(
          fmt::format("{} {}{}", each.op_type, each.node, each.reason.empty() ? "" : ", with a reason"));
    return all;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(unsupported_of(small()), (Names{"Unheard u", "Strange w", "Einsum z, with a reason"}));
  OnnxFile open;
  open.input("x", {-1}).output("y").node("Relu", {"x"}, {"y"});
  EXPECT_EQ(unsupported_of(open), (Names{"Unheard u", "Strange w"}));
}

TEST_F(ExternalData, InspectionPredictsConvolutionsInGroups) {
  OnnxFile file;
  file.input("x", {1, 16, 8}).output("y").floats("w", {16, 4, 1}, std::vector<float>(64, 1));
  file.floats("v", {16, 1, 3}, std::vector<float>(48, 1)).floats("u", {16, 4, 1}, std::vector<float>(64, 1));
  file.node("Conv", {"x", "w"}, {"h"}, {{"group", int64_t{4}}});
  file.node("Conv", {"h", "v"}, {"g"}, {{"group", int64_t{16}}, {"pads", std::vector<int64_t>{1, 1}}});
  file.node("Conv", {"g", "u"}, {"y"}, {{"group", int64_t{3}}});  // which does not divide the outputs
  std::ofstream(folder_ / "m.onnx", std::ios::binary) << file.content();
  const InspectedModel model = inspect((folder_ / "m.onnx").string());
  ASSERT_EQ(model.tensors.size(), 3U);
  const auto zeros_of = [&](const std::string& name) {
    return std::ranges::find(model.tensors, name, &InspectedTensor::name)->zeros.value();
  };
  EXPECT_NE(zeros_of("w").reason, NoGain::not_a_product);
  EXPECT_EQ(zeros_of("w").cols, 4U);
  EXPECT_EQ(zeros_of("v").reason, NoGain::not_a_product);
  EXPECT_EQ(zeros_of("u").reason, NoGain::not_a_product);
}

TEST_F(ExternalData, FitsTheMemory) {
  constexpr uint64_t kSize = uint64_t{1} << 36;
  if (base::available_memory() > 8 * kSize) GTEST_SKIP() << "there is memory for the tensor";
  std::ofstream(folder_ / "large", std::ios::binary) << "";
  std::filesystem::resize_file(folder_ / "large", 4 * kSize);  // of which nothing is stored
  OnnxFile file = small();
  wire::TensorProto& tensor = file.initializer("w", {kSize}, test::kFloat);
  tensor.set_data_location(1);
  tensor.add_external_data()->set_key("location");
  tensor.mutable_external_data(0)->set_value("large");
  std::ofstream(folder_ / "m.onnx", std::ios::binary) << file.content();
  expect_says(test::error_of([&] { read_onnx((folder_ / "m.onnx").string()); }), "the tensor \"w\" needs ");
}

TEST_F(ExternalData, IsReadFromTheFolderOnly) {
  std::ofstream(folder_ / "data", std::ios::binary) << std::string(12, '\0');
  EXPECT_EQ(error_at("data"), "(no error)");
  EXPECT_EQ(error_at("data", "4"), "(no error)");
  expect_says(error_at("data", "5"), "is it complete?");
  expect_says(error_at("data", "x"), "which is not a number");
  expect_says(error_at("nowhere"), "the tensor \"w\": ");
  expect_says(error_at("nowhere"), "nowhere: cannot open the file");
  for (const char* outside : {"../data", "/etc/hostname", "a/../../data"})
    expect_says(error_at(outside), "it must be in the folder of the model");
  expect_says(error_at(std::string("data\0x", 6)), "which is no name of a file");
  std::filesystem::create_symlink("/etc/hostname", folder_ / "link");
  expect_says(error_at("link"), "it must be in the folder of the model");
}

}  // namespace
}  // namespace tessera::onnx
