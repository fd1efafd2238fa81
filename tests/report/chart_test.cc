// Charts: positions, and data that is hard to draw.
#include "report/chart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "report/strict_markup.h"

namespace tessera::report {
namespace {

using testing::MarkupReader;
using testing::Node;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Node read(const Html& html) { return MarkupReader::read(html.code); }

/// Elements that are data: rectangles and markers with titles.
std::vector<const Node*> marks_of(const Node& root) {
  std::vector<const Node*> marks;
  for (const char* shape : {"rect", "path"})
    for (const Node* node : root.all(shape))
      if (node->attribute("class") == "mark" && !node->children.empty()) marks.push_back(node);
  return marks;
}

double number(const Node* node, const std::string& key) { return std::stod(node->attribute(key)); }

TEST(Scale, EndsOnTicksAroundTheData) {
  Range data;
  for (double value : {3.0, 97.0}) data.include(value, Growth::linear);
  const Scale scale({}, data, 100, 500);
  EXPECT_EQ(scale.least(), 0);
  EXPECT_EQ(scale.most(), 100);
  EXPECT_DOUBLE_EQ(scale.at(0), 100);
  EXPECT_DOUBLE_EQ(scale.at(50), 300);
  EXPECT_DOUBLE_EQ(scale.at(1e9), 500);
  EXPECT_EQ(scale.ticks().front().label, "0");
  EXPECT_EQ(scale.ticks().back().label, "100");
}

TEST(Scale, GrowsByPowers) {
  Range data;
  for (double value : {0.0, -1.0, kNan, 3.0, 4000.0}) data.include(value, Growth::log10);
  const Scale scale({"", Unit::number, Growth::log10}, data, 0, 300);
  EXPECT_NEAR(scale.least(), 2, 1e-9);
  EXPECT_NEAR(scale.most(), 5000, 1e-6);
  EXPECT_FALSE(scale.shows(0));
  EXPECT_NEAR(scale.at(100) - scale.at(10), scale.at(1000) - scale.at(100), 1e-9);
}

TEST(Scale, WritesPowersOfTwoAsFractions) {
  Range data;
  for (double value : {1.0 / 64, 0.5}) data.include(value, Growth::log2);
  const Scale scale({"", Unit::number, Growth::log2}, data, 0, 600);
  EXPECT_EQ(scale.ticks().front().label, "1/64");
  EXPECT_EQ(scale.ticks().back().label, "1/2");
  EXPECT_EQ(scale.ticks().size(), 6U);
}

TEST(Scale, NeverHasTooManyTicksNorNone) {
  for (Growth growth : {Growth::linear, Growth::log2, Growth::log10})
    for (double least : {0.0, 1e-300, 1.0, 1e15})
      for (double most : {0.0, 1e-299, 1.0, 1e15 + 1, 1e300}) {
        Range data;
        data.include(least, growth);
        data.include(most, growth);
        const Scale scale({"", Unit::number, growth}, data, 0, 500);
        EXPECT_GE(scale.ticks().size(), 1U) << least << " " << most;
        EXPECT_LE(scale.ticks().size(), 24U);
        EXPECT_LT(scale.least(), scale.most());
        for (const Tick& tick : scale.ticks()) EXPECT_TRUE(std::isfinite(scale.at(tick.value)));
      }
}

TEST(Values, AreWrittenForPeople) {
  EXPECT_EQ(value_text(0.00123, Unit::seconds), "1.23 ms");
  EXPECT_EQ(value_text(638976, Unit::bytes), "639 kB");
  EXPECT_EQ(value_text(1234567, Unit::cycles), "1,234,567 cycles");
  EXPECT_EQ(value_text(0.0625, Unit::share), "6.25 %");
  EXPECT_EQ(value_text(1.5e6), "1.5 M");
  EXPECT_EQ(value_text(0, Unit::seconds), "0 s");
  EXPECT_EQ(value_text(kNan), "–");
  EXPECT_EQ(count_text(1472), "1,472");
  EXPECT_EQ(count_text(100), "100");
}

TEST(Charts, OfNothingSaySo) {
  for (const Html& html :
       {chart(LineChart{}), chart(BarChart{}), chart(ColumnChart{}), chart(Histogram{}), chart(Timeline{})}) {
    const Node root = read(html);
    EXPECT_NE(root.whole_text().find("Nothing to show"), std::string::npos);
    EXPECT_TRUE(root.all("svg").empty());
  }
}

TEST(LineChartTest, LeavesOutWhatCannotBeShown) {
  LineChart lines;
  lines.x.growth = lines.y.growth = Growth::log10;
  lines.series = {{"a", {{1, 10}, {2, 0}, {0, 5}, {4, 40}, {8, kNan}, {kInfinity, 1}, {16, 160}}}};
  const Node root = read(chart(lines));
  EXPECT_EQ(marks_of(root).size(), 3U);
  // The line is interrupted where a point is missing: three beginnings.
  const std::string outline = root.all("path")[0]->attribute("d");
  EXPECT_EQ(std::count(outline.begin(), outline.end(), 'M'), 3);
  EXPECT_EQ(outline.find("nan"), std::string::npos);
}

TEST(LineChartTest, AllPointsOutOfSightIsNoError) {
  LineChart lines;
  lines.y.growth = Growth::log10;
  lines.series = {{"a", {{1, 0}, {2, -1}}}};
  EXPECT_TRUE(marks_of(read(chart(lines))).empty());
}

TEST(LineChartTest, ReferencesLookDifferentAndLegendsNameAll) {
  LineChart lines;
  lines.series = {{"ours", {{1, 1}, {2, 2}}, 3}, {"published", {{1, 1}, {2, 3}}, 3, true, true, true}};
  const Node root = read(chart(lines));
  const std::vector<const Node*> entries = root.all("li");
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[1]->text, "published");
  const std::vector<const Node*> marks = marks_of(root);
  ASSERT_EQ(marks.size(), 4U);
  EXPECT_EQ(marks[0]->attribute("stroke"), marks[2]->attribute("stroke"));
  EXPECT_NE(marks[0]->attribute("fill"), marks[2]->attribute("fill"));
}

TEST(BarChartTest, BarsAreAsLongAsTheirParts) {
  BarChart bars;
  bars.categories = {{"a"}, {"b"}};
  bars.bars = {{"x", {30, 10}}, {"y", {20}}, {"nothing", {0, kNan}}};
  const Node root = read(chart(bars));
  const std::vector<const Node*> marks = marks_of(root);
  ASSERT_EQ(marks.size(), 3U);
  EXPECT_NEAR(number(marks[0], "width") / number(marks[1], "width"), 3, 0.01);
  EXPECT_NEAR(number(marks[0], "width") / number(marks[2], "width"), 1.5, 0.01);
  EXPECT_NEAR(number(marks[0], "x") + number(marks[0], "width"), number(marks[1], "x"), 0.02);
}

TEST(ColumnChartTest, ThousandsOfTilesTakeOneOutlineACategory) {
  ColumnChart columns;
  columns.categories = {{"a"}, {"b"}, {"c"}};
  for (int tile = 0; tile < 1472; ++tile) columns.columns.push_back({{1.0 + tile % 7, 2, 0.5}, ""});
  columns.limit = Limit{12, "capacity"};
  const Node root = read(chart(columns));
  EXPECT_EQ(root.all("path").size(), 3U);
  EXPECT_LT(chart(columns).code.size(), 200'000U);
  EXPECT_NE(root.whole_text().find("capacity"), std::string::npos);
}

TEST(HistogramTest, CountsEveryValueOnce) {
  std::vector<double> values;
  for (int i = 0; i < 1000; ++i) values.push_back(400e3 + 37.0 * i);
  values.push_back(kNan);
  double count = 0;
  const std::vector<Histogram::Bin> bins = bins_of(values);
  for (const Histogram::Bin& bin : bins) count += bin.count;
  EXPECT_EQ(count, 1000);
  EXPECT_LE(bins.front().from, 400e3);
  EXPECT_GT(bins.back().to, 400e3 + 37.0 * 999);
  EXPECT_LE(bins.size(), 60U);
}

TEST(HistogramTest, TakesOneValueAndEqualOnes) {
  for (double value : {0.0, 5.0, -3.0, 1e18}) {
    const std::vector<Histogram::Bin> bins = bins_of({value, value, value});
    double count = 0;
    for (const Histogram::Bin& bin : bins) count += bin.count;
    EXPECT_EQ(count, 3) << value;
    EXPECT_LE(bins.size(), 60U) << value;
    Histogram histogram;
    histogram.bins = bins;
    EXPECT_EQ(marks_of(read(chart(histogram))).size(), 1U);
  }
  EXPECT_TRUE(bins_of({}).empty());
}

TEST(TimelineTest, SpansLieWhereTheyHappen) {
  Timeline timeline;
  timeline.categories = {{"compute"}, {"exchange"}};
  timeline.lanes = {{"all", {{0, 1, 0, "multiply", "m"}, {1, 3, 1, "gather", "g"}}}};
  const Node root = read(chart(timeline));
  const std::vector<const Node*> marks = marks_of(root);
  ASSERT_EQ(marks.size(), 2U);
  EXPECT_NEAR(number(marks[1], "width") / number(marks[0], "width"), 3, 0.05);
}

}  // namespace
}  // namespace tessera::report
