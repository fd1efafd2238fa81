// Pooling, normalisation and interpolation of ONNX files.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "onnx/run.h"
#include "support/error_of.h"
#include "support/numbers.h"

namespace tessera::onnx {
namespace {

using graph::WideArrays;
using test::count;
using test::import;
using test::Numbers;
using test::OnnxFile;
using test::run;
using List = std::vector<int64_t>;

/// One operator on x.
OnnxFile of_image(const char* operation, const List& shape,
                  const std::vector<OnnxFile::Attribute>& attributes) {
  OnnxFile file;
  file.input("x", shape).output("y").node(operation, {"x"}, {"y"}, attributes);
  return file;
}

Numbers results(const OnnxFile& file) {
  Numbers x(16);
  std::iota(x.begin(), x.end(), 1);
  return run(file, {{"x", x}}).at("y");
}

std::string error_of(const OnnxFile& file) {
  return test::error_of([&] { import(file); });
}

const List kImage = {1, 1, 4, 4}, kWindow = {2, 2}, kStride = {2, 2};

TEST(OnnxImages, PoolingTakesWindows) {
  EXPECT_EQ(results(of_image("MaxPool", kImage, {{"kernel_shape", kWindow}, {"strides", kStride}})),
            (Numbers{6, 8, 14, 16}));
  EXPECT_EQ(results(of_image("AveragePool", kImage, {{"kernel_shape", kWindow}, {"strides", kStride}})),
            (Numbers{3.5, 5.5, 11.5, 13.5}));
  EXPECT_EQ(results(of_image("LpPool", kImage,
                             {{"kernel_shape", kWindow}, {"strides", kStride}, {"p", int64_t{1}}})),
            (Numbers{14, 22, 46, 54}));
  EXPECT_EQ(results(of_image("GlobalAveragePool", {2, 2, 2, 2}, {})), (Numbers{2.5, 6.5, 10.5, 14.5}));
  EXPECT_EQ(results(of_image("GlobalMaxPool", {1, 2, 2, 2, 2}, {})), (Numbers{8, 16}));
}

TEST(OnnxImages, PoolingOfThreeDimensionsIsThatOfEach) {
  const auto pooled = [](const char* operation, const List& shape, const List& window,
                         std::vector<OnnxFile::Attribute> attributes = {}) {
    attributes.emplace_back("kernel_shape", window);
    return results(of_image(operation, shape, attributes));
  };
  EXPECT_EQ(pooled("MaxPool", {1, 1, 2, 2, 4}, {2, 2, 2}), (Numbers{14, 15, 16}));
  EXPECT_EQ(pooled("AveragePool", {1, 1, 2, 2, 4}, {2, 2, 2}), (Numbers{7.5, 8.5, 9.5}));
  EXPECT_EQ(pooled("MaxPool", {2, 2, 2, 1, 2}, {2, 1, 2}), (Numbers{4, 8, 12, 16}));
  EXPECT_EQ(pooled("MaxPool", {2, 2, 2, 1, 2}, {1, 1, 2}), (Numbers{2, 4, 6, 8, 10, 12, 14, 16}));
  EXPECT_EQ(pooled("LpPool", {2, 1, 2, 2, 2}, {2, 2, 2}, {{"p", int64_t{1}}}), (Numbers{36, 100}));
  // As exporters write normalisation by neighbouring channels.
  EXPECT_EQ(pooled("AveragePool", {1, 1, 4, 2, 2}, {2, 1, 1}, {{"strides", List{2, 1, 1}}}),
            (Numbers{3, 4, 5, 6, 11, 12, 13, 14}));
  EXPECT_EQ(pooled("MaxPool", {1, 1, 4, 2, 2}, {1, 1, 1}).back(), 16);
}

TEST(OnnxImages, PoolingCountsPaddingAsTheFileSays) {
  const auto pooled = [](std::vector<OnnxFile::Attribute> attributes) {
    attributes.emplace_back("kernel_shape", List{3});
    return results(of_image("AveragePool", {1, 4, 4}, attributes));
  };
  EXPECT_EQ(pooled({{"pads", List{1, 1}}, {"strides", List{3}}}),
            (Numbers{1.5, 3.5, 5.5, 7.5, 9.5, 11.5, 13.5, 15.5}));
  const Numbers counted =
      pooled({{"pads", List{1, 1}}, {"strides", List{3}}, {"count_include_pad", int64_t{1}}});
  EXPECT_NEAR(counted[0], 1, 1e-6);
  // Rounding up adds an output whose window ends beyond the padding.
  const Numbers up = pooled({{"strides", List{2}}, {"ceil_mode", int64_t{1}}});
  EXPECT_NEAR(up[0], 2, 1e-6);
  EXPECT_NEAR(up[1], 3.5, 1e-6);
  EXPECT_EQ(pooled({{"auto_pad", "SAME_UPPER"}, {"strides", List{2}}}),
            pooled({{"pads", List{0, 1}}, {"strides", List{2}}}));
  EXPECT_EQ(pooled({{"auto_pad", "SAME_LOWER"}, {"strides", List{2}}}),
            pooled({{"pads", List{1, 0}}, {"strides", List{2}}}));
}

TEST(OnnxImages, WindowsMayBeLargerIfSizesAreRoundedUp) {
  EXPECT_EQ(results(of_image("MaxPool", {8, 1, 2},
                             {{"kernel_shape", List{3}}, {"strides", List{2}}, {"ceil_mode", int64_t{1}}})),
            (Numbers{2, 4, 6, 8, 10, 12, 14, 16}));
  EXPECT_TRUE(
      test::says(error_of(of_image("MaxPool", {8, 1, 2}, {{"kernel_shape", List{3}}})), "do not fit 2"));
}

/// A resized image; sizes or factors by their name in the file.
OnnxFile resized(const List& shape, const char* kind, const std::vector<float>& by,
                 const std::vector<OnnxFile::Attribute>& attributes) {
  OnnxFile file;
  file.input("x", shape).output("y");
  const auto count = static_cast<int64_t>(by.size());
  const bool is_size = std::string(kind) == "sizes";
  if (is_size)
    file.integers(kind, {count}, {by.begin(), by.end()});
  else
    file.floats(kind, {count}, by);
  file.node("Resize",
            is_size ? std::vector<std::string>{"x", "", "", kind} : std::vector<std::string>{"x", "", kind},
            {"y"}, attributes);
  return file;
}

TEST(OnnxImages, ResizesAsTheFileSays) {
  const OnnxFile nearest = resized(
      {16, 1, 1}, "scales", {1, 1, 2},
      {{"mode", "nearest"}, {"coordinate_transformation_mode", "asymmetric"}, {"nearest_mode", "floor"}});
  const Numbers twice = results(nearest);
  ASSERT_EQ(twice.size(), 32u);
  EXPECT_EQ((Numbers{twice[0], twice[1], twice[2]}), (Numbers{1, 1, 2}));
  EXPECT_EQ(results(resized({1, 4, 4}, "sizes", {1, 4, 2}, {{"mode", "linear"}})),
            (Numbers{1.5, 3.5, 5.5, 7.5, 9.5, 11.5, 13.5, 15.5}));
  EXPECT_EQ(results(resized({1, 4, 4}, "sizes", {1, 4, 2},
                            {{"mode", "linear"}, {"coordinate_transformation_mode", "align_corners"}})),
            (Numbers{1, 4, 5, 8, 9, 12, 13, 16}));
  // To the last element, also of sizes that are rounded.
  EXPECT_EQ(results(resized({1, 4, 4}, "scales", {1, 1, 0.6F},
                            {{"mode", "linear"}, {"coordinate_transformation_mode", "align_corners"}})),
            (Numbers{1, 4, 5, 8, 9, 12, 13, 16}));
  const Numbers ends =
      results(resized({2, 1, 8}, "scales", {1, 1, 1.4F},
                      {{"mode", "linear"}, {"coordinate_transformation_mode", "align_corners"}}));
  ASSERT_EQ(ends.size(), 22U);
  for (const auto& [at, expected] : std::map<size_t, double>{{0, 1}, {1, 1.7}, {10, 8}, {11, 9}, {21, 16}})
    EXPECT_NEAR(ends[at], expected, 1e-6) << at;
  // Channels last, and of any dimensions.
  EXPECT_EQ(results(resized({1, 4, 4, 1}, "sizes", {2, 2}, {{"mode", "linear"}, {"axes", List{1, 2}}})),
            (Numbers{3.5, 5.5, 11.5, 13.5}));
  EXPECT_EQ(results(resized({4, 4}, "sizes", {2, 2}, {{"mode", "linear"}})), (Numbers{3.5, 5.5, 11.5, 13.5}));
  EXPECT_EQ(results(resized({1, 1, 2, 2, 4}, "sizes", {1, 1, 1, 1, 2}, {{"mode", "linear"}})),
            (Numbers{7.5, 9.5}));
  // With the smaller ratio of sizes.
  const ImportedModel kept = import(resized(
      {1, 1, 4, 4}, "sizes", {2, 3}, {{"axes", List{2, 3}}, {"keep_aspect_ratio_policy", "not_larger"}}));
  EXPECT_EQ(to_string(kept.outputs[0]), "float32[1, 1, 2, 2]");
}

TEST(OnnxImages, RefusesOtherInterpolation) {
  const auto refuses = [](const OnnxFile& file, const char* message) {
    EXPECT_TRUE(test::says(error_of(file), message));
  };
  const auto with = [](const char* attribute, const char* value) {
    return resized({1, 4, 4}, "sizes", {1, 4, 2}, {{"mode", "linear"}, {attribute, value}});
  };
  constexpr const char* kCoordinates = "coordinate_transformation_mode";
  refuses(with(kCoordinates, "tf_crop_and_resize"),
          "its coordinate_transformation_mode 'tf_crop_and_resize' is not possible");
  refuses(with("keep_aspect_ratio_policy", "odd"), "a ratio of sizes that is 'odd'");
  refuses(resized({1, 4, 4}, "scales", {1, 1, 0.5F}, {{"mode", "linear"}, {"antialias", int64_t{1}}}),
          "antialias");
  refuses(resized({1, 4, 4}, "scales", {1, 1, 0.5F}, {{"mode", "sharp"}}),
          "its mode 'sharp' is not possible");
  refuses(resized({1, 4, 4}, "scales", {1, 1, -2}, {}), "a factor of -2 is not possible");
  refuses(resized({1, 4, 4}, "scales", {1, 1, 1e7F}, {}), "sizes of 40000000 are not possible");
  refuses(resized({1, 4, 4}, "scales", {1, 2}, {}), "there are 2 factors or sizes for 3 dimensions");
  refuses(resized({1, 4, 4}, "scales", {2, 2}, {{"axes", List{2, -1}}}), "its axes name dimension 2 twice");
  OnnxFile indices = of_image("MaxPool", kImage, {{"kernel_shape", kWindow}});
  indices.model().mutable_graph()->mutable_node(0)->add_output("indices");
  EXPECT_EQ(error_of(indices), "(no error)");  // which nothing takes
  refuses(indices.output("indices"), "its result 1 is not possible");
  OnnxFile norm(13);
  norm.input("x", kImage).output("y");
  for (const char* each : {"scale", "bias", "mean", "variance"}) norm.floats(each, {1}, {1});
  norm.node("BatchNormalization", {"x", "scale", "bias", "mean", "variance"}, {"y", "m", "v"});
  refuses(norm, "it is in training mode");
  refuses(of_image("MaxPool", {4, 4}, {{"kernel_shape", kWindow}}),
          "only one to three dimensions after the channels");
  refuses(of_image("MaxPool", kImage, {}), "its attribute 'kernel_shape' is missing");
  refuses(of_image("MaxPool", kImage, {{"kernel_shape", kWindow}, {"auto_pad", "ODD"}}), "auto_pad 'ODD'");
  refuses(of_image("MaxPool", kImage, {{"kernel_shape", 3.5F}}), "'kernel_shape' is not a list of integers");
  refuses(of_image("MaxPool", kImage, {{"kernel_shape", kWindow}, {"auto_pad", int64_t{1}}}),
          "is not a text");
  refuses(of_image("AveragePool", {1, 1, 1 << 20}, {{"kernel_shape", List{1 << 19}}}), "are too many");
  OnnxFile integers = of_image("Relu", kImage, {});
  integers.integers("w", {1, 1, 1, 1}, {2}).node("Conv", {"x", "w"}, {"z"}).output("z");
  refuses(integers, "its weight is int64");
}

TEST(OnnxImages, NormalisesByGroup) {
  const auto normalised = [](const char* operation, const List& parameters, int64_t opset,
                             const std::vector<OnnxFile::Attribute>& attributes) {
    OnnxFile file(opset);
    file.input("x", {1, 4, 4}).output("y");
    std::vector<float> weight(static_cast<size_t>(parameters[0]), 2), bias(weight.size());
    std::iota(bias.begin(), bias.end(), 10);
    file.floats("w", parameters, weight).floats("b", parameters, bias);
    file.node(operation, {"x", "w", "b"}, {"y"}, attributes);
    return results(file);
  };
  const Numbers one = normalised("InstanceNormalization", {4}, 20, {});
  const double deviation = std::sqrt(1.25 + 1e-5);
  for (size_t i = 0; i < 16; ++i)
    EXPECT_NEAR(one[i],
                10.0 + static_cast<double>(i / 4) + 2 * (static_cast<double>(i % 4) - 1.5) / deviation, 1e-5);
  const Numbers by_group = normalised("GroupNormalization", {2}, 20, {{"num_groups", int64_t{2}}}),
                by_channel = normalised("GroupNormalization", {4}, 21, {{"num_groups", int64_t{2}}});
  const double of_eight = std::sqrt(5.25 + 1e-5);
  for (size_t i = 0; i < 16; ++i) {
    const double normal = 2 * (static_cast<double>(i % 8) - 3.5) / of_eight;
    EXPECT_NEAR(by_group[i], 10.0 + static_cast<double>(i / 8) + normal, 1e-5);
    EXPECT_NEAR(by_channel[i], 10.0 + static_cast<double>(i / 4) + normal, 1e-5);
  }
}

/// The weight of a convolution of 256 channels in groups, pruned.
OnnxFile pruned_groups(int64_t groups, const char* operation = "Conv") {
  OnnxFile file;
  const int64_t channels = 256 / groups;
  const std::vector<float> values = test::random_floats(256 * static_cast<uint64_t>(channels) * 9, 1, -1, 1);
  std::vector<float> weight;
  for (const float each : values) weight.push_back(std::abs(each) > 0.98F ? each : 0.0F);
  file.input("x", {1, 256, 14, 14}).output("y").floats("w", {256, channels, 3, 3}, weight);
  file.node(operation, {"x", "w"}, {"y"}, {{"group", groups}, {"pads", List{1, 1, 1, 1}}});
  return file;
}

void expect_sparse_groups(const char* operation) {
  const std::vector<float> x = test::random_floats(256 * 196, 2, -1, 1);
  const WideArrays inputs = {{"x", Numbers(x.begin(), x.end())}};
  const ImportedModel sparse = import(pruned_groups(2, operation)),
                      dense = import(pruned_groups(2, operation), {.sparse = false});
  ASSERT_EQ(sparse.layers.size(), 1U);
  const LayerChoice& layer = sparse.layers[0];
  EXPECT_TRUE(layer.is_sparse) << layer.why_dense();
  EXPECT_EQ(layer.zeros.rows, 256U);
  EXPECT_EQ(layer.zeros.cols, 128U * 9);
  EXPECT_EQ(layer.rows, 196U);
  EXPECT_LT(sparse.graph.nodes().size(), dense.graph.nodes().size());  // one product
  const Numbers found = run(sparse, inputs).at("y"), expected = run(dense, inputs).at("y");
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-9) << i;
  const ImportedModel by_channel = import(pruned_groups(256, operation));
  EXPECT_EQ(by_channel.layers.at(0).why_dense(), "depthwise convolution");
}

TEST(OnnxImages, ConvolutionsInGroupsMayBeSparse) { expect_sparse_groups("Conv"); }

TEST(OnnxImages, TransposedConvolutionsInGroupsMayBeSparse) { expect_sparse_groups("ConvTranspose"); }

TEST(OnnxImages, TransposedConvolutionsInGroupsMayHaveComputedWeights) {
  OnnxFile file;
  file.input("x", {1, 2, 2}).input("w", {2, 1, 2}).output("y");
  file.node("ConvTranspose", {"x", "w"}, {"y"}, {{"group", int64_t{2}}, {"strides", List{2}}});
  EXPECT_EQ(run(file, {{"x", {1, 2, 3, 4}}, {"w", {1, 10, 2, 20}}}).at("y"),
            (Numbers{1, 10, 2, 20, 6, 60, 8, 80}));
}

/// A convolution with a batch norm and a Relu, of images with given sizes.
OnnxFile convolution() {
  OnnxFile file;
  file.input("x", {-1, 2, -2, -2}).output("y");
  file.floats("w", {3, 2, 1, 1}, {1, 2, 3, 4, 5, 6})
      .floats("scale", {3}, {1, 2, 0.5F})
      .floats("bias", {3}, {1, 0, -1});
  file.floats("mean", {3}, {0.5F, 1, 2}).floats("variance", {3}, {4, 1, 0.25F});
  file.node("Conv", {"x", "w"}, {"c"})
      .node("BatchNormalization", {"c", "scale", "bias", "mean", "variance"}, {"n"}, {{"epsilon", 0.0F}})
      .node("Relu", {"n"}, {"y"});
  return file;
}

TEST(OnnxImages, BatchNormsBecomePartOfConvolutions) {
  const std::string content = convolution().content();
  const Model model = Model::parse(std::as_bytes(std::span(content)));
  std::map<std::string, std::vector<float>> known;
  for (const auto& [samples, size] : {std::pair(1U, 1U), {1U, 2U}, {2U, 2U}}) {
    const ImportedModel imported = model.import({.shapes = {{"a", {samples}}, {"b", {size}}}});
    if (size > 1) {
      EXPECT_EQ(count(imported.graph, "mul"), 0u) << to_string(imported.graph);
    }
    WideArrays inputs;
    for (uint32_t i = 0; i < samples * 2 * size * size; ++i) inputs["x"].push_back(i % 5 - 1.0);
    const Numbers y = run(imported, inputs).at("y");
    const uint32_t pixels = size * size;
    ASSERT_EQ(y.size(), size_t{3} * samples * pixels);
    const double scale[] = {0.5, 2, 1}, mean[] = {0.5, 1, 2}, bias[] = {1, 0, -1};
    for (uint32_t i = 0; i < y.size(); ++i) {
      const uint32_t n = i / (3 * pixels), c = i / pixels % 3, at = n * 2 * pixels + i % pixels;
      const double product = (2 * c + 1) * inputs["x"][at] + (2 * c + 2) * inputs["x"][at + pixels];
      EXPECT_NEAR(y[i], std::max(0.0, (product - mean[c]) * scale[c] + bias[c]), 1e-5);
    }
    // Sessions share parameters by name.
    for (const auto& [name, values] : initial_state(imported.graph)) {
      const std::vector<float> own(values.begin(), values.end());
      EXPECT_EQ(known.emplace(name, own).first->second, own) << name;
    }
  }
}

}  // namespace
}  // namespace tessera::onnx
