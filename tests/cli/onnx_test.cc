// `tessera run`, `benchmark` and `inspect` of a convolutional network in an ONNX file, and of wrong files.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/tool.h"
#include "io/npy_array.h"
#include "io/source.h"
#include "support/onnx_file.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::expect_failure;
using test::expect_refused;
using test::json_of;
using test::OnnxFile;
using test::Outcome;
using test::says;
using List = std::vector<int64_t>;

/// The largest sums of four pixels, and of four negated pixels: a convolution with a batch norm that halves,
/// a Relu and pooling.
OnnxFile network(int64_t samples = -1) {
  OnnxFile file;
  file.input("x", {samples, 1, 5, 5}).output("y");
  file.floats("conv.weight", {2, 1, 2, 2}, {2, 2, 2, 2, -2, -2, -2, -2})
      .floats("one", {2}, {1, 1})
      .floats("none", {2}, {0, 0});
  file.floats("variance", {2}, {4, 4});
  file.node("Conv", {"x", "conv.weight"}, {"c"})
      .node("BatchNormalization", {"c", "one", "none", "none", "variance"}, {"n"}, {{"epsilon", 0.0F}})
      .node("Relu", {"n"}, {"r"})
      .node("MaxPool", {"r"}, {"y"}, {{"kernel_shape", List{2, 2}}, {"strides", List{2, 2}}});
  return file;
}

/// A network whose number of samples is open, and has no name.
OnnxFile unnamed_network() {
  OnnxFile file = network();
  file.model()
      .mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(0)
      ->clear_dim_param();
  return file;
}

class OnnxTest : public test::ToolTest {
 protected:
  std::string model(const OnnxFile& content) const { return file("model.onnx", content.content()); }
};

TEST_F(OnnxTest, RunsAConvolutionalNetwork) {
  std::vector<double> pixels(25);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<double>(i % 7) - 3;
  const uint64_t shape[] = {1, 1, 5, 5};
  io::write_npy_array(path("x.npy"), shape, pixels, false);
  const std::string network_file = model(network());
  const json j = json_of(run(fmt::format("run '{}' --input x='{}' --save y='{}' --measure --json",
                                         network_file, path("x.npy"), path("y.npy"))));
  EXPECT_EQ(j["results"][0]["name"], "y");
  std::vector<std::string> operations;
  for (const json& each : j["operations"]) operations.push_back(each["operation"]);
  EXPECT_EQ(std::ranges::count(operations, "mul"), 0) << "the batch norm is part of the convolution";
  EXPECT_EQ(std::ranges::count(operations, "max_pool"), 1);
  double seconds = 0;
  for (const json& of_kind : j["seconds_by_kind"]) seconds += of_kind.get<double>();
  EXPECT_GT(seconds, 0);
  const io::NpyArray y = io::read_npy_array(io::Source::open(path("y.npy")), 100);
  ASSERT_EQ(y.shape, (std::vector<uint64_t>{1, 2, 2, 2}));
  for (size_t row = 0; row < 2; ++row)
    for (size_t col = 0; col < 2; ++col) {
      double most = 0, least = 0;
      const size_t at = 10 * row + 2 * col;
      for (const size_t first : {at, at + 1, at + 5, at + 6}) {
        const double sum = pixels[first] + pixels[first + 1] + pixels[first + 5] + pixels[first + 6];
        most = std::max(most, sum);
        least = std::min(least, sum);
      }
      EXPECT_NEAR(y.values[2 * row + col], most, 1e-5);
      EXPECT_NEAR(y.values[4 + 2 * row + col], -least, 1e-5);
    }
}

TEST_F(OnnxTest, RunsOnModelledMachines) {
  const Outcome o = run(
      fmt::format("run '{}' --shape a=2 --machine gc200 --report '{}'", model(network()), path("run.html")));
  EXPECT_EQ(o.status, 0) << o.err;
  for (const char* part : {"conv.weight", "float32[2, 2, 2, 2]", "gc200", "conversions of layouts"})
    EXPECT_TRUE(says(o.out, part));
  const std::string page = test::content_of(path("run.html"));
  for (const char* part : {"conv.weight", "conversions of layouts"}) EXPECT_TRUE(says(page, part));
}

