// The figures that follow from the products of `tessera reproduce popsparse`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "io/files.h"
#include "studies/paper/tables.h"
#include "studies/popsparse/study.h"
#include "studies/popsparse/sweep.h"
#include "support/error_of.h"

namespace tessera::studies::popsparse {
namespace {

const Operand kDense{Mode::dense, {Type::f16}, 512, 1, 1};
const Operand kStatic{Mode::static_sparse, {Type::f16}, 512, 4, 0.25};

class PopsparseStudy : public ::testing::Test {
 protected:
  void file(const std::string& name, const std::string& text) const { folder_.write(name, text); }

  /// Without results, on bow unless it says otherwise.
  Study study(const machine::Machine& machine = machine::find("bow")) const {
    const ProductLists lists{{512}, {1, 2, 4, 5, 6, 8}, {4}, {0.25}, {}, {}};
    Study made(paper(), {.gain = true, .published = folder_.path().string()});
    made.request.products = lists;
    made.request.products.types = {{Type::f16}};
    made.parts.push_back({machine, {}});
    return made;
  }

  /// A product of m = k = 512 that takes that many seconds; none: it does not fit.
  static void add(Study& study, const Operand& operand, uint32_t n, std::optional<double> seconds,
                  ops::Planner planner = ops::Planner::vendor) {
    Result result{.fits = seconds.has_value()};
    if (seconds) result.values = {{"seconds", *seconds}, {"tflops", 2e-6 * n / *seconds}};
    const std::string section = planner == ops::Planner::best ? "gain" : "products";
    study.parts[0].results[{section, key_of({operand, n}, planner)}] = result;
  }
  static std::vector<std::string> words_of(const std::vector<Figure::Entry>& row) {
    std::vector<std::string> words;
    for (const Figure::Entry& entry : row) words.push_back(entry.words);
    return words;
  }

