// The tool: what it prints where, and how it ends.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace tessera {
namespace {

using nlohmann::json;

struct Outcome {
  int status = -1;
  std::string out;
  std::string err;
};

std::string contents_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

class CliTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("tessera_cli_{}_{}", getpid(), ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Outcome run(const std::string& arguments) const {
    const std::string command = fmt::format("TESSERA_CACHE='{}' '{}' {} >'{}/out' 2>'{}/err'", folder_.string(),
                                            TESSERA_TOOL, arguments, folder_.string(), folder_.string());
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents_of(folder_ / "out"), contents_of(folder_ / "err")};
  }

  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }

  std::filesystem::path folder_;
};

constexpr const char* kSmallMachine = R"(
tiles = 4
clock_ghz = 1.0
tile_bytes = {}
load_bytes_per_cycle = 8
exchange_bytes_per_cycle = 4
exchange_cycles = 100
sync_cycles = 50
macs_per_cycle_f16 = 64
macs_per_cycle_f32 = 16
)";

TEST_F(CliTest, JsonHoldsEveryCombinationWithItsKeys) {
  const Outcome o = run("spmm --m 64 --k 96 --density 1/4,1/2 --block 1,8 --n 4,20 --type f32,bf16 --json");
  ASSERT_EQ(o.status, 0) << o.err;
  const json j = json::parse(o.out);
  EXPECT_EQ(j["schema"], 1);
  EXPECT_EQ(j["command"], "spmm");
  EXPECT_EQ(j["results"].size(), 2U * (2 + 2 * 2 * 2));  // types × (dense n + density × block × n)
  for (const json& r : j["results"]) {
    for (const char* key : {"machine", "mode", "type", "block", "m", "k", "n", "requested_density", "density", "nnz",
                            "fits", "seconds", "cycles", "useful_gflops", "dense_seconds", "speedup", "verified",
                            "max_abs_error", "max_rel_error", "phases", "memory", "plan"})
      EXPECT_TRUE(r.contains(key)) << key;
    EXPECT_EQ(r["verified"], true);
    EXPECT_TRUE(r["cycles"].is_null());
    double sum = 0;
    for (const auto& [name, seconds] : r["phases"].items()) sum += seconds.get<double>();
    EXPECT_NEAR(sum, r["seconds"].get<double>(), 1e-9 + 1e-6 * sum);
    EXPECT_EQ(r["speedup"].is_null(), r["mode"] == "dense");
  }
}

TEST_F(CliTest, TableHasARowForEachAndNothingOnStderr) {
  const Outcome o = run("spmm --m 64 --k 64 --density 1/4 --block 4 --n 8");
  EXPECT_EQ(o.status, 0);
  EXPECT_NE(o.out.find("static"), std::string::npos);
  EXPECT_NE(o.out.find("dense"), std::string::npos);
  EXPECT_EQ(o.err, "");
}

TEST_F(CliTest, EstimateDoesNotVerify) {
  const Outcome o = run("spmm --m 64 --k 64 --density 1/4 --block 4 --n 8 --estimate --json");
  ASSERT_EQ(o.status, 0);
  for (const json& r : json::parse(o.out)["results"]) {
    EXPECT_TRUE(r["verified"].is_null());
    EXPECT_GT(r["seconds"].get<double>(), 0);
  }
}

TEST_F(CliTest, PrintsPlanCandidatesAndProgram) {
  const std::string spmm = "spmm --m 64 --k 64 --density 1/4 --block 4 --n 8 --mode static ";
  EXPECT_NE(run(spmm + "--print plan").out.find("predicted"), std::string::npos);
  EXPECT_NE(run(spmm + "--print candidates").out.find("rejected: "), std::string::npos);
  EXPECT_NE(run(spmm + "--print program").out.find("execute multiply"), std::string::npos);
}

TEST_F(CliTest, RunsOnAMachineOfOnesOwn) {
  const std::string machine = file("toy.toml", fmt::format(fmt::runtime(kSmallMachine), 100000));
  const std::string spmm = fmt::format("spmm --m 64 --k 64 --density 1/4 --block 4 --n 8 --type f32,f16,f16-f32 --machine '{}' --json", machine);
  const Outcome run_out = run(spmm);
  ASSERT_EQ(run_out.status, 0) << run_out.err;
  const Outcome estimate = run(spmm + " --estimate");
  const json results = json::parse(run_out.out)["results"];
  const json estimates = json::parse(estimate.out)["results"];
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i]["verified"], true);
    EXPECT_GT(results[i]["cycles"].get<double>(), 0);
    EXPECT_EQ(results[i]["cycles"], estimates[i]["cycles"]);
    EXPECT_EQ(results[i]["memory"], estimates[i]["memory"]);
  }
}

TEST_F(CliTest, NotFittingIsAnAnswer) {
  const std::string machine = file("small.toml", fmt::format(fmt::runtime(kSmallMachine), 3500));
  const Outcome o = run(fmt::format("spmm --m 256 --k 256 --density 1/4 --block 4 --n 64 --machine '{}' --json", machine));
  EXPECT_EQ(o.status, 0);
  for (const json& r : json::parse(o.out)["results"]) {
    EXPECT_EQ(r["fits"], false);
    EXPECT_TRUE(r["seconds"].is_null());
  }
  EXPECT_NE(o.err.find("vertex state"), std::string::npos);
}

