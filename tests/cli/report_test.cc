// --report, --trace and --print passes.
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/tool.h"
#include "report/axis.h"
#include "report/strict_markup.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::content_of;
using test::expect_failure;
using test::Outcome;
using test::results_of;
using test::says;
using testing::MarkupReader;
using testing::Node;

class ReportTest : public test::ToolTest {
 protected:
  Node page(const std::string& name) const { return MarkupReader::read(content_of(folder_ / name)); }
};

constexpr const char* kProduct = "spmm --m 256 --k 256 --density 1/8 --block 8 --n 32 ";
constexpr const char* kMachines = "--machine host,gc200 --type f16 ";

TEST_F(ReportTest, OneSectionACombinationWithTheNumbersOfTheJson) {
  const Outcome o = run(fmt::format("{}{} --json --report '{}' --trace '{}'", kProduct, kMachines,
                                    path("r.html"), path("t.json")));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(left_behind(), 2U);
  const json results = results_of(o);
  const Node root = page("r.html");
  const std::vector<const Node*> sections = root.all("section");
  ASSERT_EQ(sections.size(), results.size() + 1);  // all results, then each
  size_t modelled = 0;
  for (size_t r = 0; r < results.size(); ++r) {
    const std::string text = sections[r + 1]->whole_text();
    EXPECT_TRUE(says(text, report::count_text(results[r]["memory"]["max_tile_bytes"])));
    EXPECT_TRUE(says(text, "verified"));
    if (results[r]["cycles"].is_null()) continue;
    ++modelled;
    EXPECT_TRUE(says(text, report::value_text(results[r]["cycles"], report::Unit::cycles)));
  }
  EXPECT_EQ(modelled, 2U);
}

TEST_F(ReportTest, TheTraceOfAModelledMachineEndsWithItsTime) {
  const Outcome o = run(fmt::format("{}--machine gc200 --type f16 --mode static --json --trace '{}'",
                                    kProduct, path("t.json")));
  ASSERT_EQ(o.status, 0) << o.err;
  double end = 0;
  const json trace = json::parse(content_of(folder_ / "t.json"));
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == "X") end = std::max(end, event["ts"].get<double>() + event["dur"].get<double>());
  const double microseconds = results_of(o)[0]["seconds"].get<double>() * 1e6;
  EXPECT_NEAR(end, microseconds, 0.002);
}

TEST_F(ReportTest, EstimatesAndWhatDoesNotFitHaveAPageToo) {
  const Outcome estimate = run(fmt::format("{}{} --estimate --report '{}' --trace '{}'", kProduct, kMachines,
                                           path("r.html"), path("t.json")));
  EXPECT_EQ(estimate.status, 0) << estimate.err;
  EXPECT_EQ(page("r.html").whole_text().find("verified"), std::string::npos);
  const Outcome huge = run(fmt::format(
      "{}--machine gc2 --set tile_bytes=2000 --type f16 --mode static --estimate --report '{}' --trace '{}'",
      kProduct, path("h.html"), path("h.json")));
  ASSERT_EQ(huge.status, 0) << huge.err;
  EXPECT_TRUE(says(page("h.html").whole_text(), "does not fit"));
  EXPECT_FALSE(json::parse(content_of(folder_ / "h.json"))["traceEvents"].empty());
}

TEST_F(ReportTest, FileNamesCannotBreakThePage) {
  const std::string weights = file("<b>&\"x.smtx", "4, 8, 4\n0 1 2 3 4\n0 1 2 7\n");
  const Outcome o = run(fmt::format("spmm --weights '{}' --n 3 --report '{}'", weights, path("r.html")));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_TRUE(says(page("r.html").whole_text(), "<b>&\"x.smtx"));
}

TEST_F(ReportTest, FilesThatCannotBeWrittenAreRefusedBeforeAnythingRuns) {
  const std::string endless = "spmm --m 16384 --k 16384 --density 1/2 --n 16384 ";
  for (const char* option : {"--report", "--trace"})
    for (const char* where : {"/nowhere/x", "/dev/null"}) {
      const Outcome o = run(fmt::format("{}{} {}", endless, option, where), "timeout 20 {}");
      EXPECT_EQ(o.status, 1) << option << where;
      EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
      EXPECT_TRUE(says(o.err, where));
      EXPECT_EQ(o.out, "");
    }
}

TEST_F(ReportTest, OneFileIsNotTwo) {
  expect_failure(2, run(fmt::format("{}--report x --trace x", kProduct)), "give them different files");
}

TEST_F(ReportTest, ResultsArePrintedWhereFilesFail) {
  // Enough file size for the printed output, but not for a page.
  const Outcome o =
      run(fmt::format("{}--mode static --report '{}'", kProduct, path("r.html")), "ulimit -f 8; {}");
  EXPECT_EQ(o.status, 1);
  EXPECT_TRUE(says(o.out, "static"));
  EXPECT_TRUE(says(o.err, "r.html"));
  EXPECT_EQ(left_behind(), 0U);
}

TEST_F(ReportTest, PrintsPasses) {
  const Outcome o = run(fmt::format("{}--mode static --print passes", kProduct));
  EXPECT_EQ(o.status, 0) << o.err;
  for (const char* pass : {"verify", "exchange", "liveness", "placement", "account"})
    EXPECT_TRUE(says(o.out, std::string("\n") + pass)) << pass;
}

}  // namespace
}  // namespace tessera
