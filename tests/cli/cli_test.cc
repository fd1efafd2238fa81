// The tool: its output and exit status.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "cli/tool.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::expect_failure;
using test::expect_refused;
using test::json_of;
using test::Outcome;
using test::results_of;
using test::says;

class CliTest : public test::ToolTest {};

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
  const json j = json_of(o);
  EXPECT_EQ(j["schema"], 2);
  EXPECT_EQ(j["command"], "spmm");
  EXPECT_EQ(j["results"].size(), 2U * (2 + 2 * 2 * 2));  // types × (dense n + density × block × n)
  for (const json& r : j["results"]) {
    for (const char* key : {"machine",
                            "mode",
                            "type",
                            "block",
                            "m",
                            "k",
                            "n",
                            "requested_density",
                            "density",
                            "nnz",
                            "fits",
                            "seconds",
                            "cycles",
                            "useful_gflops",
                            "dense_seconds",
                            "speedup",
                            "verified",
                            "max_abs_error",
                            "max_rel_error",
                            "phases",
                            "memory",
                            "plan"})
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
  EXPECT_TRUE(says(o.out, "static"));
  EXPECT_TRUE(says(o.out, "dense"));
  EXPECT_EQ(o.err, "");
}

TEST_F(CliTest, EstimateDoesNotVerify) {
  const Outcome o = run("spmm --m 64 --k 64 --density 1/4 --block 4 --n 8 --estimate --json");
  for (const json& r : results_of(o)) {
    EXPECT_TRUE(r["verified"].is_null());
    EXPECT_GT(r["seconds"].get<double>(), 0);
  }
}

TEST_F(CliTest, GradientsAreProductsToo) {
  const Outcome o =
      run("spmm --m 80 --k 56 --density 1/4 --block 8 --n 20 --product forward,input_gradient --json");
  const json results = results_of(o);
  ASSERT_EQ(results.size(), 4u);
  for (const json& r : results) EXPECT_EQ(r["verified"], true) << r;
  EXPECT_EQ(results[3]["product"], "input_gradient");
  EXPECT_EQ(results[3]["dense_seconds"], results[2]["seconds"]);
}

TEST_F(CliTest, RunsTheThreeProductsOnTilesStaticDynamicAndDense) {
  const std::string spmm =
      "spmm --m 96 --k 80 --density 1/4 --block 4 --n 20 --machine bow --type f16,f16-f32 "
      "--mode static,dynamic,dense --product forward,input_gradient,sddmm --json";
  const Outcome o = run(spmm);
  const json results = results_of(o);
  const json estimates = results_of(run(spmm + " --estimate"));
  ASSERT_EQ(results.size(), 18u);
  for (size_t i = 0; i < results.size(); ++i) {
    const json& r = results[i];
    EXPECT_EQ(r["verified"], true) << r;
    EXPECT_EQ(r["cycles"], estimates[i]["cycles"]) << r;
    EXPECT_EQ(r["steps"].is_null(), r["mode"] != "dynamic") << r;
    EXPECT_EQ(r["update_seconds"].is_null(), r["mode"] != "dynamic") << r;
  }
}

TEST_F(CliTest, PrintsPlanCandidatesAndProgram) {
  const std::string spmm = "spmm --m 64 --k 64 --density 1/4 --block 4 --n 8 --mode static --threads 2 ";
  EXPECT_TRUE(says(run(spmm + "--print plan").out, "predicted"));
  EXPECT_TRUE(says(run(spmm + "--print candidates").out, "rejected: "));
  EXPECT_TRUE(says(run(spmm + "--print program").out, "execute multiply"));
}

TEST_F(CliTest, RunsOnAMachineOfOnesOwn) {
  const std::string machine = file("toy.toml", fmt::format(fmt::runtime(kSmallMachine), 100000));
  const std::string spmm = fmt::format(
      "spmm --m 64 --k 64 --density 1/4 --block 4 --n 8 --type f32,f16,f16-f32 --machine '{}' --json",
      machine);
  const Outcome run_out = run(spmm);
  ASSERT_EQ(run_out.status, 0) << run_out.err;
  const Outcome estimate = run(spmm + " --estimate");
  const json results = results_of(run_out);
  const json estimates = results_of(estimate);
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i]["verified"], true);
    EXPECT_GT(results[i]["cycles"].get<double>(), 0);
    EXPECT_EQ(results[i]["cycles"], estimates[i]["cycles"]);
    EXPECT_EQ(results[i]["memory"], estimates[i]["memory"]);
  }
}