TEST_F(OnnxTest, TimesHaveTransfersFromAndToTheHostIfAskedFor) {
  const std::string on_tiles = fmt::format("run '{}' --shape a=2 --machine gc200", model(network()));
  const auto without = json_of(run(on_tiles + " --json")),
             with = json_of(run(on_tiles + " --host-io --json"));
  EXPECT_FALSE(without.contains("host_io"));
  const double seconds = with["host_io"]["seconds"].get<double>();
  EXPECT_GT(seconds, 2 * 10e-6);
  for (const char* time : {"seconds", "predicted_seconds"})
    EXPECT_NEAR(with[time].get<double>(), without[time].get<double>() + seconds, 1e-12) << time;
  EXPECT_TRUE(says(run(on_tiles + " --host-io").out, "of this time, transfers from and to the host: "));
  expect_refused(run(fmt::format("run '{}' --shape a=2 --host-io", model(network()))),
                 "--host-io is for a modelled --machine");
}

TEST_F(OnnxTest, RunsWithItsOptions) {
  const std::string network_file = model(network()), page = path("run.html"),
                    machine = file("own.toml", "like = \"gc200\"\ntiles = 16\n");
  const auto ran = [&](const std::string& on, int seed) {
    return json_of(
        run(fmt::format("run '{}' --input x=random --shape x=2,1,5,5 --seed {} --threads 2 --machine '{}' "
                        "--measure --report '{}' --json",
                        network_file, seed, on, page)));
  };
  for (const std::string& on : {std::string("host"), machine}) {
    const json j = ran(on, 3);
    EXPECT_EQ(j["machine"], on == "host" ? "host" : "own");
    EXPECT_FALSE(j["operations"].empty());
    EXPECT_GT(j["bytes"].get<uint64_t>(), 0U);
    EXPECT_TRUE(says(test::content_of(page), "max_pool"));
    std::filesystem::remove(page);
    EXPECT_EQ(ran(on, 3)["results"], j["results"]);
    EXPECT_NE(ran(on, 4)["results"], j["results"]);
  }
  const std::string run_file = fmt::format("run '{}' --shape a=1 ", network_file);
  for (const char* wrong : {"--input z=random", "--input z=z.npy"})
    expect_refused(run(run_file + wrong), "the model has no input 'z'; its inputs are x");
  expect_refused(run(run_file + "--input x=x.csv"), "--input");
  expect_refused(run(run_file + "--report run.pdf"), "--report");
  expect_refused(run(run_file + "--machine none"), "'none'");
  expect_refused(run(run_file + "--threads 0"), "--threads");
}

TEST_F(OnnxTest, TakesTheIntegersAndTruthValuesOfItsInputs) {
  OnnxFile network;
  network.input("n", {2}, test::kInt64).input("b", {2}, test::kBool).output("y").output("z");
  network.node("Neg", {"n"}, {"y"}).node("Not", {"b"}, {"z"});
  const std::string network_file = model(network);
  const auto ran = [&](double number) {
    const uint64_t shape[] = {2};
    io::write_npy_array(path("n.npy"), shape, std::vector<double>{1, number}, true);
    io::write_npy_array(path("b.npy"), shape, std::vector<double>{0, 5}, true);
    return run(fmt::format("run '{}' --input n='{}' --input b='{}' --save y='{}' --save z='{}'", network_file,
                           path("n.npy"), path("b.npy"), path("y.npy"), path("z.npy")));
  };
  const auto saved = [&](const std::string& name) {
    return io::read_npy_array(io::Source::open(path(name)), 100).values;
  };
  const Outcome o = ran(2147483647);
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(saved("y.npy"), (std::vector<double>{-1, -2147483647}));
  EXPECT_EQ(saved("z.npy"), (std::vector<double>{1, 0}));
  expect_failure(1, ran(2147483648),
                 "the value 2147483648 is out of range; the input 'n' is int64, and takes integers from "
                 "-2147483648 to 2147483647");
}

TEST_F(OnnxTest, MeasuresInStreams) {
  const std::string benchmark =
      fmt::format("benchmark '{}' --batch 2 --seconds 0.01 --warm-up 0.01 --streams 2 ", model(network()));
  const json j = json_of(run(benchmark + "--threads 2 --json"));
  EXPECT_EQ(j["streams"], 2);
  EXPECT_EQ(j["threads_per_stream"], 1);
  EXPECT_GE(j["results"][0]["runs"].get<int>(), 2) << "one of each stream";
  EXPECT_TRUE(says(run(benchmark + "--threads 4").out, "2 streams of 2 threads, 2 samples per run"));
  expect_refused(run(benchmark + "--threads 1"),
                 "--streams is 2; it must be at most the number of threads, 1");
}