  test::TemporaryFolder folder_;
};

TEST_F(PopsparseStudy, DistancesAreThoseOfLogarithms) {
  // The model's rates are 2, 4, 8 and 16 TFLOP/s; the fifth cell was not run.
  std::string table = "name,tflops\n";
  for (const auto& [n, tflops] : {std::pair{1, 1}, {2, 2}, {4, 8}, {8, 4}, {16, 7}})
    table += "f16 dense m = 512 n = " + std::to_string(n) + "," + std::to_string(tflops) + "\n";
  file("figure-2.csv", table);
  Study s = study();
  for (const uint32_t n : {1U, 2U, 4U, 8U}) add(s, kDense, n, 1e-6);
  const Figure figure = distance_figure(s);
  ASSERT_EQ(figure.rows.size(), 1U);
  // ln 2, ln 2, 0, ln 4; the median of four is the third.
  EXPECT_EQ(words_of(figure.rows[0]),
            (std::vector<std::string>{"dense TFLOP/s (figure 2)", "4", "0.693", "1.386", "1.386", "+0.693",
                                      "0 of 0", "0 of 4"}));
}

TEST_F(PopsparseStudy, DistancesCountVerdictsOnWhatFits) {
  std::string table = "name,speedup\n";
  for (const auto& [n, speedup] : {std::pair{1, "2"}, {2, ""}, {4, ""}, {8, "2"}})
    table += "f16 static b = 4 d = 1/4 m = 512 n = " + std::to_string(n) + "," + speedup + "\n";
  file("figure-7.csv", table);
  Study s = study();
  for (const uint32_t n : {1U, 2U, 4U, 8U}) add(s, kDense, n, 3e-6);
  add(s, kStatic, 1, 1.5e-6);
  add(s, kStatic, 2, {});
  add(s, kStatic, 4, 1.5e-6);
  add(s, kStatic, 8, {});
  const Figure figure = distance_figure(s);
  ASSERT_EQ(figure.rows.size(), 1U);
  EXPECT_EQ(words_of(figure.rows[0]),
            (std::vector<std::string>{"static over dense (figure 7)", "4", "0.000", "0.000", "0.000",
                                      "+0.000", "1 of 2", "1 of 2"}));
}

// A speed-up of 2 over 6 TFLOP/s, a quarter of which counts: 3 TFLOP/s; ours are 4 and 3.
TEST_F(PopsparseStudy, RatesOfSparseProductsFollowFromTwoFigures) {
  file("figure-2.csv", "name,tflops\nf16 dense m = 512 n = 2,6\nf16 dense m = 512 n = 4,6\n");
  file("figure-7.csv",
       "name,speedup\nf16 static b = 4 d = 1/4 m = 512 n = 2,2\nf16 static b = 4 d = 1/4 m = 512 n = 4,2\n"
       "f16 static b = 4 d = 1/4 m = 512 n = 8,2\n");
  Study s = study();
  for (const uint32_t n : {2U, 4U, 8U}) add(s, kDense, n, 1e-6);
  add(s, kStatic, 2, 1e-6);
  add(s, kStatic, 4, 2e-6 * 4 / 3);
  add(s, kStatic, 8, 1e-6);
  const Figure figure = distance_figure(s);
  const auto row = std::ranges::find_if(figure.rows, [](const std::vector<Figure::Entry>& entries) {
    return entries[0].words == "static TFLOP/s at the same n (figures 2 and 7)";
  });
  ASSERT_NE(row, figure.rows.end());
  EXPECT_EQ(words_of(*row),
            (std::vector<std::string>{"static TFLOP/s at the same n (figures 2 and 7)", "2", "0.288", "0.288",
                                      "0.288", "+0.144", "0 of 0", "0 of 2"}));
}

TEST_F(PopsparseStudy, AHostIsNotComparedWithAProcessor) {
  file("figure-2.csv", "name,tflops\nf16 dense m = 512 n = 1,1\n");
  Study s = study(machine::host(1));
  add(s, kDense, 1, 1e-6);
  EXPECT_TRUE(distance_figure(s).rows.empty());
}

TEST_F(PopsparseStudy, TheGainOfTheFreePlannerIsAQuotientOfSeconds) {
  Study s = study();
  const auto add_both = [&](uint32_t n, std::optional<double> published, double free) {
    add(s, kStatic, n, published);
    add(s, kStatic, n, free, ops::Planner::best);
  };
  add_both(1, 1e-6, 1e-6);
  add_both(2, 1.25e-6, 1e-6);
  add_both(4, 2e-6, 1e-6);
  add_both(8, 4e-6, 1e-6);
  add_both(5, {}, 1e-6);
  add(s, kStatic, 6, 1e-6);
  const std::vector<Figure> figures = gain().figures(s);
  ASSERT_EQ(figures[0].rows.size(), 1U);
  EXPECT_EQ(words_of(figures[0].rows[0]),
            (std::vector<std::string>{"static", "4", "2.00", "4.00", "1.00", "1"}));
}

TEST(PopsparsePublished, NamesAreThoseOfProductsOrOperands) {
  const Case sparse{kStatic, 64}, dense{kDense, 64},
      fine{{Mode::dynamic_sparse, {Type::f16, true}, 9, 1, 0.3}, 1};
  for (const Case& what : {sparse, dense, fine}) {
    EXPECT_EQ(case_named(name_of(what)), what);
    EXPECT_EQ(case_named(name_of(what.operand)), (Case{what.operand}));
  }
  for (const char* other :
       {"", "FP16 dense m = 512 n = 64", "f16 dense m = 512 n = 0", "f16 dense m = 0", "f16 dense m = 0512",
        "f16 static m = 512", "f16 static b = 4 d = 0.25 m = 512", "f16 static b = 4 d = 1/0 m = 512",
        "f16 static b = 4 d = 2 m = 512", "f16 static b = 4 d = 1/4 m = 99999999999", "f16 dense m = 512 "})
    EXPECT_FALSE(case_named(other)) << other;
}

TEST_F(PopsparseStudy, PublishedNamesThatMatchNothingAreErrors) {
  for (const auto& [table, name] : {std::pair{"figure-2.csv", "f16 static b = 4 d = 1/4 m = 512 n = 4"},
                                    {"figure-2.csv", "FP16 dense m = 512 n = 4"},
                                    {"figure-7.csv", "f16 dense m = 512 n = 4"},
                                    {"figure-7.csv", "f16 static b = 4 d = 1/4 m = 512"},
                                    {"table-3.csv", "f16 static b = 4 d = 1/4 m = 512 n = 4"}}) {
    file("figure-2.csv", "name,tflops\nf16 dense m = 512 n = 4,1\n");
    file("figure-7.csv", "name,speedup\nf16 static b = 4 d = 1/4 m = 512 n = 4,\n");
    file(table, fmt::format("name,tflops,speedup\n{},1,1\n", name));
    EXPECT_ERROR(fmt::format("{}:2: nothing of ours is named '{}'", table, name), (void)study());
  }
}

// Figures 2 and 7 as committed: the number of cells, and some of them.
TEST(PopsparsePublished, IsCommitted) {
  const Published published(kPublishedFiles, "");
  EXPECT_EQ(published.rows("figure-2.csv").size(), 74U);
  EXPECT_EQ(published.number("figure-2.csv", "f16 dense m = 1024 n = 256", "tflops"), 88.9);
  const auto& ratios = published.rows("figure-7.csv");
  EXPECT_EQ(ratios.size(), 400U);
  EXPECT_EQ(std::ranges::count_if(ratios, [](const auto& row) { return row.text("speedup").empty(); }), 11);
  EXPECT_EQ(published.number("figure-7.csv", "f16 static b = 1 d = 1/4 m = 1024 n = 4", "speedup"), 0.923);
  EXPECT_EQ(
      published.number("figures-3a-4a.csv", "f16 static b = 1 d = 1/16 m = 4096", "over_single_elements"),
      1.0);
  EXPECT_EQ(published.number("table-3.csv", "f32 static b = 16 d = 1/16 m = 4096", "speedup"), 5.6);
}

}  // namespace
}  // namespace tessera::studies::popsparse
