// The distance of modelled results from published ones.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "io/files.h"
#include "studies/popsparse/tables.h"

namespace tessera::studies::popsparse {
namespace {

class DeviationTest : public ::testing::Test {
 protected:
  void file(const std::string& name, const std::string& text) const { folder_.write(name, text); }

  /// A product of m = k = 512 that takes so many seconds; none: it does not fit.
  static void add(Outcome& outcome, const Operand& operand, uint32_t n, std::optional<double> seconds) {
    Result result{.fits = seconds.has_value()};
    if (seconds) result.values = {{"seconds", *seconds}, {"tflops", 2e-6 * n / *seconds}};
    outcome.results[{operand, n}] = result;
  }
  static std::vector<std::string> words_of(const std::vector<Figure::Entry>& row) {
    std::vector<std::string> words;
    for (const Figure::Entry& entry : row) words.push_back(entry.words);
    return words;
  }

  static inline const Operand kDense{Mode::dense, {Type::f16}, 512, 1, 1};
  static inline const Operand kStatic{Mode::static_sparse, {Type::f16}, 512, 4, 0.25};
  test::TemporaryFolder folder_;
};

TEST_F(DeviationTest, IsThatOfLogarithms) {
  // The model's rates are 2, 4, 8 and 16 TFLOP/s; the fifth cell was not run.
  file("dense-bow.csv",
       "type,m_eq_k,n,tflops\nFP16,512,1,1\nFP16,512,2,2\nFP16,512,4,8\nFP16,512,8,4\nFP16,512,16,7\n");
  Outcome outcome;
  outcome.machine = machine::find("bow");
  for (const uint32_t n : {1U, 2U, 4U, 8U}) add(outcome, kDense, n, 1e-6);
  const Figure figure = deviation_figure(Study(outcome, folder_.path()));
  ASSERT_EQ(figure.rows.size(), 1U);
  // ln 2, ln 2, 0, ln 4; the median of four is the third.
  EXPECT_EQ(words_of(figure.rows[0]),
            (std::vector<std::string>{"dense TFLOP/s (figure 2)", "4", "0.693", "1.386", "1.386", "+0.693",
                                      "0 of 0", "0 of 4"}));
}

TEST_F(DeviationTest, CountsVerdictsOnWhatFits) {
  file("static-vs-dense-bow-fp16.csv",
       "block,inv_density,m_eq_k,n,speedup\n4,4,512,1,2\n4,4,512,2,\n4,4,512,4,\n4,4,512,8,2\n");
  Outcome outcome;
  outcome.machine = machine::find("bow");
  for (const uint32_t n : {1U, 2U, 4U, 8U}) add(outcome, kDense, n, 3e-6);
  add(outcome, kStatic, 1, 1.5e-6);
  add(outcome, kStatic, 2, {});
  add(outcome, kStatic, 4, 1.5e-6);
  add(outcome, kStatic, 8, {});
  const Figure figure = deviation_figure(Study(outcome, folder_.path()));
  ASSERT_EQ(figure.rows.size(), 1U);
  EXPECT_EQ(words_of(figure.rows[0]),
            (std::vector<std::string>{"static over dense (figure 7)", "4", "0.000", "0.000", "0.000",
                                      "+0.000", "1 of 2", "1 of 2"}));
}

TEST_F(DeviationTest, OfAHostIsNotAsked) {
  file("dense-bow.csv", "type,m_eq_k,n,tflops\nFP16,512,1,1\n");
  Outcome outcome;
  outcome.machine = machine::host(1);
  add(outcome, kDense, 1, 1e-6);
  EXPECT_TRUE(deviation_figure(Study(outcome, folder_.path())).rows.empty());
}

TEST_F(DeviationTest, TheGainOfTheFreePlannerIsAQuotientOfSeconds) {
  Outcome published, free;
  const double gains[] = {1, 1.25, 2, 4};
  for (uint32_t n = 1; n <= 4; ++n) {
    add(published, kStatic, n, 1e-6 * gains[n - 1]);
    add(free, kStatic, n, 1e-6);
  }
  add(published, kStatic, 5, {});
  add(free, kStatic, 5, 1e-6);
  add(published, kStatic, 6, 1e-6);
  const Figure figure = gain_figure(published, free);
  ASSERT_EQ(figure.rows.size(), 1U);
  EXPECT_EQ(words_of(figure.rows[0]), (std::vector<std::string>{"static", "4", "2.00", "4.00", "1.00", "1"}));
}

}  // namespace
}  // namespace tessera::studies::popsparse