/// A script in Python's place writes down its arguments, and prints the contents of a file.
TEST_F(OnnxTest, BenchmarksBesideOthers) {
  const std::string arguments = path("arguments"), printed = path("printed");
  const std::string python =
      file("python",
           fmt::format("#!/bin/sh\nfor each; do echo \"$each\"; done >'{}'\n. '{}'\n", arguments, printed));
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  const std::string model_file = model(network());
  const auto command_with = [&](const std::string& of) {
    return fmt::format(
        "benchmark '{}' --batch 2 --seconds 0.01 --warm-up 0.01 --streams 2 --threads 2 --python '{}' "
        "--beside ",
        model_file, of);
  };
  const std::string command = command_with(python);
  file("printed",
       R"(echo '{"results": [{"engine": "openvino", "runs": 3, "seconds": 1.5, "samples_per_second": 4,
          "least_seconds": 0.25, "median_seconds": 0.5, "p90_seconds": 0.75, "p99_seconds": 1}]}')");
  const json j = json_of(run(command + "onnxruntime,openvino --json"));
  ASSERT_EQ(j["results"].size(), 2U);
  EXPECT_EQ(j["results"][0]["engine"], "tessera");
  EXPECT_EQ(j["results"][1]["engine"], "openvino");
  EXPECT_EQ(j["results"][1]["median_seconds"], 0.5);
  EXPECT_EQ(test::content_of(arguments),
            fmt::format("-P\n-m\ntessera.onnx\n--json\n--engines=onnxruntime,openvino\n--seconds=0.02\n"
                        "--warm-up=0.02\n--threads=2\n--streams=2\n--shape=x=2,1,5,5\n--\nbenchmark\n{}\n",
                        model_file));
  EXPECT_TRUE(says(run(command + "openvino").out, "openvino"));
  file("printed", "echo none");
  const Outcome without = run(command + "openvino --json");
  expect_failure(1, without, "--beside: " + python + " -m tessera.onnx printed no results");
  EXPECT_EQ(json_of(without, 1)["results"].size(), 1U);
  file("printed", "exit 3");
  expect_failure(1, run(command + "openvino"), python + " ended with status 3");
  file("printed", "kill -9 $$");
  expect_failure(1, run(command + "openvino"), python + " was ended by signal 9");
  expect_failure(1, run(command_with("/nowhere/python") + "openvino"), "cannot run /nowhere/python: No such");
  expect_refused(run(command + "other"),
                 "--beside: invalid value 'other' (choose from onnxruntime, openvino)");
}

/// A script in Python's place writes down its process id, and ends the tool.
TEST_F(OnnxTest, ASignalEndsWhatRunsBesideToo) {
  const std::string number = path("number");
  const std::string python =
      file("python", fmt::format("#!/bin/sh\necho $$ >'{}'\nkill -TERM $PPID\nexec sleep 60\n", number));
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  const Outcome o = run(
      fmt::format("benchmark '{}' --batch 2 --seconds 0.01 --warm-up 0.01 --python '{}' --beside openvino",
                  model(network()), python));
  EXPECT_NE(o.status, 0);
  EXPECT_EQ(o.out, "");
  const pid_t child = std::stoi(test::content_of(number));
  const bool is_left = kill(child, 0) == 0;
  EXPECT_FALSE(is_left) << "process " << child;
  if (is_left) kill(child, SIGKILL);
}

TEST_F(OnnxTest, TheExampleRunsModelsWithOpenDimensions) {
  for (const OnnxFile& each : {network(), unnamed_network(), network(3)}) {
    const Outcome o = run_command(fmt::format("'{}' '{}' 3", TESSERA_ONNX_EXAMPLE, model(each)));
    EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_TRUE(says(o.out, "conv.weight: density 1.000, dense\ny: 24 numbers"));
  }
  expect_failure(2, run_command(fmt::format("'{}'", TESSERA_ONNX_EXAMPLE)), "usage: example_onnx_model");
  expect_failure(1, run_command(fmt::format("'{}' none.onnx", TESSERA_ONNX_EXAMPLE)), "none.onnx");
}