TEST_F(CliTest, NotFittingIsAnAnswer) {
  const std::string machine = file("small.toml", fmt::format(fmt::runtime(kSmallMachine), 3500));
  const std::string command =
      fmt::format("spmm --m 256 --k 256 --density 1/4 --block 4 --n 64 --machine '{}' --json ", machine);
  const Outcome o = run(command);
  EXPECT_EQ(run(command + "--estimate").status, 0);
  EXPECT_EQ(run(command + "--set tile_bytes=3500:1000000").status, 0);
  for (const json& r : results_of(o, 1)) {  // nothing ran
    EXPECT_EQ(r["fits"], false);
    EXPECT_TRUE(r["seconds"].is_null());
  }
  EXPECT_TRUE(says(o.err, "vertex state"));
}

TEST_F(CliTest, ReadsWeightsAndCoversThemWithBlocks) {
  const std::string weights = file("w.smtx", "4, 8, 4\n0 1 2 3 4\n0 1 2 7\n");
  const Outcome o = run(fmt::format("spmm --weights '{}' --n 3 --block 1,4 --mode static --json", weights));
  const json results = results_of(o);
  EXPECT_EQ(results[0]["nnz"], 4);
  EXPECT_EQ(results[1]["nnz"], 32);
  EXPECT_EQ(results[1]["fill_in"], 8.0);
}

TEST_F(CliTest, MachinesShowFiguresAndSources) {
  EXPECT_EQ(run("machines").status, 0);
  const Outcome o = run("machines show host --json");
  ASSERT_EQ(o.status, 0);
  const json machine = results_of(o)[0];
  for (const json& figure : machine["figures"]) EXPECT_NE(figure["source"], "");
}

TEST_F(CliTest, MachinesListsTheModelledOnesWithTheirSources) {
  const json machines = results_of(run("machines --json"));
  std::vector<std::string> names;
  for (const json& machine : machines) {
    names.push_back(machine["name"]);
    for (const json& figure : machine["figures"]) EXPECT_NE(figure["source"], "") << names.back() << figure;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"host", "gc2", "gc200", "bow", "m2000", "pod16", "pod64",
                                             "pod128", "pod256", "bow2000", "bow_pod16", "bow_pod64",
                                             "bow_pod128", "bow_pod256"}));
  const Outcome bow = run("machines show bow");
  EXPECT_EQ(bow.status, 0);
  EXPECT_TRUE(says(bow.out, "PopSparse paper, section 4"));
}

TEST_F(CliTest, MachinesShowTheTreeOfSeveralChips) {
  const Outcome o = run("machines show m2000");
  ASSERT_EQ(o.status, 0);
  for (const char* line : {"4 chips\n", "├─ 4 links: ladder; chip 0 to 1, 2\n",
                           "└─ each: 1,472 tiles of 639.0 kB", "   └─ each: 6 workers\n"})
    EXPECT_TRUE(says(o.out, line));
  EXPECT_TRUE(says(run("machines show gc200").out,
                   "1 chip\n├─ each: 131.5 GB of streaming memory\n└─ each: 1,472 tiles"));
  const json m = results_of(run("machines show pod64 --json"))[0];
  EXPECT_EQ(m["chips"], 64);
  EXPECT_EQ(m["topology"], "torus");
  EXPECT_EQ(m["links"].size(), 64u + 32);
  EXPECT_FALSE(results_of(run("machines show bow --json"))[0].contains("chips"));
}

TEST_F(CliTest, SpmmTellsWhatEachChipAndLinkHasToDo) {
  const Outcome o =
      run("spmm --m 256 --k 256 --density 1/4 --block 4 --n 512 --mode static --product forward,sddmm "
          "--type f32 --machine m2000 --set tiles=16 --json");
  const json results = results_of(o);
  ASSERT_EQ(results.size(), 2u);
  for (const json& r : results) {
    EXPECT_EQ(r["verified"], true);
    ASSERT_EQ(r["chips"].size(), 4u) << r;
    EXPECT_EQ(r["chips"][3]["chip"], 3);
    EXPECT_EQ(r["chips"][0]["seconds"], r["seconds"]);
  }
  EXPECT_TRUE(says(results[0]["plan"]["partition"].get<std::string>(), "4 chips, each 128 columns"));
  EXPECT_TRUE(results[0]["links"].empty());
  EXPECT_FALSE(results[1]["links"].empty());  // W's gradient is a sum over all chips
}

