// tessera reproduce butterfly.
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "cli/tool.h"
#include "report/strict_markup.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::content_of;
using test::expect_failure;
using test::expect_refused;
using test::json_of;
using test::lines_of;
using test::Outcome;
using test::says;
using test::section_of;
using testing::MarkupReader;
using testing::Node;

class ButterflyTest : public test::ToolTest {
 protected:
  Outcome reproduce(const std::string& options, const std::string& around = "{}") const {
    return run(fmt::format("reproduce butterfly --out '{}' {}", path("results"), options), around);
  }

  std::string cells() const { return path("results") + "/cells-gc200.jsonl"; }

  static json comparison_of(const json& section, const std::string& what) {
    for (const json& c : section["comparisons"])
      if (c["what"] == what) return c;
    return {};
  }
};

TEST_F(ButterflyTest, SetsTheModelBesideTheTables) {
  const Outcome o = reproduce("--machine gc200 --only table-1,table-2 --json");
  const json all = json_of(o);
  EXPECT_EQ(all["schema"], 2);
  EXPECT_EQ(all["command"], "reproduce butterfly");
  EXPECT_EQ(all["machines"], json::array({"gc200"}));
  for (const json& section : all["sections"])
    for (const json& c : section["comparisons"])
      EXPECT_TRUE(c["near"] != false || c["what"].get<std::string>().starts_with("sparse")) << c;
  const json table = section_of(o, "table-2");
  EXPECT_EQ(comparison_of(table, "dense, planned")["near"], true);
  for (const char* what : {"sparse, 90 % zeros", "sparse, 99 % zeros"})
    EXPECT_NEAR(comparison_of(table, what)["ratio"].get<double>(), 1.5, 0.1) << what;
  size_t verified = 0;
  for (const json& r : table["results"]) {
    EXPECT_EQ(r["machine"], "gc200");
    EXPECT_NE(r["verified"], false) << r;
    verified += r["verified"] == true;
  }
  EXPECT_GE(verified, 3U);

  // Finished cells are not run again, and an incomplete line is dropped.
  const std::string whole = content_of(cells());
  file("results/cells-gc200.jsonl", whole + "{\"section\":\"ta");
  const Outcome again = reproduce("--machine gc200 --only table-1,table-2 --json");
  ASSERT_EQ(again.status, 0) << again.err;
  const size_t count = lines_of(whole) - 1;
  EXPECT_TRUE(says(again.err, fmt::format("{0} of {0} cells are finished", count)));
  EXPECT_EQ(content_of(cells()), whole);
  EXPECT_EQ(again.out, o.out);

  // Text, CSV and page come from the same cells.
  const Outcome text = reproduce(
      fmt::format("--machine gc200 --only table-2 --csv '{}' --html '{}'", path("c.csv"), path("p.html")));
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_TRUE(says(text.out, "table 2"));
  EXPECT_EQ(text.out.find("table 1"), std::string::npos);
  EXPECT_TRUE(says(text.out, "44219"));
  std::istringstream lines(content_of(path("c.csv")));
  size_t rows = 0;
  for (std::string line; std::getline(lines, line); ++rows) {
    size_t commas = 0;
    bool quoted = false;
    for (char c : line) {
      quoted ^= c == '"';
      commas += c == ',' && !quoted;
    }
    EXPECT_EQ(commas, 8U) << line;
  }
  EXPECT_GT(rows, 3 * count);
  const Node root = MarkupReader::read(content_of(path("p.html")));
  EXPECT_EQ(root.name, "html");
  EXPECT_TRUE(root.all("script").empty());
  EXPECT_FALSE(root.all("figure").empty());
}

TEST_F(ButterflyTest, CharacterisesExchangeAndMemory) {
  const Outcome o = reproduce("--machine gc200 --only figure-3,figure-5 --json");
  ASSERT_EQ(o.status, 0) << o.err;
  const json exchange = section_of(o, "figure-3");
  EXPECT_EQ(comparison_of(exchange, "exchange bandwidth of all tiles")["near"], true);
  for (const json& r : exchange["results"]) EXPECT_EQ(r["verified"], true) << r;
  // Memory grows with the problem, by more than its data.
  const json memory = section_of(o, "figure-5");
  double before = 0;
  for (const uint32_t size : {128U, 256U, 512U, 1024U, 2048U})
    for (const json& r : memory["results"]) {
      if (r["cell"] != fmt::format("N = {}", size)) continue;
      const json values = r["values"];
      EXPECT_GT(values["total_bytes"], before) << r;
      EXPECT_EQ(values["data_bytes"], 3.0 * 4 * size * size) << r;
      EXPECT_GT(values["total_bytes"], values["data_bytes"]) << r;
      EXPECT_GT(values["edges"], values["vertices"]) << r;
      before = values["total_bytes"];
    }
  EXPECT_GT(before, 0);
}

TEST_F(ButterflyTest, MachinesShowTheirHostLink) {
  const Outcome o = run("machines show gc200");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_TRUE(says(o.out, "host_link_gb_per_second"));
  const json results = test::results_of(run("machines show gc200 --json"));
  size_t found = 0;
  for (const json& figure : results[0]["figures"])
    if (figure["name"] == "host_link_gb_per_second") {
      ++found;
      EXPECT_EQ(figure["value"], 12.5);
      EXPECT_NE(figure["source"], "");
    }
  EXPECT_EQ(found, 1U);
}

TEST_F(ButterflyTest, SaysWhyItDoesNotTrain) {
  const std::string options = "--machine host --only table-4 --data " + path("nowhere");
  expect_failure(1, reproduce(options, "timeout 20 {}"), "nowhere");
  const Outcome modelled = reproduce("--machine gc200 --only table-1", "unset TESSERA_DATA; {}");
  EXPECT_EQ(modelled.status, 0);
  EXPECT_EQ(modelled.err.find("accuracies"), std::string::npos) << modelled.err;
}

TEST_F(ButterflyTest, RejectsWhatItDoesNotKnow) {
  for (const char* options : {"--only table-9", "--only ''", "--machine gc200,bow", "--machine host,host",
                              "--machine nowhere", "--published /nowhere", "--threads 0"}) {
    SCOPED_TRACE(options);
    expect_refused(reproduce(options, "timeout 20 {}"), "");
  }
  const Outcome help = run("reproduce butterfly --help");
  EXPECT_EQ(help.status, 0);
  EXPECT_TRUE(says(help.out, "table-2"));
  EXPECT_TRUE(says(help.out, "Examples:"));
}

}  // namespace
}  // namespace tessera