TEST_F(CliTest, ReadsWeightsAndCoversThemWithBlocks) {
  const std::string weights = file("w.smtx", "4, 8, 4\n0 1 2 3 4\n0 1 2 7\n");
  const Outcome o = run(fmt::format("spmm --weights '{}' --n 3 --block 1,4 --mode static --json", weights));
  ASSERT_EQ(o.status, 0) << o.err;
  const json results = json::parse(o.out)["results"];
  EXPECT_EQ(results[0]["nnz"], 4);
  EXPECT_EQ(results[1]["nnz"], 32);
  EXPECT_EQ(results[1]["fill_in"], 8.0);
}

TEST_F(CliTest, InspectShowsCoveringsAndAdvice) {
  const std::string weights = file("w.smtx", "4, 8, 4\n0 1 2 3 4\n0 1 2 7\n");
  const Outcome text = run(fmt::format("inspect '{}'", weights));
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("use "), std::string::npos);
  const Outcome o = run(fmt::format("inspect '{}' --json", weights));
  const json result = json::parse(o.out)["results"][0];
  EXPECT_EQ(result["nnz"], 4);
  EXPECT_EQ(result["blocks"].size(), 5U);
  EXPECT_EQ(result["advice"].size(), 6U);
}

TEST_F(CliTest, MachinesShowFiguresAndSources) {
  EXPECT_EQ(run("machines").status, 0);
  const Outcome o = run("machines show host --json");
  ASSERT_EQ(o.status, 0);
  for (const json& figure : json::parse(o.out)["results"][0]["figures"]) EXPECT_NE(figure["source"], "");
}

TEST_F(CliTest, RestrictsTheInstructionSet) {
  EXPECT_EQ(run("spmm --m 64 --k 64 --density 1/4 --block 1,4 --n 8 --isa generic").status, 0);
  const Outcome o = run("spmm --m 64 --k 64 --density 1/4 --n 8 --isa sse9");
  EXPECT_EQ(o.status, 2);
  EXPECT_NE(o.err.find("unknown instruction set 'sse9'"), std::string::npos);
}

struct Misuse {
  const char* arguments;
  const char* message;
};

TEST_F(CliTest, MisuseEndsWithStatus2AndOneMessage) {
  for (const Misuse& misuse : {Misuse{"spmm --m 4 --k 4 --density 1/2", "--n is missing"},
                               {"spmm --m 4 --k 4 --density 3/2 --n 4", "--density takes shares from 0 to 1"},
                               {"spmm --m 4 --k 4 --density nan --n 4", "--density takes shares from 0 to 1"},
                               {"spmm --m 4 --k 4 --density 1/2 --n -4", "--n takes whole numbers"},
                               {"spmm --m 4 --k 4 --density 1/2 --n 4,", "--n takes whole numbers"},
                               {"spmm --m 4 --k 4 --density 1/2 --n 4 --type f8", "--type takes"},
                               {"spmm --m 4 --k 4 --density 1/2 --n 4 --type f16-f32", "for tiled machines"},
                               {"spmm --m 4 --k 4 --density 1/2 --n 4 --mode magic", "--mode takes"},
                               {"spmm --m 4 --k 4 --density 1/2 --n 4 --block 5", "block size of 5"},
                               {"spmm --m 4 --k 4 --density 1/2 --n 4 --machine moon", "unknown machine 'moon'"},
                               {"spmm --m 4 --k 4 --density 1/2 --n 4 --plan x=1 --mode static", "no knob 'x'"},
                               {"spmm --weights a.smtx --m 4 --n 4", "leave out --m"},
                               {"spmm --weights a.xyz --n 4", ".xyz"},
                               {"spmm --n 4", "--weights FILE"}}) {
    const Outcome o = run(misuse.arguments);
    EXPECT_EQ(o.status, 2) << misuse.arguments;
    EXPECT_NE(o.err.find(misuse.message), std::string::npos) << misuse.arguments << ": " << o.err;
    EXPECT_EQ(o.out, "") << misuse.arguments;
  }
  EXPECT_EQ(run("").status, 2);
  EXPECT_EQ(run("spmm --colour red").status, 2);
}

TEST_F(CliTest, FailuresEndWithStatus1AndOneMessage) {
  const Outcome missing = run("spmm --weights nowhere.smtx --n 4");
  EXPECT_EQ(missing.status, 1);
  EXPECT_NE(missing.err.find("nowhere.smtx"), std::string::npos);
  const Outcome corrupt = run(fmt::format("inspect '{}'", file("bad.smtx", "4, 8, 99999999999\n0\n")));
  EXPECT_EQ(corrupt.status, 1);
  EXPECT_NE(corrupt.err.find("bad.smtx"), std::string::npos);
  const Outcome huge = run("spmm --m 2000000000 --k 2000000000 --density 1/2 --n 4");
  EXPECT_EQ(huge.status, 1);
  EXPECT_NE(huge.err.find("memory"), std::string::npos) << huge.err;
  const Outcome machine = run(fmt::format("spmm --m 4 --k 4 --density 1/2 --n 4 --machine '{}'", file("m.toml", "tiles = nan\n")));
  EXPECT_EQ(machine.status, 1);
  EXPECT_NE(machine.err.find("'tiles'"), std::string::npos) << machine.err;
}

TEST_F(CliTest, HelpHasAnExample) {
  for (const char* command : {"", "spmm", "inspect", "machines"}) {
    const Outcome o = run(fmt::format("{} --help", command));
    EXPECT_EQ(o.status, 0);
    EXPECT_NE(o.out.find("xample"), std::string::npos) << command;
  }
}

}  // namespace
}  // namespace tessera
