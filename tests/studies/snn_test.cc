// Networks of `tessera reproduce snn`.
#include <gtest/gtest.h>
#include <tessera/recordings.h>

#include "studies/snn/network_cell.h"
#include "studies/snn/study.h"
#include "studies/snn/training_cell.h"

namespace tessera::studies::snn {
namespace {

TEST(SnnNetworks, AreThePapers) {
  EXPECT_EQ(hidden_layers(2, 3), (std::vector<uint32_t>{982, 980, 980}));
  EXPECT_EQ(hidden_layers(32, 48).size(), 48U);
  EXPECT_EQ(list_room(980, 0.05), 48U);
  EXPECT_EQ(list_room(980, 0.025), 24U);
  EXPECT_EQ(list_room(10, 0.05), 8U);
}

TEST(SnnNetworks, TrainOnAHost) {
  const NetworkCase what{.hidden = {64, 48}, .steps = 12, .batch = 4, .room = 0.25, .adam = true};
  const machine::Machine host = machine::host(1);
  const Result result = run_network(what, {host, true, 1});
  EXPECT_TRUE(result.fits);
  EXPECT_NEAR(*result.value("samples_per_second") * *result.value("seconds"), 4, 1e-9);
  EXPECT_GT(result.value("fired"), 0.02);
  EXPECT_GE(result.value("listed"), result.value("fired"));
  EXPECT_LE(result.value("listed"), 0.25);
  EXPECT_EQ(name_of(what), "2 layers, 112 neurons, capacity 25 %, T = 12, batch 4, Adam");
}

TEST(SnnDense, AddsTheProductsOfAllLayers) {
  Study study(paper(), {.machines = {"gc200"}});
  study.parts.push_back({machine::find("gc200"), {}});
  const Section section = dense();
  EXPECT_EQ(section.comparisons(study).at(0).ours, std::nullopt);
  // Forward in each of 10 steps, of 4 layers; then gradients of weights, and of inputs but for the first
  // layer.
  double products = 0;
  for (const Cell& cell : section.cells(study.parts[0].machine, study.request)) {
    const bool is_product = cell.name.starts_with("dense product");
    products += is_product;
    study.parts[0].results[{"dense", cell.name}].values = {{"seconds", 1}, {"fired", 0.04}, {"listed", 0.05}};
  }
  EXPECT_EQ(products, 11);
  EXPECT_EQ(section.comparisons(study).at(0).ours, 4 * 10 + 4 + 3);
}

TEST(SnnTraining, CountsWhatIsListedAndDropped) {
  const RecordingSplit few = load_recordings("randman", "", {.randman = {.dimensions = 2, .samples = 100}});
  const Result all = train({.layers = 2}, 1, 0, 1, few);
  EXPECT_EQ(all.value("listed"), 1);  // every neuron passes a gradient
  EXPECT_EQ(all.value("dropped"), 0);
  EXPECT_GT(all.value("fired"), 0.01);
  EXPECT_LT(all.value("fired"), 0.5);
  EXPECT_GT(all.value("accuracy"), 2);  // in percent

  // In the second epoch, the capacity is half way from all neurons to half of them.
  const Result fewer = train({.most_listed = kHiddenNeurons / 2}, 2, 0, 1, few);
  EXPECT_NEAR(*fewer.value("listed"), 0.75, 1e-9);
  EXPECT_NEAR(*fewer.value("dropped"), 0.25, 1e-9);

  const Result above = train({.gradient_threshold = 0.5}, 1, 0, 1, few);
  EXPECT_GT(above.value("listed"), above.value("fired"));
  EXPECT_LT(above.value("listed"), 0.9);
  EXPECT_EQ(above.value("dropped"), 0);
}

}  // namespace
}  // namespace tessera::studies::snn