TEST_F(CliTest, SetSweepsFiguresOfModelledMachines) {
  const Outcome o =
      run("spmm --m 64 --k 64 --density 1/4 --n 8 --mode static --machine host,gc2,bow "
          "--set tiles=2:4,exchange_bytes=4:8 --estimate --json");
  const json results = results_of(o);
  ASSERT_EQ(results.size(), 1U + 2 * 4);
  EXPECT_EQ(results[0]["machine"], "host");
  EXPECT_TRUE(results[0]["settings"].empty());
  for (size_t i = 1; i < results.size(); ++i) {
    EXPECT_EQ(results[i]["machine"], i < 5 ? "gc2" : "bow");
    EXPECT_EQ(results[i]["plan"]["tiles"], results[i]["settings"]["tiles"]);
    EXPECT_TRUE(results[i]["settings"].contains("exchange_bytes")) << results[i];
  }
}

TEST_F(CliTest, EstimatesWhatItExecutesOnEveryMachine) {
  const std::string spmm =
      "spmm --m 96 --k 80 --density 1/8 --block 1,8 --n 5,33 --type f16,f16-f32,f32 "
      "--machine gc2,gc200,bow --json";
  const Outcome run_out = run(spmm);
  const json results = results_of(run_out);
  const json estimates = results_of(run(spmm + " --estimate"));
  ASSERT_EQ(results.size(), estimates.size());
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i]["verified"], true) << results[i];
    for (const char* key : {"cycles", "seconds", "phases", "memory", "plan"})
      EXPECT_EQ(results[i][key], estimates[i][key]) << key;
  }
}

TEST_F(CliTest, RunsOnMachinesOfAbsurdShapes) {
  const std::string spmm = "spmm --m 37 --k 53 --density 1/4 --block 1,4 --n 7 --type f16 --machine bow ";
  for (const char* settings :
       {"tiles=1", "tiles=7", "tiles=1471", "workers_per_tile=1", "tile_bytes=1000000000000",
        "interleaved_from=0", "interleaved_from=1000000000000"}) {
    const Outcome o = run(spmm + "--json --set " + settings);
    ASSERT_EQ(o.status, 0) << settings << o.err;
    for (const json& r : results_of(o)) EXPECT_EQ(r["verified"], true) << settings << r;
  }
  for (const char* settings : {"tile_bytes=1", "tile_bytes=2000", "tiles=1,tile_bytes=5000"}) {
    const Outcome o = run(spmm + "--json --set " + settings);
    EXPECT_EQ(run(spmm + "--estimate --set " + settings).status, 0) << settings;
    EXPECT_TRUE(says(o.err, "; it holds")) << settings;
    for (const json& r : results_of(o, 1)) EXPECT_EQ(r["fits"], false) << settings << r;
  }
}

TEST_F(CliTest, RestrictsTheInstructionSet) {
  EXPECT_EQ(run("spmm --m 64 --k 64 --density 1/4 --block 1,4 --n 8 --isa generic").status, 0);
  expect_failure(2, run("spmm --m 64 --k 64 --density 1/4 --n 8 --isa sse9"),
                 "unknown instruction set 'sse9'");
}

struct Misuse {
  const char* arguments;
  const char* message;
};

