// `tessera inspect`: tables, JSON, pages, and messages on wrong files.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/tool.h"
#include "support/safetensors_file.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::expect_failure;
using test::json_of;
using test::Outcome;
using test::SafetensorsFile;
using test::says;

/// A weight with one non-zero in each `every` elements.
std::vector<float> weight_with_zeros(size_t size, size_t every) {
  std::vector<float> values(size, 0);
  for (size_t i = 0; i < size; i += every) values[i] = 1;
  return values;
}

class InspectTest : public test::ToolTest {
 protected:
  std::string model(const std::string& name, const SafetensorsFile& tensors) const {
    return file(name, tensors.content());
  }
  /// In a folder.
  std::string folder(const std::string& name) const {
    std::filesystem::create_directory(folder_ / name);
    return path(name);
  }

  const SafetensorsFile small_ = SafetensorsFile()
                                     .floats("fc.weight", {256, 512}, weight_with_zeros(256 * 512, 37))
                                     .floats("fc.bias", {256}, std::vector<float>(256, 1))
                                     .floats("embed.weight", {8, 512}, std::vector<float>(8 * 512, 1))
                                     .floats("head.weight", {256, 512}, std::vector<float>(256 * 512, 1))
                                     .integers("steps", {1});
};

TEST_F(InspectTest, TableHasWeightsAndSums) {
  const Outcome o = run(fmt::format("inspect '{}'", model("m.safetensors", small_)));
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.err, "");
  for (const char* text : {"fc.weight", "256 × 512", "not a product", "too dense", "and 1 vector\n",
                           "not analysed: 1 of I64", "266496 parameters", "a speed-up of"})
    EXPECT_TRUE(says(o.out, text));
}

TEST_F(InspectTest, JsonHasEverything) {
  const json j =
      json_of(run(fmt::format("inspect '{}' --rows 64 --threads 2 --json", model("m.safetensors", small_))));
  EXPECT_EQ(j["schema"], 2);
  EXPECT_EQ(j["command"], "inspect");
  EXPECT_EQ(j["rows"], 64);
  ASSERT_EQ(j["tensors"].size(), 5U);
  ASSERT_EQ(j["results"].size(), 3U);
  const json& embed = j["results"][0];
  EXPECT_EQ(embed["name"], "embed.weight");
  EXPECT_EQ(embed["reason"], "not a product");
  EXPECT_TRUE(embed["dense_seconds"].is_null());
  const json& fc = j["results"][1];
  EXPECT_EQ(fc["name"], "fc.weight");
  EXPECT_EQ(fc["nnz"], (256 * 512 + 36) / 37);
  EXPECT_EQ(fc["blocks"].size(), 5U);
  EXPECT_EQ(fc["best_block"], 1);
  EXPECT_EQ(fc["pays"], true);
  EXPECT_EQ(fc["reason"], "");
  EXPECT_EQ(fc["is_2_4"], true);
  EXPECT_LT(fc["sparse_seconds"].get<double>(), fc["dense_seconds"].get<double>());
  const json& head = j["results"][2];
  EXPECT_EQ(head["reason"], "too dense");
  EXPECT_EQ(head["zero_rows"], 0);
  const json& totals = j["totals"][0];
  EXPECT_EQ(totals["elements"], 256 * 512 * 2 + 256 + 8 * 512);
  EXPECT_LT(totals["sparse_seconds"].get<double>(), totals["dense_seconds"].get<double>());
  EXPECT_LT(totals["sparse_bytes"].get<uint64_t>(), totals["dense_bytes"].get<uint64_t>());
  EXPECT_TRUE(j["tensors"][4]["nnz"].is_null());
}

TEST_F(InspectTest, TakesOneTensor) {
  const std::string m = model("m.safetensors", small_);
  EXPECT_EQ(json_of(run(fmt::format("inspect '{}' --tensor fc.weight --json", m)))["results"].size(), 1U);
  expect_failure(2, run(fmt::format("inspect '{}' --tensor fc", m)), "it has no tensor \"fc\"");
}

TEST_F(InspectTest, ConvolutionsHaveBlocksOfOutputsAndChannels) {
  // All taps of a block of 32 × 32 outputs and channels, as dense tensors and as masks.
  std::vector<float> weight(64UL * 64 * 9);
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = i / (64UL * 9) < 32 && i / 9 % 64 < 32 ? 1 : 0;
  const SafetensorsFile file =
      SafetensorsFile()
          .floats("conv.weight", {64, 64, 3, 3}, weight)
          .floats("depthwise.weight", {64, 1, 96, 96}, std::vector<float>(64UL * 96 * 96))
          .floats("pruned.weight_mask", {64, 64, 9}, weight)
          .floats("pruned.weight_orig", {64, 64, 9}, std::vector<float>(weight.size(), 2));
  const json results =
      json_of(run(fmt::format("inspect '{}' --json", model("m.safetensors", file))))["results"];
  for (const size_t i : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(results[i]["k"], 64 * 9);
    for (const json& blocks : results[i]["blocks"]) EXPECT_EQ(blocks["density"], 0.25);
    EXPECT_EQ(results[i]["zero_cols"], 32 * 9);
    EXPECT_NE(results[i]["reason"], "not a product");
  }
  EXPECT_EQ(results[1]["reason"], "not a product");
}

