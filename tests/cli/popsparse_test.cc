// tessera reproduce popsparse.
#include <sys/stat.h>

#include <cmath>
#include <map>
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
using test::json_of;
using test::lines_of;
using test::Outcome;
using test::says;
using test::section_of;
using testing::MarkupReader;
using testing::Node;

/// 2 sizes × 2 n × 2 blocks × 2 densities of static, and 2 × 2 of dense.
constexpr size_t kCells = 20;
constexpr const char* kSmall =
    "--m 256,512 --n 16,64 --block 4,16 --density 1/4,1/16 --type f16 --mode static,dense";

class PopsparseTest : public test::ToolTest {
 protected:
  Outcome reproduce(const std::string& more = "", const std::string& around = "{}") const {
    return run(fmt::format("reproduce popsparse {} --out '{}' {}", kSmall, path("results"), more), around);
  }

  std::string cells() const { return path("results") + "/cells-bow.jsonl"; }

  static json results_of(const Outcome& o) { return section_of(o, "products")["results"]; }
  static bool is(const char* mode, const json& result) {
    return says(result["cell"], fmt::format(" {} ", mode));
  }
  /// The comparison whose name begins with this text.
  static json comparison_of(const Outcome& o, const std::string& section, const std::string& what) {
    const json all = section_of(o, section);
    for (const json& c : all["comparisons"])
      if (c["what"].get<std::string>().starts_with(what)) return c;
    return {};
  }
};

TEST_F(PopsparseTest, RunsEveryCombinationOnceAndVerifiesSome) {
  const Outcome o = reproduce("--json");
  const json all = json_of(o);
  EXPECT_EQ(all["schema"], 2);
  EXPECT_EQ(all["command"], "reproduce popsparse");
  EXPECT_EQ(all["machines"], json::array({"bow"}));
  const json results = results_of(o);
  ASSERT_EQ(results.size(), kCells);
  size_t verified = 0;
  for (const json& r : results) {
    EXPECT_TRUE(r["fits"]) << r;
    const json v = r["values"];
    EXPECT_NEAR(v["seconds"].get<double>() * 1.85e9, v["cycles"].get<double>(), 0.5) << r;
    const double m = v["m"], n = v["n"], density = v["density"];
    EXPECT_EQ(v["nnz"].get<double>(), m * m * density) << r;
    EXPECT_NEAR(v["tflops"].get<double>(), 2e-12 * m * m * density * n / v["seconds"].get<double>(), 1e-9);
    EXPECT_NE(r["verified"], false) << r;
    verified += r["verified"] == true;
  }
  EXPECT_EQ(verified, 3U);  // dense, b = 4, b = 16
}

TEST_F(PopsparseTest, GivesWhatSpmmGives) {
  const Outcome o = reproduce("--json --no-verify");
  for (const json& r : results_of(o)) EXPECT_TRUE(r["verified"].is_null());
  const Outcome one =
      run("spmm --machine bow --planner vendor --estimate --m 512 --k 512 --density 1/16 --block 16 --n 64 "
          "--type f16 --pattern shuffled --seed 123 --json");
  ASSERT_EQ(one.status, 0) << one.err;
  std::map<std::string, double> seconds;
  for (const json& r : test::results_of(one)) seconds[r["mode"]] = r["seconds"];
  const std::string sparse = "f16 static b = 16 d = 1/16 m = 512 n = 64", dense = "f16 dense m = 512 n = 64";
  size_t compared = 0;
  for (const json& r : results_of(o)) {
    if (r["cell"] != sparse && r["cell"] != dense) continue;
    ++compared;
    EXPECT_EQ(r["values"]["seconds"].get<double>(), seconds[r["cell"] == sparse ? "static" : "dense"]) << r;
  }
  EXPECT_EQ(compared, 2U);
  EXPECT_DOUBLE_EQ(comparison_of(o, "products", sparse)["ours"].get<double>(),
                   seconds["dense"] / seconds["static"]);
}

