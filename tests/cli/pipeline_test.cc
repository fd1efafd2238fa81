// `tessera pipeline`, and pipelines in the report and the trace of `tessera train bert`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "cli/tool.h"
#include "report/strict_markup.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::content_of;
using test::expect_refused;
using test::Outcome;
using test::results_of;

class PipelineCliTest : public test::ToolTest {
 protected:
  static std::string bert(uint32_t micro_batches, const std::string& pipeline, const std::string& machine) {
    return fmt::format(
        "train bert --size tiny --documents 60 --vocabulary 100 --length 32 --batch {0} --micro-batches {0} "
        "--steps 1 --stages 2 --pipeline {1} --estimate --machine {2}",
        micro_batches, pipeline, machine);
  }
};

TEST_F(PipelineCliTest, PrintsASchedule) {
  const Outcome o = run("pipeline interleaved --stages 2 --micro-batches 3 --recompute 0");
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.out,
            "stage 0: F0 .. F1 R0 B0 F2 R1 B1 .. R2 B2\n"
            "stage 1: .. F0 B0 F1    B1 F2    B2 .....\n"
            "\nstages work 80.77 % of the time, with up to 2, 1 micro-batches in flight\n");
}

TEST_F(PipelineCliTest, JsonHasThePassesInTime) {
  const json r = results_of(run("pipeline 1f1b --stages 3 --micro-batches 4 --times 1,3 --json"))[0];
  EXPECT_EQ(r["schedule"], "1f1b");
  EXPECT_EQ(r["in_flight"], json({3, 2, 1}));
  EXPECT_EQ(r["passes"].size(), 3U * 4 * 2);
  EXPECT_EQ(r["time"], 6 * 4);
  EXPECT_EQ(r["passes"][0],
            json({{"pass", "forward"}, {"stage", 0}, {"micro_batch", 0}, {"begin", 0.0}, {"end", 1.0}}));
}

TEST_F(PipelineCliTest, ListsActions) {
  const Outcome o = run("pipeline 1f1b --stages 2 --micro-batches 2 --actions --replicas 2");
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.out,
            "chips 0: 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD:1\n"
            "chips 1: 1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1REDUCE_GRAD:0 1SEND_B1\n"
            "\nstages work 66.67 % of the time, with up to 2, 1 micro-batches in flight\n");
  const json r = results_of(
      run("pipeline grouped --stages 2 --micro-batches 4 --actions --places 0,0 --times 1,3 --json"))[0];
  EXPECT_FALSE(r.contains("passes"));
  EXPECT_EQ(r["actions"].size(), 1U);
  EXPECT_EQ(r["actions"][0].size(), 2U * 4 * 2);
  EXPECT_EQ(r["actions"][0][0], json({{"action", "0F0"}, {"begin", 0.0}, {"end", 1.0}}));
  EXPECT_EQ(r["time"], 2 * 4 * 4);
}

TEST_F(PipelineCliTest, WritesThePicturesOfTheDocumentation) {
  for (const std::string kind : {"sequential", "grouped", "interleaved", "1f1b"}) {
    const std::string file = path(kind + ".svg");
    const Outcome o = run(fmt::format("pipeline {} --stages 3 --micro-batches 6 --svg '{}'", kind, file));
    ASSERT_EQ(o.status, 0) << o.err;
    const std::string picture = content_of(file);
    EXPECT_EQ(picture, content_of(fmt::format("{}/pipeline-{}.svg", TESSERA_IMAGES, kind)))
        << "tessera pipeline " << kind << " --stages 3 --micro-batches 6 --svg docs/images/pipeline-" << kind
        << ".svg";
    EXPECT_NO_THROW(testing::MarkupReader::read(picture));
    EXPECT_EQ(picture.find("var("), std::string::npos);
    EXPECT_NE(picture.find("(prefers-color-scheme: dark)"), std::string::npos);
  }
}

TEST_F(PipelineCliTest, RefusesWhatItCannotShow) {
  expect_refused(run("pipeline gpipe"), "sequential, grouped, interleaved, 1f1b");
  expect_refused(run("pipeline grouped --stages 2 --micro-batches 6"),
                 "a multiple of 4 micro-batches, not 6");
  expect_refused(run("pipeline 1f1b --times 1"),
                 "--times: invalid value '1' (expected two numbers, such as 1,2)");
  expect_refused(run("pipeline 1f1b --times 1,0"),
                 "--times: invalid value '1,0' (expected two numbers above 0)");
  expect_refused(run("pipeline 1f1b --svg picture.png"), "--svg");
  expect_refused(run("pipeline 1f1b --places 0,1,1,0"), "--places and --replicas are for --actions");
  expect_refused(run("pipeline 1f1b --actions --places 0,1"), "2 stages are placed; there are 4");
  expect_refused(run("pipeline 1f1b --actions --svg picture.svg"), "--svg draws the passes of stages");
  expect_refused(run("train bert --trace trace.json --estimate"),
                 "--trace is for --stages of more than one on a machine of several chips");
}

TEST_F(PipelineCliTest, ReportsOfTrainingHaveALaneForEachChip) {
  const std::string machine =
      file("two.toml", "like = \"m2000\"\nchips = 2\ntiles = 16\ntile_bytes = 8000000");
  for (const auto& [micro_batches, pipeline] : {std::pair(4U, "1f1b"), {64U, "1f1b"}, {4U, "sequential"}}) {
    const std::string page = path("bert.html"), trace = path("bert.json");
    const Outcome o = run(
        fmt::format("{} --report '{}' --trace '{}'", bert(micro_batches, pipeline, machine), page, trace));
    ASSERT_EQ(o.status, 0) << o.err;
    const std::string html = content_of(page);
    EXPECT_NO_THROW(testing::MarkupReader::read(html));
    EXPECT_LT(html.size(), 300'000U);
    EXPECT_NE(html.find("Pipeline of a training step"), std::string::npos);
    EXPECT_NE(html.find("backward pass of micro-batch 0 through stage 1"), std::string::npos);
    EXPECT_EQ(html.find("… and its end") != std::string::npos, micro_batches == 64);

    std::map<int, double> until;
    std::map<int, std::set<std::string>> names;
    double last = 0;
    const json written = json::parse(content_of(trace));
    for (const json& event : written["traceEvents"]) {
      if (event["ph"] != "X") continue;
      const int chip = event["tid"];
      EXPECT_NEAR(event["ts"].get<double>(), until[chip], 2e-3);
      until[chip] = event["ts"].get<double>() + event["dur"].get<double>();
      last = std::max(last, until[chip]);
      names[chip].insert(event["name"]);
    }
    EXPECT_EQ(until.size(), 2U);
    for (const auto& [chip, end] : until) {
      EXPECT_NEAR(end, last, 2e-3);
      EXPECT_TRUE(names[chip].contains(fmt::format("B{}", micro_batches - 1)));
      EXPECT_TRUE(names[chip].contains("waiting"));
    }
  }
}

}  // namespace
}  // namespace tessera