TEST_F(InspectTest, TakesSeveralFilesOfAnyFormat) {
  const std::string pattern = file("w.smtx", "4, 8, 4\n0 1 2 3 4\n0 1 2 7\n");
  const json j =
      json_of(run(fmt::format("inspect '{}' '{}' --json", pattern, model("m.safetensors", small_))));
  ASSERT_EQ(j["results"].size(), 4U);
  EXPECT_EQ(j["results"][0]["nnz"], 4);
  EXPECT_EQ(j["results"][0]["form"], "pattern");
  EXPECT_EQ(j["totals"].size(), 2U);
}

TEST_F(InspectTest, ReadsFoldersOfShards) {
  const std::string f = folder("model");
  model("model/a.safetensors",
        SafetensorsFile().floats("x.weight_orig", {1, 2}, {1, 1}).floats("unlisted", {1}, {1}));
  model("model/b.safetensors",
        SafetensorsFile().floats("x.weight_mask", {1, 2}, {0, 1}).floats("y", {1}, {1}));
  file("model/config.json", R"({"model_type": "bert"})");
  file(
      "model/model.safetensors.index.json",
      R"({"weight_map": {"x.weight_orig": "a.safetensors", "x.weight_mask": "b.safetensors", "y": "b.safetensors"}})");
  const json j = json_of(run(fmt::format("inspect '{}' --json", f)));
  ASSERT_EQ(j["tensors"].size(), 2U);
  EXPECT_EQ(j["tensors"][0]["name"], "x.weight");
  EXPECT_EQ(j["tensors"][0]["form"], "masked");
  EXPECT_EQ(j["tensors"][0]["nnz"], 1);
}

TEST_F(InspectTest, SaysWhatIsWrongWithAModel) {
  const std::string f = folder("model");
  const auto expect = [&](const std::string& message) {
    const Outcome o = run(fmt::format("inspect '{}'", f));
    expect_failure(1, o, message);
    EXPECT_EQ(test::lines_of(o.err), 1U) << o.err;
    EXPECT_EQ(json_of(run(fmt::format("inspect '{}' --json", f)), 1)["results"].size(), 0U);
  };
  expect("neither model.safetensors nor");
  const std::string index = "model/model.safetensors.index.json";
  file(index, R"({"weight_map": {"a": "../m.safetensors"}})");
  expect("\"../m.safetensors\", which is not a file of the same folder");
  file(index, R"({"weight_map": {"a": "a.safetensors"}})");
  expect("it names a.safetensors, which is missing");
  model("model/a.safetensors", SafetensorsFile().floats("b", {1}, {1}));
  expect("a.safetensors: it lacks the tensor \"a\", which the index says it has");
  model("model/model.safetensors", SafetensorsFile().integers("w.crow_indices", {0, 1}));
  expect("lacks \"w.col_indices\"");
  file("model/model.safetensors", small_.content().substr(0, 2000));
  expect("it may be truncated");
  file("model/config.json", R"({"quantization_config": {"quant_method": "gptq"}})");
  expect("its weights are quantised (\"gptq\")");
}

TEST_F(InspectTest, WritesAPage) {
  const std::string page = path("zeros.html");
  EXPECT_EQ(run(fmt::format("inspect '{}' --report '{}'", model("m.safetensors", small_), page)).status, 0);
  const std::string html = test::content_of(page);
  EXPECT_TRUE(says(html, "fc.weight"));
  EXPECT_TRUE(says(html, "Speed-up"));
}

TEST_F(InspectTest, APageThatCannotBeWrittenLeavesOneJsonObject) {
  const std::string command =
      fmt::format("inspect '{}' --json --report '{}'", model("m.safetensors", small_), path("zeros.html"));
  const std::string small_files = "(ulimit -f 2; {}; echo $? >&2)";
  const Outcome o = run(command, small_files + " | cat");  // pipes have no limit
  EXPECT_EQ(json_of(o)["results"].size(), 3U);
  EXPECT_TRUE(says(o.err, "zeros.html"));
  EXPECT_TRUE(o.err.ends_with("\n1\n")) << o.err;
}

}  // namespace
}  // namespace tessera
