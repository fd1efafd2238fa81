// The page of a network shows what its run costs.
#include "report/network_report.h"

#include <gtest/gtest.h>

#include "report/strict_markup.h"

namespace tessera::report {
namespace {

using testing::MarkupReader;

graph::RunCost cost_of(uint32_t tiles) {
  graph::RunCost cost;
  cost.seconds = 3e-3;
  cost.cycles = {{"compute", 2000}, {"exchange", 1000}};
  cost.operations = {
      {"linear", "hidden <layer>", 2e-3, 5e-4, {{"compute", 2000}}, graph::OperationKind::product},
      {"relu", "h", 1e-3, 0, {{"exchange", 1000}}, graph::OperationKind::elementwise},
      {"reshape", "r", 0, 0, {}}};
  cost.conversions = {{"x", 4096, 2e-6}};
  cost.bytes = {{"parameter", 1000 * tiles}, {"stash", 500 * tiles}};
  cost.total_bytes = 1700 * tiles;
  cost.fullest_tile_bytes = 1700;
  cost.tile_bytes = 2000;
  cost.tiles.assign(tiles, {{"parameter", 1000}, {"stash", 500}, {"other", 200}});
  return cost;
}

std::string text_of(const graph::RunCost& cost, const std::vector<LayerRow>& layers = {}) {
  graph::Graph graph;
  graph.output("y", relu(graph.input("x", {4, 8})));
  const std::string page = network_page(graph, cost, "an MLP & more", "gc200", layers);
  const size_t root = page.find("<html");
  return MarkupReader::read(page.substr(root)).whole_text();
}

TEST(NetworkReport, ShowsTimesAndMemory) {
  const std::string text = text_of(cost_of(8));
  for (const char* words : {"an MLP & more", "gc200", "3 ms", "hidden <layer>", "Memory, tile by tile",
                            "capacity", "85", "stash", "converted between layouts", "4096", "f32[4, 8]"})
    EXPECT_NE(text.find(words), std::string::npos) << words;
}

TEST(NetworkReport, ListsKindsOfOperationsAndLayers) {
  Zeros zeros{.rows = 24, .cols = 32, .density = 0.125, .blocks = {}};
  zeros.reason = NoGain::none;
  zeros.dense_seconds = 4e-3;
  zeros.sparse_seconds = 1e-3;
  zeros.best_block_size = 16;
  const std::string text =
      text_of(cost_of(1), {{"fc1.weight", 64, zeros, true, "", 5000}, {"fc2", 64, {}, false, "why"}});
  for (const char* words :
       {"products", "50.00 %", "elementwise operations", "33.33 %", "conversions of layouts", "16.67 %",
        "fc1.weight", "24 × 32", "0.125", "4 ms", "sparse, a copy of 5.0 kB", "fc2", "why"})
    EXPECT_NE(text.find(words), std::string::npos) << words;
  EXPECT_EQ(text_of(cost_of(1)).find("outputs × inputs"), std::string::npos);
}

TEST(NetworkReport, LeavesOutWhatIsNotKnownOfALayer) {
  Zeros zeros{.rows = 24, .cols = 32, .density = std::nan(""), .blocks = {}};
  zeros.reason = NoGain::none;
  zeros.dense_seconds = 4e-3;
  zeros.sparse_seconds = std::nan("");
  zeros.best_block_size = 16;
  const Table dense = layers_table({{"fc1.weight", 64, zeros, false, "no zeros"}});
  EXPECT_NE(dense.text().find("4 ms"), std::string::npos);
  EXPECT_EQ(dense.text().find("nan"), std::string::npos) << dense.text();
  EXPECT_EQ(dense.text().find("16"), std::string::npos) << dense.text();
  const Table sparse = layers_table({{"fc1.weight", 64, zeros, true}});
  EXPECT_NE(sparse.text().find("16"), std::string::npos) << sparse.text();
}

TEST(NetworkReport, DrawsNoTilesOfAHost) {
  EXPECT_EQ(text_of(cost_of(1)).find("tile by tile"), std::string::npos);
}

TEST(NetworkReport, SaysWhatRanksSend) {
  graph::RunCost cost = cost_of(1);
  EXPECT_EQ(text_of(cost).find("other ranks"), std::string::npos);
  cost.sent_bytes = 5000;
  const std::string text = text_of(cost);
  for (const char* words : {"to other ranks", "5.0 kB"})
    EXPECT_NE(text.find(words), std::string::npos) << words;
}

TEST(NetworkReport, SaysWhatDoesNotFit) {
  graph::RunCost cost = cost_of(3000);
  cost.overflow = "tile 5 overflows";
  const std::string text = text_of(cost);
  EXPECT_NE(text.find("tile 5 overflows"), std::string::npos);
  EXPECT_NE(text.find("fullest of 8 neighbouring tiles"), std::string::npos);
}

}  // namespace
}  // namespace tessera::report
