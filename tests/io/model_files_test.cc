// The files of models: configuration, index, shards.
#include "io/model_files.h"

#include <gtest/gtest.h>

#include "io/files.h"
#include "support/error_of.h"

namespace tessera::io {
namespace {

using test::in_memory;

std::string config_error(const std::string& json) {
  return test::error_of([&] { check_model_config(in_memory(json)); });
}

std::string index_error(const std::string& json) {
  return test::error_of([&] { read_model_index(in_memory(json)); });
}

TEST(ModelFiles, TakesConfigurationsOfKnownFormats) {
  for (
      const char* json :
      {R"({})", R"({"model_type": "bert", "quantization_config": null})",
       R"({"time_step_limit": [0.0, Infinity, -Infinity, NaN], "a\"Infinity\\": "NaN"})",
       R"({"quantization_config": {"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-bitmask"}}})",
       R"({"quantization_config": {"sparsity_config": {"format": "sparse-24-bitmask", "ignore": []}}})",
       R"({"compression_config": {"config_groups": {}, "format": "dense", "sparsity_config": {"format": "dense"}}})"})
    EXPECT_EQ(config_error(json), "(no error)") << json;
}

TEST(ModelFiles, RefusesQuantisedWeightsAndUnknownFormats) {
  const auto quantised = [](const std::string& config) {
    return config_error("{\"quantization_config\": {" + config + "}}");
  };
  for (const char* how : {"gptq", "awq", "bitsandbytes", "fp8"})
    EXPECT_TRUE(test::says(quantised(std::string("\"quant_method\": \"") + how + "\""),
                           std::string("its weights are quantised (\"") + how + "\")"));
  EXPECT_TRUE(test::says(quantised(R"("format": "int-quantized")"), "quantised (\"int-quantized\")"));
  EXPECT_TRUE(test::says(quantised(R"("config_groups": {"group_0": {}})"), "quantised (\"config_groups\")"));
  EXPECT_TRUE(test::says(quantised(R"("sparsity_config": {"format": "sparse-huffman"})"),
                         "the sparsity format \"sparse-huffman\", which is not read"));
  EXPECT_TRUE(test::says(config_error(R"({"sparsity_config": {"format": "sparse-huffman"}})"),
                         "the sparsity format \"sparse-huffman\", which is not read"));
  EXPECT_TRUE(test::says(quantised(R"("sparsity_config": 7)"), "sparsity_config is not an object"));
  EXPECT_TRUE(
      test::says(config_error(R"({"quantization_config": "gptq"})"), "quantization_config is not an object"));
}

TEST(ModelFiles, RefusesWhatIsNoJson) {
  EXPECT_TRUE(test::says(config_error(""), "not valid JSON at byte"));
  EXPECT_TRUE(test::says(config_error("{\"a\": }"), "w: it is not valid JSON at byte 7"));
  EXPECT_TRUE(test::says(config_error("[]"), "not an object"));
  EXPECT_TRUE(test::says(config_error("{\"a\": 1e400}"), "a number that is too large"));
  EXPECT_TRUE(test::says(config_error(std::string(100'000, '[')), "nests deeper"));
  EXPECT_TRUE(test::says(config_error("{\"a\": \"\xff\"}"), "not valid JSON"));
}

TEST(ModelFiles, ReadsTheIndex) {
  const auto files = read_model_index(
      in_memory(R"({"metadata": {"total_size": 8}, "weight_map": {"a": "m-1", "b": "m-2"}})"));
  EXPECT_EQ(files, (std::map<std::string, std::string>{{"a", "m-1"}, {"b", "m-2"}}));
}

TEST(ModelFiles, RefusesFilesOutsideTheFolder) {
  for (const char* file : {"../m", "/etc/passwd", "a/m", "..", ".", "", "a\\\\b", "a\\u0000b"})
    EXPECT_TRUE(test::says(index_error(std::string("{\"weight_map\": {\"a\": \"") + file + "\"}}"),
                           "which is not a file of the same folder"))
        << file;
  EXPECT_TRUE(test::says(index_error("{}"), "it has no weight_map"));
  EXPECT_TRUE(
      test::says(index_error(R"({"weight_map": {"a": 3}})"), "the file of tensor \"a\" is not a text"));
  EXPECT_TRUE(test::says(index_error(R"({"weight_map": []})"), "weight_map is not an object"));
}

TEST(ModelFiles, FindsThem) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path().string();
  EXPECT_ERROR("neither model.safetensors nor model.safetensors.index.json", find_model_files(path));
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "m-2", "b": "m-1", "c": "m-2"}})");
  EXPECT_ERROR("it names m-2, which is missing", find_model_files(path));
  folder.write("m-1", "");
  folder.write("m-2", "");
  const ModelFiles shards = find_model_files(path);
  EXPECT_EQ(shards.paths, (std::vector<std::string>{folder.file("m-2"), folder.file("m-1")}));
  EXPECT_EQ(shards.file_of, (std::map<std::string, size_t>{{"a", 0}, {"b", 1}, {"c", 0}}));
  folder.write("model.safetensors", "");
  EXPECT_EQ(find_model_files(path).paths, std::vector<std::string>{folder.file("model.safetensors")});
  folder.write("config.json", R"({"quantization_config": {"quant_method": "gptq"}})");
  EXPECT_ERROR("config.json: its weights are quantised", find_model_files(path));
}

TEST(ModelFiles, KnowsModels) {
  const test::TemporaryFolder folder;
  EXPECT_TRUE(is_model(folder.path().string()));
  EXPECT_TRUE(is_model("a.SafeTensors"));
  EXPECT_FALSE(is_model("a.npy"));
  EXPECT_FALSE(is_model("safetensors"));
}

}  // namespace
}  // namespace tessera::io