TEST_F(CliTest, MisuseEndsWithStatus2AndOneMessage) {
  for (const Misuse& misuse :
       {Misuse{"spmm --m 4 --k 4 --density 1/2", "--n is missing"},
        {"spmm --m 4 --k 4 --density 3/2 --n 4", "(expected fractions from 0 to 1"},
        {"spmm --m 4 --k 4 --density nan --n 4", "(expected fractions from 0 to 1"},
        {"spmm --m 4 --k 4 --density 1/2 --n -4", "--n: invalid value '-4' (expected whole numbers"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4,", "--n: invalid value '' (expected whole numbers"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --type f8",
         "--type: invalid value 'f8' (choose from f32, f16, bf16, f16-f32)"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --type f16-f32", "for tiled machines"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --mode magic",
         "--mode: invalid value 'magic' (choose from static, dynamic, dense)"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --block 5", "block size of 5"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --machine moon", "unknown machine 'moon'"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --machine bow --set tiles=0",
         "'tiles' is 0; it must be a whole number from 1 to 1048576"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --machine bow --set cores=2", "unknown figure 'cores'"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --machine bow --set exchange=2", "may mean"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --machine bow --set tiles", "KEY=VALUE"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --machine bow --set tiles=2:x", "not a number"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --machine bow --set tiles=2,tiles=3", "twice"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --set tiles=2", "is for modelled machines"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --plan x=1 --mode static", "unknown knob 'x'"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --plan panel_cols=1,panel_cols=2", "twice"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --mode dense --plan x=1", "unknown knob 'x'"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --product sddmm --plan micro_rows=8",
         "unknown knob 'micro_rows'"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --seed -1", "--seed: invalid value '-1'"},
        {"spmm --m -4 --k 4 --density 1/2 --n 4", "--m: invalid value '-4' (expected a whole number from"},
        {"spmm --m 4 --density 1/2 --n 4", "--m, --k and --density"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --threads 0", "--threads: invalid value '0'"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --estimate --verify full", "leave out one"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --json --print plan", "leave out one"},
        {"inspect a.npy --rows 0", "--rows: invalid value '0' (expected a whole number from 1"},
        {"inspect a.npy --report x.foo",
         "--report: invalid value 'x.foo' (expected the name of a .html file)"},
        {"spmm --weights a.smtx --n 4 --pattern banded", "leave out --m"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --planner vendor", "is for modelled machines"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --report x.foo",
         "--report: invalid value 'x.foo' (expected the name of a .html file)"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --trace x.html",
         "--trace: invalid value 'x.html' (expected the name of a .json file)"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --block 0", "use 1, 4, 8, 16 or 32"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --block 0 --machine bow",
         "--block 0: bow takes a block size from 1 to 32768"},
        {"spmm --m 4 --k 4 --density 1/2 --n 4 --n 5", "--n is given more than once"},
        {"spmm --m", "--m is given without a value"},
        {"spmm --frob", "unexpected argument '--frob'; see tessera spmm --help"},
        {"spmm --print frob",
         "--print: invalid value 'frob' (choose from plan, candidates, passes, program)"},
        {"inspect", "the argument paths is missing"},
        {"reproduce", "a command is missing after 'reproduce' (choose from packing, "},
        {"reproduce foo", "unknown command 'reproduce foo' (choose from packing, "},
        {"", "a command is missing (choose from spmm, "},
        {"frob", "unknown command 'frob'"},
        {"spmm --weights a.smtx --m 4 --n 4", "leave out --m"},
        {"spmm --weights a.xyz --n 4", ".xyz"},
        {"spmm --n 4", "--weights FILE"}}) {
    SCOPED_TRACE(misuse.arguments);
    expect_refused(run(misuse.arguments), misuse.message);
  }
  EXPECT_EQ(run("").status, 2);
  EXPECT_EQ(run("spmm --colour red").status, 2);
}

TEST_F(CliTest, FailuresEndWithStatus1AndOneMessage) {
  expect_failure(1, run("spmm --weights nowhere.smtx --n 4"), "nowhere.smtx");
  expect_failure(1, run(fmt::format("inspect '{}'", file("bad.smtx", "4, 8, 99999999999\n0\n"))), "bad.smtx");
  expect_failure(1, run("spmm --m 2000000000 --k 2000000000 --density 1/2 --n 4"), "memory");
  expect_failure(1,
                 run(fmt::format("spmm --m 4 --k 4 --density 1/2 --n 4 --machine '{}'",
                                 file("m.toml", "tiles = nan\n"))),
                 "'tiles'");
}

TEST_F(CliTest, MisuseOfOneCombinationIsRefusedBeforeAnyRuns) {
  const std::string machine = file("toy.toml", fmt::format(fmt::runtime(kSmallMachine), 100000));
  const std::string spmm = "spmm --m 64 --k 64 --density 1/2 --n 4 ";
  for (const std::string& wrong :
       {std::string("--block 4,5"), "--machine host," + machine + " --type f32,f16-f32",
        "--machine host," + machine + " --layout column", "--machine host," + machine + " --type bf16",
        std::string("--machine host,moon"), "--machine " + machine + " --plan row_parts=4,col_parts=4",
        std::string("--block 1,8 --plan micro_rows=4"), std::string("--block 32768,32769")}) {
    SCOPED_TRACE(wrong);
    expect_refused(run(spmm + wrong), "");
  }
}

TEST_F(CliTest, PanelsMayBeWiderThanEverything) {
  const Outcome o =
      run("spmm --m 64 --k 64 --density 1/2 --n 20 --block 8 --plan kernel=0,panel_cols=4294967295 --json");
  EXPECT_EQ(json_of(o)["results"][1]["verified"], true);
}

TEST_F(CliTest, AGradientsCutCanBeForced) {
  for (const char* cut : {"--block 8 --plan group_rows=16", "--block 1 --plan group_panels=1"}) {
    const Outcome o = run(
        fmt::format("spmm --m 64 --k 64 --density 1/2 --n 20 --product sddmm --mode static {} --json", cut));
    EXPECT_EQ(results_of(o)[0]["verified"], true) << cut;
  }
}

TEST_F(CliTest, FailuresAreOneJsonObjectToo) {
  const Outcome missing = run("spmm --weights nowhere.smtx --n 4 --json");
  EXPECT_TRUE(says(json_of(missing, 1)["error"].get<std::string>(), "nowhere.smtx"));
  EXPECT_EQ(json_of(run("machines show nowhere.toml --json"), 1)["command"], "machines");
  const Outcome huge = run("spmm --m 2000000000 --k 2000000000 --density 1/2 --n 4 --json");
  for (const json& r : results_of(huge, 1)) {
    EXPECT_TRUE(says(r["error"].get<std::string>(), "memory"));
    EXPECT_EQ(r["m"], 2000000000);
    for (const char* key : {"fits", "density", "nnz", "seconds", "verified", "plan", "memory"})
      EXPECT_TRUE(r[key].is_null()) << key;
  }
}

TEST_F(CliTest, WhatNoProgramHoldsDoesNotFit) {
  const std::string command = "spmm --m 1024 --k 1024 --n 1000000000 --mode dense --machine bow ";
  const Outcome o = run(command + "--estimate");
  EXPECT_EQ(o.status, 0);
  EXPECT_TRUE(says(o.out, "-  does not fit"));
  EXPECT_TRUE(says(o.err,
                   "does not fit bow: an operand of 1024 × 1000000000 has 1024000000000 elements; on "
                   "tiles it may have 4294967295"));
  const Outcome run_too = run(command + "--json");
  EXPECT_EQ(results_of(run_too, 1)[0]["fits"], false);
}

TEST_F(CliTest, AFailedRowHasTheDensityThatWasAskedFor) {
  const Outcome o = run("spmm --m 2000000000 --k 2000000000 --density 1/16 --n 1 --mode static");
  EXPECT_EQ(o.status, 1);
  EXPECT_TRUE(says(o.out, "0.0625"));
}

TEST_F(CliTest, AResultThatCannotBeWrittenIsAFailure) {
  for (const char* command : {"machines", "machines --json", "--help", "spmm --m 4 --k 4 --density 1 --n 4"})
    for (const char* around : {"{} >/dev/full", "{} >&-"}) {
      const Outcome o = run(command, around);
      EXPECT_EQ(o.status, 1) << command << around;
      EXPECT_TRUE(says(o.err, "cannot write the results to stdout")) << command << around;
    }
}

TEST_F(CliTest, StderrThatTakesNothingChangesNothing) {
  for (const char* around : {"{} 2>/dev/full", "{} 2>&-"}) {
    EXPECT_EQ(run("machines", around).status, 0);
    EXPECT_EQ(run("spmm", around).status, 2);
    EXPECT_EQ(run("inspect nowhere.npy", around).status, 1);
  }
}

TEST_F(CliTest, BadEnvironmentIsNamed) {
  for (const char* setting : {"TESSERA_THREADS=0", "TESSERA_THREADS=many", "TESSERA_ISA=sse9"}) {
    const std::string text = setting;
    expect_failure(2, run("machines", text + " {}"), text.substr(0, text.find('=')));
  }
}

TEST_F(CliTest, InterruptedRunsEndWith130AndLeaveNothing) {
  for (const char* command :
       {"spmm --m 4096 --k 4096 --density 1/2 --n 4096 --verify full", "machines measure"}) {
    const Outcome o = run(command, "timeout --preserve-status --signal=INT 0.3 {}");
    EXPECT_EQ(o.status, 130) << command;
    EXPECT_EQ(o.err, "interrupted\n") << command;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      EXPECT_TRUE(entry.path().filename() == "out" || entry.path().filename() == "err") << entry.path();
  }
}

TEST_F(CliTest, RefusesToMeasureWhatItCannotKeep) {
  expect_failure(1, run("machines measure", "TESSERA_CACHE=/dev/null/x timeout 2 {}"), "/dev/null/x");
}

TEST_F(CliTest, MachineFilesAreRegularFiles) {
  const std::string pipe = (folder_ / "pipe.toml").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_failure(1, run(fmt::format("machines show '{}'", pipe), "timeout 5 {}"), "not a regular file");
}

TEST_F(CliTest, NanAndInfinityAreData) {
  const std::string weights = file(
      "w.mtx", "%%MatrixMarket matrix coordinate real general\n9 9 4\n1 1 nan\n2 3 inf\n3 4 -inf\n4 4 1.0\n");
  for (const char* isa : {"generic", "avx2", "avx512", "avx512_bf16", "avx512_bf16_sparse", "amx"}) {
    const Outcome o =
        run(fmt::format("spmm --weights '{}' --n 1,3,20 --block 1,4,8 --type f32,f16,bf16 --mode static "
                        "--isa {} --json",
                        weights, isa));
    if (o.err.find(fmt::format("has no {}: the best here", isa)) != std::string::npos) continue;
    for (const json& r : results_of(o)) EXPECT_EQ(r["verified"], true) << isa << r;
  }
}

TEST_F(CliTest, HelpHasAnExample) {
  for (const char* command :
       {"", "spmm", "inspect", "machines", "pack", "pack verify", "train", "reproduce", "reproduce packing",
        "reproduce popsparse", "reproduce butterfly", "reproduce snn", "reproduce mlperf"}) {
    const Outcome o = run(fmt::format("{} --help", command));
    EXPECT_EQ(o.status, 0);
    EXPECT_TRUE(says(o.out, "xample")) << command;
  }
}

/// The names that an error about 'frob' lists as choices.
std::vector<std::string> names_in(const std::string& error) {
  std::smatch found;
  const std::regex list("choose from ([^)]+)\\)");
  if (!std::regex_search(error, found, list)) return {};
  const std::string names = found[1];
  const std::regex separator(", or |, ");
  return {std::sregex_token_iterator(names.begin(), names.end(), separator, -1), {}};
}

/// The text of an option in a command's help.
std::string help_of(const std::string& help, const std::string& option) {
  const size_t begin = help.find("\n  " + option);
  return begin == std::string::npos ? "" : help.substr(begin, help.find("\n  --", begin + 1) - begin) + "\n";
}

TEST_F(CliTest, HelpNamesWhatOptionsAccept) {
  struct Choices {
    std::string command, arguments;
    std::vector<std::string> options;
  };
  for (const auto& [command, arguments, options] : std::vector<Choices>{
           {"spmm",
            "--m 4 --k 4 --density 1/2 --n 4",
            {"--pattern", "--type", "--mode", "--product", "--machine", "--layout", "--verify", "--print",
             "--planner", "--isa"}},
           {"train",
            "--estimate",
            {"--kind", "--recipe", "--form", "--activation", "--schedule", "--optimizer", "--lr-schedule",
             "--dataset", "--machine", "--print", "--reset", "--reset-gradient", "--surrogate"}},
           {"train", "--kind spiking --estimate", {"--loss", "--dataset"}},
           {"train bert",
            "--estimate",
            {"--size", "--average", "--numbers", "--rounding", "--pack", "--optimizer", "--lr-schedule",
             "--machine", "--print"}},
           {"pack", "--lengths /dev/null --max-length 4", {"--algorithm", "--overlong", "--emit"}},
           {"reproduce popsparse", "", {"--planner", "--type", "--mode"}}}) {
    const std::string help = run(command + " --help").out;
    for (const std::string& option : options) {
      SCOPED_TRACE(command + " " + option);
      const Outcome o = run(fmt::format("{} {} {} frob", command, arguments, option));
      EXPECT_EQ(o.status, 2) << o.err;
      const std::vector<std::string> names = names_in(o.err);
      EXPECT_FALSE(names.empty()) << o.err;
      for (const std::string& name : names) {
        if (says(name, " ")) continue;  // "a .toml file" is not a name
        const std::regex word("[^a-z0-9-]" + name + "[^a-z0-9_-]");
        EXPECT_TRUE(std::regex_search(help_of(help, option), word)) << name << help_of(help, option);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