TEST_F(OnnxTest, InspectsAndMeasures) {
  const std::string network_file = model(network());
  EXPECT_TRUE(says(run(fmt::format("inspect '{}'", network_file)).out, "conv.weight"));
  const json j = json_of(
      run(fmt::format("benchmark '{}' --batch 2 --seconds 0.01 --warm-up 0.01 --json", network_file)));
  EXPECT_EQ(j["samples_per_run"], 2);
  const std::string fixed = fmt::format("benchmark '{}' --seconds 0.01 --warm-up 0.01", model(network(3)));
  expect_refused(run(fixed + " --batch 2"),
                 "--batch is 2, but no input leaves its first dimension open: x float32[3, 1, 5, 5]");
  EXPECT_EQ(run(fixed + " --batch 3").status, 0);
  const std::string unnamed =
      fmt::format("benchmark '{}' --batch 2 --seconds 0.01 --warm-up 0.01", model(unnamed_network()));
  expect_refused(run(unnamed), "the first dimension of 'x' has no name: give its --shape");
  EXPECT_EQ(json_of(run(unnamed + " --shape x=2,1,5,5 --json"))["samples_per_run"], 2);
  expect_refused(run(unnamed + " --shape x=3,1,5,5"), "--batch is 2, but no input");
  expect_refused(run(fmt::format("benchmark '{}' --batch 2 --shape a=3 --seconds 0.01", model(network()))),
                 "--batch is 2, but --shape gives 'a' the size 3: leave one of them out");
}

TEST_F(OnnxTest, InspectsConvolutionsInTheOrderOfTheirProducts) {
  // Only one of four taps has weights: [outputs, taps · channels] has full blocks, [outputs, channels · taps]
  // none.
  constexpr int64_t kChannels = 32, kTaps = 4;
  std::vector<float> weight(kChannels * kChannels * kTaps);
  for (size_t i = 1; i < weight.size(); i += kTaps) weight[i] = 1;
  const auto inspected = [&](int64_t groups) {
    OnnxFile network;
    network.input("x", {1, kChannels * groups, 8, 8}).output("y");
    network.floats("w", {kChannels, kChannels, 2, 2}, weight)
        .node("Conv", {"x", "w"}, {"y"}, {{"group", groups}});
    return json_of(run(fmt::format("inspect '{}' --json", model(network))))["results"][0];
  };
  const json whole = inspected(1);
  ASSERT_FALSE(whole["blocks"].empty());
  for (const json& blocks : whole["blocks"]) EXPECT_EQ(blocks["density"], 0.25) << blocks;
  EXPECT_NE(whole["reason"], "not a product");
  EXPECT_NE(inspected(2)["reason"], "not a product") << "of several groups";
}

TEST_F(OnnxTest, InspectsWithTheRowsOfTheModel) {
  const auto rows_of = [&](const OnnxFile& network, const std::string& options) {
    return json_of(run(fmt::format("inspect '{}' {} --json", model(network), options)))["results"][0]["rows"];
  };
  EXPECT_EQ(rows_of(network(2), ""), 2 * 4 * 4);
  EXPECT_EQ(rows_of(network(), "--shape a=3"), 3 * 4 * 4);
  EXPECT_EQ(rows_of(network(), "--shape x=3,1,5,5 --tensor conv.weight"), 3 * 4 * 4);
  EXPECT_EQ(rows_of(network(), ""), 128);
  EXPECT_EQ(rows_of(network(), "--rows 64"), 64);
  OnnxFile converted;
  converted.input("x", {5, 2})
      .output("y")
      .initializer("w", {2, 2}, 10)
      .set_raw_data("\x01\x3C\x01\x3C\x01\x3C\x01\x3C");
  converted.node("Cast", {"w"}, {"c"}, {{"to", int64_t{1}}}).node("MatMul", {"x", "c"}, {"y"});
  EXPECT_EQ(rows_of(converted, ""), 5);
  const std::string network_file = model(network());
  EXPECT_TRUE(
      says(run(fmt::format("inspect '{}' --shape a=3", network_file)).out, "with the rows of their inputs"));
  expect_refused(run(fmt::format("inspect '{}' --shape z=3", network_file)), "a shape is given for 'z'");
  expect_refused(run(fmt::format("inspect '{}' w.npy --shape a=3", network_file)),
                 "--shape is for .onnx files, not for w.npy");
}