TEST_F(PopsparseTest, DynamicProductsSayTheirStepsAndUpdates) {
  const Outcome o =
      run(fmt::format("reproduce popsparse --m 512 --n 64 --block 1,16 --density 1/8 --type f16,f32 --mode "
                      "dynamic,dense --json --out '{}'",
                      path("results")));
  ASSERT_EQ(o.status, 0) << o.err;
  size_t dynamic = 0;
  for (const json& r : results_of(o)) {
    EXPECT_EQ(r["verified"], true) << r;
    const bool is_dynamic = is("dynamic", r);
    EXPECT_EQ(r["values"].contains("steps"), is_dynamic) << r;
    EXPECT_EQ(r["values"].contains("update_seconds"), is_dynamic) << r;
    EXPECT_EQ(comparison_of(o, "products", r["cell"])["group"] == "dynamic over dense (figure 7)",
              is_dynamic);
    EXPECT_TRUE(comparison_of(o, "products", r["cell"])["ours"].is_number()) << r;
    dynamic += is_dynamic;
  }
  EXPECT_EQ(dynamic, 4U);
}

TEST_F(PopsparseTest, FitsTheLawOfItsBestSpeedups) {
  const Outcome o = reproduce("--json --no-verify --only law,table-3");
  EXPECT_TRUE(results_of(o).is_null());  // that section was not asked for
  const auto law = [&](const char* what, const char* which) {
    return comparison_of(o, "law", fmt::format("law of static products, {},", what))[which].get<double>();
  };
  EXPECT_EQ(law("samples", "ours"), 8);
  EXPECT_EQ(law("scale", "published"), 0.0013);
  // Residuals of a least-squares fit are orthogonal to every factor.
  double sum = 0, with_m = 0, with_b = 0, with_d = 0;
  for (const double m : {256, 512})
    for (const double b : {4, 16})
      for (const double d : {4, 16}) {
        const json best =
            comparison_of(o, "table-3", fmt::format("f16 static b = {} d = 1/{} m = {}", b, d, m));
        const double residual = std::log(best["ours"].get<double>()) - std::log(law("scale", "ours")) -
                                law("exponent of m", "ours") * std::log(m) -
                                law("exponent of 1/d", "ours") * std::log(d) -
                                law("exponent of b", "ours") * std::log(b);
        sum += residual, with_m += residual * std::log(m), with_b += residual * std::log(b),
            with_d += residual * std::log(d);
      }
  for (double product : {sum, with_m, with_d, with_b}) EXPECT_NEAR(product, 0, 1e-9);
}

TEST_F(PopsparseTest, AnInterruptedSweepGoesOnWithoutRepeating) {
  ASSERT_EQ(reproduce("--no-verify").status, 0);
  const std::string whole = content_of(cells());
  ASSERT_EQ(lines_of(whole), kCells + 1);
  // As if interrupted in the middle of a line.
  std::istringstream stream(whole);
  std::string kept, line;
  for (size_t l = 0; l < 8; ++l) {
    std::getline(stream, line);
    kept += line + "\n";
  }
  file("results/cells-bow.jsonl", kept + "{\"section\":\"products\",\"cell\":\"f1");
  const Outcome again = reproduce("--no-verify");
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_TRUE(says(again.err, "7 of 20 cells are finished"));
  const std::string after = content_of(cells());
  EXPECT_TRUE(after.starts_with(kept));
  EXPECT_EQ(lines_of(after), kCells + 1);
  const Outcome third = reproduce("--no-verify");
  EXPECT_TRUE(says(third.err, "20 of 20 cells are finished"));
  EXPECT_EQ(content_of(cells()), after);
  EXPECT_EQ(third.out, again.out);
}

TEST_F(PopsparseTest, CtrlCKeepsWhatIsFinished) {
  // All cells, which take far longer than the signal waits.
  const std::string large = fmt::format("reproduce popsparse --m 4096 --out '{}'", path("results"));
  const Outcome o = run(large, "timeout --preserve-status --signal=INT 2 {}");
  ASSERT_EQ(o.status, 130) << o.err;
  EXPECT_TRUE(says(o.err, "interrupted"));
  const std::string kept = content_of(cells());
  const size_t finished = lines_of(kept) - 1;
  const Outcome on = run(large, "timeout --preserve-status --signal=INT 1 {}");
  EXPECT_TRUE(says(on.err, fmt::format("{} of 165 cells are finished", finished)));
  EXPECT_TRUE(content_of(cells()).starts_with(kept.substr(0, kept.rfind('\n') + 1)));
}

