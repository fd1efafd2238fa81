#include "report/graph_picture.h"

#include <gtest/gtest.h>
#include <tessera/gradients.h>

#include "report/strict_markup.h"

namespace tessera::report {
namespace {

graph::Graph classifier() {
  graph::Graph g;
  const graph::Value x = g.input("x", {4, 8}), w = g.parameter("<w>", {3, 8});
  const graph::Value loss = cross_entropy(linear(relu(x), w), g.input("labels", {4}, Type::u32));
  g.output("loss", loss);
  graph::add_training(loss);
  return g;
}

TEST(GraphPicture, DrawsEachOperationOnce) {
  const graph::Graph g = classifier();
  const testing::Node drawing = testing::MarkupReader::read(picture(g).code);
  EXPECT_EQ(drawing.all("rect").size(), g.nodes().size());
  EXPECT_FALSE(drawing.all("line").empty());
}

TEST(GraphPicture, CutsLargeGraphs) {
  graph::Graph g;
  graph::Value x = g.input("x", {4, 8});
  for (size_t i = 0; i < kMostDrawn + 5; ++i) x = relu(x);
  EXPECT_NE(picture(g).code.find("The first"), std::string::npos);
}

TEST(GraphPicture, TabulatesCosts) {
  const graph::Graph g = classifier();
  const graph::Session session(g, Machine::find("bow"));
  const Html tables = cost_tables(session.cost());
  EXPECT_NE(tables.code.find("cross_entropy"), std::string::npos);
  EXPECT_NE(tables.code.find("parameter"), std::string::npos);
}

}  // namespace
}  // namespace tessera::report