TEST_F(OnnxTest, InspectsFirstFactorsOfProducts) {
  const auto inspected = [&](const std::string& type, bool transposed,
                             const std::vector<int64_t>& shape = {3, 2}) {
    OnnxFile network;
    network.input("x", {2, 4}).output("y");
    network.floats("w", transposed ? std::vector<int64_t>{2, 3} : shape, {1, 0, 2, 0, 3, 4});
    if (transposed)
      network.node(type, {"w", "x"}, {"y"}, {{"transA", int64_t{1}}});
    else
      network.node(type, {"w", "x"}, {"y"});
    return json_of(run(fmt::format("inspect '{}' --json", model(network))))["results"][0];
  };
  for (const json& result : {inspected("MatMul", false), inspected("MatMul", false, {1, 1, 3, 2}),
                             inspected("Gemm", false), inspected("Gemm", true)}) {
    EXPECT_NE(result["reason"], "not a product");
    EXPECT_EQ(result["rows"], 4);
    EXPECT_EQ(result["m"], 3);
    EXPECT_EQ(result["k"], 2);
  }
}

TEST_F(OnnxTest, InspectsQuantisedWeights) {
  constexpr int32_t kInt8 = 3;
  const auto inspected = [&](const std::vector<int64_t>& shape, const std::string& zero_points) {
    OnnxFile network;
    network.input("x", {4, 2}).output("y");
    network.initializer("q", {2, 2}, kInt8).set_raw_data("\x01\x02\xFF\xFF");
    network.floats("scale", shape, std::vector<float>(zero_points.size(), 0.5F));
    network.initializer("zero", shape, kInt8).set_raw_data(zero_points);
    network.node("DequantizeLinear", {"q", "scale", "zero"}, {"w"}, {{"axis", int64_t{0}}})
        .node("MatMul", {"x", "w"}, {"y"});
    return json_of(run(fmt::format("inspect '{}' --json", model(network))));
  };
  const json whole = inspected({}, "\x01"), by_row = inspected({2}, "\x01\xFF");
  ASSERT_EQ(whole["results"].size(), 1U);
  const json& result = whole["results"][0];
  EXPECT_EQ(result["name"], "q");
  EXPECT_EQ(result["dtype"], "I8");
  EXPECT_EQ(result["nnz"], 3);
  EXPECT_NE(result["reason"], "not a product");
  EXPECT_EQ(by_row["results"][0]["nnz"], 1);
  EXPECT_TRUE(whole["tensors"][2]["nnz"].is_null()) << "of its zero point";
}

TEST_F(OnnxTest, SaysWhatIsWrong) {
  const std::string network_file = model(network());
  expect_refused(run(fmt::format("run '{}'", network_file)), "give its shape");
  expect_refused(run(fmt::format("run '{}' --shape a=1 --save z=z.npy", network_file)), "no output 'z'");
  const auto refused = [&](const std::string& options, const std::string& message) {
    expect_refused(run(fmt::format("run '{}' --shape a=1 {}", network_file, options)), message);
  };
  refused("--save y=", "--save: invalid value 'y=' (expected NAME=FILE.npy)");
  refused("--save y=a.npy --save y=b.npy", "--save names 'y' twice");
  refused("--save y=a.npy --save z=./a.npy", "the same file for 'y' and 'z'");
  refused("--save y=page --report page", "--save and --report name the same file");
  expect_failure(1, run(fmt::format("run '{}'", file("none.onnx", "text"))), "it is not an ONNX file");
  OnnxFile other = network();
  other.node("NonMaxSuppression", {"r"}, {"z"}).output("z");
  expect_failure(1, run(fmt::format("run '{}' --shape a=1", model(other))), "NonMaxSuppression");
  OnnxFile lacks = network();
  onnx::wire::TensorProto& weight = *lacks.model().mutable_graph()->mutable_initializer(0);
  weight.clear_raw_data();
  weight.set_data_location(1);
  auto& entry = *weight.add_external_data();
  entry.set_key("location");
  entry.set_value("weights.bin");
  expect_failure(1, run(fmt::format("run '{}' --shape a=1", model(lacks))), "weights.bin");
}

}  // namespace
}  // namespace tessera