TEST_F(PopsparseTest, OtherResultsAreRefusedAndKept) {
  ASSERT_EQ(reproduce("--no-verify").status, 0);
  const std::string whole = content_of(cells());
  const auto refused = [&](const std::string& more, const std::string& why) {
    const std::string before = content_of(cells());
    const Outcome o = reproduce(more);
    expect_failure(2, o, why);
    EXPECT_TRUE(says(o.err, "--out"));
    EXPECT_EQ(content_of(cells()), before);
  };
  std::string other = whole;
  other[other.find("\"version\":\"") + 11] = '9';
  file("results/cells-bow.jsonl", other);
  refused("", "version = ");
  other = whole;
  other[other.find("\"schema\":1") + 9] = '0';  // an earlier version, whose lines had another form
  file("results/cells-bow.jsonl", other);
  refused("", "was written with schema = 0, not 1: pass another --out, or remove it");
  for (const char* content :
       {"1, 2, 3\n", "a text without a line's end", "{}\n", "[]\n", "\n", "{\"x\": \n"}) {
    file("results/cells-bow.jsonl", content);
    refused("", content == std::string("{}\n") ? "lacks its file" : "is not a result file");
  }
}

TEST_F(PopsparseTest, WhatOtherPlansGainIsKeptBeside) {
  ASSERT_EQ(reproduce("--no-verify").status, 0);
  const Outcome both = reproduce("--no-verify --gain --json");
  EXPECT_TRUE(says(both.err, "20 of 40 cells are finished"));
  EXPECT_EQ(section_of(both, "gain")["results"].size(), kCells);
  EXPECT_TRUE(says(reproduce("--no-verify --gain").out, "free planner over the vendor's"));
  EXPECT_TRUE(says(reproduce("--no-verify --planner best").err, "0 of 20 cells are finished"));
  expect_failure(2, reproduce("--gain --planner best"), "--gain compares");
  expect_failure(2, reproduce("--gain --machine host"), "--gain compares");
  expect_failure(2, reproduce("--gain --only table-3"), "add it to --only");
  expect_failure(2, reproduce("--only gain"), "pass --gain too");
  EXPECT_TRUE(says(reproduce("--no-verify --gain --only gain").err, "40 of 40 cells are finished"));
}

TEST_F(PopsparseTest, AMachineOfTheSameNameWithOtherFiguresIsAnother) {
  const std::string text = content_of(std::filesystem::path(TESSERA_MACHINES) / "gc200.toml");
  const std::string machine = file("mine.toml", text);
  ASSERT_EQ(reproduce("--no-verify --machine " + machine).status, 0);
  const size_t tiles = text.find("1472");
  ASSERT_NE(tiles, std::string::npos);
  file("mine.toml", std::string(text).replace(tiles, 4, "1470"));
  expect_failure(2, reproduce("--no-verify --machine " + machine), "1472");
}

TEST_F(PopsparseTest, ADamagedLineIsNamed) {
  ASSERT_EQ(reproduce("--no-verify").status, 0);
  std::string text = content_of(cells());
  size_t third = text.find('\n', text.find('\n') + 1) + 1;
  for (const char* damage : {"\x01", "{}", "{\"mode\":\"dense\"}"}) {
    file("results/cells-bow.jsonl", std::string(text).insert(third, std::string(damage) + "\n"));
    expect_failure(1, reproduce(), "line 3 is damaged");
  }
}

TEST_F(PopsparseTest, MoreColumnsThanFitAreNotTried) {
  const Outcome o = run(fmt::format(
      "reproduce popsparse --machine gc2 --m 2048 --n 1024,16384,65536 --block 16 --density 1/4 --mode "
      "static,dense --type f32 --json --no-verify --out '{}'",
      path("results")));
  ASSERT_EQ(o.status, 0) << o.err;
  bool too_large = false;
  std::map<double, json> by_columns;
  for (const json& r : results_of(o)) {
    const std::string name = r["cell"];
    if (is("static", r)) by_columns[std::stod(name.substr(name.rfind(' ')))] = r;
  }
  for (const auto& [n, r] : by_columns) {
    if (too_large) {
      EXPECT_TRUE(says(r["reason"].get<std::string>(), "not tried")) << r;
      EXPECT_FALSE(r["fits"].get<bool>()) << r;
    }
    too_large |= !r["fits"];
    EXPECT_EQ(r["values"].contains("seconds"), r["fits"].get<bool>()) << r;
  }
  EXPECT_TRUE(too_large);
}

TEST_F(PopsparseTest, PublishedNumbersStandBeside) {
  std::filesystem::create_directory(path("published"));
  file("published/figure-7.csv",
       "name,speedup\nf16 static b = 16 d = 1/4 m = 256 n = 16,1.234\n"
       "f16 static b = 16 d = 1/4 m = 512 n = 64,\n");
  file("published/figure-2.csv", "name,tflops\nf16 dense m = 512 n = 64,45.67\n");
  const Outcome o = reproduce(fmt::format("--json --no-verify --published '{}'", path("published")));
  EXPECT_EQ(comparison_of(o, "products", "f16 static b = 16 d = 1/4 m = 256 n = 16")["published"], 1.234);
  EXPECT_EQ(comparison_of(o, "products", "f16 dense m = 512 n = 64")["published"], 45.67);
  EXPECT_TRUE(comparison_of(o, "products", "f16 dense m = 512 n = 16")["published"].is_null());
  const Outcome tables = reproduce(fmt::format("--no-verify --published '{}'", path("published")));
  EXPECT_TRUE(says(tables.out, "(1.23)"));
  EXPECT_TRUE(says(tables.out, "(45.7)"));
  EXPECT_TRUE(says(tables.out, "(-)"));
  const Outcome nowhere = reproduce("--published /nowhere");
  EXPECT_EQ(nowhere.status, 2);
}

// Figures 2 and 7 and table 3 as committed.
TEST_F(PopsparseTest, PublishedNumbersNeedNoFiles) {
  const Outcome o =
      run(fmt::format(
              "reproduce popsparse --m 1024 --n 256 --block 16 --density 1/4 --type f16 --mode static,dense "
              "--no-verify --json --out '{}'",
              path("alone")),
          "unset TESSERA_DATA; {}");
  ASSERT_EQ(results_of(o).size(), 2U);
  EXPECT_EQ(comparison_of(o, "products", "f16 dense")["published"], 88.9);
  EXPECT_EQ(comparison_of(o, "products", "f16 static")["published"], 1.323);
}

TEST_F(PopsparseTest, WritesCsvAndAPage) {
  const Outcome o = reproduce(fmt::format("--csv '{}' --html '{}'", path("c.csv"), path("p.html")));
  ASSERT_EQ(o.status, 0) << o.err;
  const std::string csv = content_of(path("c.csv"));
  EXPECT_GT(lines_of(csv), 8 * kCells);
  EXPECT_TRUE(says(csv, "products,bow,f16 static b = 16 d = 1/16 m = 512 n = 64,true,tflops,"));
  const Node root = MarkupReader::read(content_of(path("p.html")));
  EXPECT_EQ(root.name, "html");
  EXPECT_TRUE(root.all("script").empty());
  EXPECT_GE(root.all("figure").size(), 5U);  // the law, three scalings, dense
  EXPECT_TRUE(says(root.whole_text(), "0.0013·m^0.59·d^-0.54·b^0.50"));
  for (const char* title :
       {"figure 2", "table 3", "figure 3a", "figure 4a", "figure 4b", "figure 4c", "figure 7"})
    EXPECT_TRUE(says(o.out, title));
}

TEST_F(PopsparseTest, MeasuresThisComputer) {
  const Outcome o = run(fmt::format(
      "reproduce popsparse --machine host --m 256,512 --n 64,256 --block 4,16 --density 1/4,1/16 --mode "
      "static,dense --json --out '{}'",
      path("results")));
  const json results = results_of(o);
  EXPECT_EQ(results.size(), kCells);
  for (const json& r : results) {
    EXPECT_TRUE(r["cell"].get<std::string>().starts_with("f32 ")) << r;
    EXPECT_FALSE(r["values"].contains("cycles")) << r;
    EXPECT_GT(r["values"]["seconds"].get<double>(), 0) << r;
    EXPECT_NE(r["verified"], false) << r;
  }
  const json law = comparison_of(o, "law", "law of static products, samples");
  EXPECT_EQ(law["ours"], 8);
}

TEST_F(PopsparseTest, RefusesWhatMakesNoProduct) {
  for (const char* options :
       {"--m 0", "--n 0", "--block 0 --mode static", "--m 65536 --block 1", "--density 0", "--full --m 256",
        "--machine nowhere", "--type f16-f32 --machine host", "--type f64", "--mode sparse"}) {
    const Outcome o =
        run(fmt::format("reproduce popsparse --out '{}' {}", path("results"), options), "timeout 20 {}");
    EXPECT_EQ(o.status, 2) << options << o.err;
    EXPECT_EQ(o.out, "") << options;
  }
  const Outcome unwritable = run("reproduce popsparse --out /proc/nowhere", "timeout 20 {}");
  EXPECT_EQ(unwritable.status, 1);
}

}  // namespace
}  // namespace tessera
