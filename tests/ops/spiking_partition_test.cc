// Where spiking layers lie on tiles: neurons per tile, chips, and the tiles that make lists.
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <set>

#include "ops/spiking/tiles/partition.h"
#include "support/error_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

using ::tessera::testing::toy_chips;
using ::tessera::testing::toy_machine;
using test::error_of;

std::vector<SpikingProblem> layers_of(const std::vector<uint32_t>& neurons, uint32_t batch = 6) {
  std::vector<SpikingProblem> problems;
  uint32_t inputs = 16;
  for (const uint32_t n : neurons) {
    problems.push_back(
        {.layer = {.inputs = inputs, .neurons = n}, .steps = 4, .batch = batch, .in_capacity = 4});
    inputs = n;
  }
  return problems;
}

std::vector<uint32_t> per_tile(const SpikingTilePartition& partition) {
  std::vector<uint32_t> all;
  for (const SpikingTileLayer& layer : partition.layers) all.push_back(layer.neurons_per_tile);
  return all;
}

/// Every neuron on one tile, and every sample's list on one.
void expect_complete(const SpikingTilePartition& partition, uint32_t batch, uint32_t tiles) {
  std::set<program::TileId> taken;
  for (const SpikingTileLayer& layer : partition.layers) {
    uint32_t neurons = 0;
    for (uint32_t i = 0; i < layer.tiles; ++i) {
      EXPECT_EQ(layer.first_neuron(i), neurons);
      EXPECT_GT(layer.neurons_of(i), 0U);
      neurons += layer.neurons_of(i);
      EXPECT_TRUE(taken.insert(layer.first_tile + i).second) << "tile " << layer.first_tile + i;
      EXPECT_LT(layer.first_tile + i, tiles);
    }
    EXPECT_EQ(neurons, layer.neurons);
    EXPECT_EQ(layer.sample_begin.front(), 0U);
    EXPECT_EQ(layer.sample_begin.back(), batch);
    EXPECT_LE(layer.first_list_tile + layer.list_tiles(), tiles);
  }
}

TEST(SpikingPartition, TakesPairsWhileThereAreTiles) {
  const SpikingTilePartition partition = partition_spiking(layers_of({20, 12, 4}), toy_machine(18));
  EXPECT_EQ(per_tile(partition), (std::vector<uint32_t>{2, 2, 2}));
  expect_complete(partition, 6, 18);
}

TEST(SpikingPartition, SpreadsSmallLayersOverTheTilesThatRemain) {
  // In pairs they need 18 tiles, in fours 9: of the other 8 the two small layers take 1 and 3.
  const SpikingTilePartition partition = partition_spiking(layers_of({20, 12, 4}), toy_machine(17));
  EXPECT_EQ(per_tile(partition), (std::vector<uint32_t>{4, 2, 2}));
  expect_complete(partition, 6, 17);
}

TEST(SpikingPartition, KeepsWhatIsGiven) {
  const SpikingTilePartition partition =
      partition_spiking(layers_of({20, 12, 4}), toy_machine(17), {10, 0, 3});
  EXPECT_EQ(per_tile(partition), (std::vector<uint32_t>{10, 2, 3}));
  expect_complete(partition, 6, 17);
}

TEST(SpikingPartition, MakesListsOfSmallLayersOnOtherTiles) {
  const SpikingTilePartition partition = partition_spiking(layers_of({24, 4}), toy_machine(14), {2, 4});
  expect_complete(partition, 6, 14);
  const SpikingTileLayer &large = partition.layers[0], &small = partition.layers[1];
  EXPECT_EQ(large.first_list_tile, large.first_tile);
  EXPECT_EQ(small.tiles, 1U);
  EXPECT_EQ(small.list_tiles(), 6U);
  EXPECT_GE(small.first_list_tile, large.first_list_tile + large.list_tiles());
}

TEST(SpikingPartition, MakesListsOfLayersWithATileForEachSampleAtHome) {
  const SpikingTilePartition partition = partition_spiking(layers_of({12, 4}), toy_machine(20), {2, 2});
  expect_complete(partition, 6, 20);
  EXPECT_EQ(partition.layers[0].tiles, 6U);
  EXPECT_EQ(partition.layers[0].first_list_tile, partition.layers[0].first_tile);
}

TEST(SpikingPartition, MakesListsAtHomeWhereOthersAreBusy) {
  const SpikingTilePartition partition = partition_spiking(layers_of({12, 4}), toy_machine(8), {2, 2});
  expect_complete(partition, 6, 8);
  EXPECT_EQ(partition.layers[1].first_list_tile, partition.layers[1].first_tile);
  EXPECT_EQ(partition.layers[1].list_tiles(), 2U);
}

TEST(SpikingPartition, MovesLayersWholeToTheNextChip) {
  const machine::Machine chips = toy_chips(3, 8);
  const SpikingTilePartition partition = partition_spiking(layers_of({10, 10, 10, 4}, 3), chips);
  expect_complete(partition, 3, chips.tiles);
  EXPECT_EQ(per_tile(partition), (std::vector<uint32_t>{2, 2, 2, 2}));
  const uint32_t first[] = {0, 8, 16, 21};
  for (size_t l = 0; l < 4; ++l) {
    const SpikingTileLayer& layer = partition.layers[l];
    EXPECT_EQ(layer.first_tile, first[l]);
    EXPECT_EQ(chips.chip_of(layer.first_list_tile), chips.chip_of(layer.first_tile));
    EXPECT_EQ(chips.chip_of(layer.first_list_tile + layer.list_tiles() - 1), chips.chip_of(layer.first_tile));
  }
}

TEST(SpikingPartition, CountsChipsOfAPartOfAMachine) {
  const machine::Machine part = toy_chips(3, 8).part(8, 16);
  const SpikingTilePartition partition = partition_spiking(layers_of({10, 10}, 3), part);
  expect_complete(partition, 3, part.tiles);
  EXPECT_EQ(partition.layers[1].first_tile, 8U);
}

TEST(SpikingPartition, SpreadsALayerThatNoChipHolds) {
  const SpikingTilePartition partition = partition_spiking(layers_of({30}, 3), toy_chips(2, 8));
  expect_complete(partition, 3, 16);
  EXPECT_EQ(partition.layers[0].tiles, 15U);
}

TEST(SpikingPartition, RefusesWhatDoesNotFit) {
  EXPECT_EQ(error_of<UsageError>([] {
              partition_spiking(layers_of({20, 12}), toy_machine(10), {2, 2});
            }),
            "spiking layers of 2, 2 neurons per tile need 16 tiles; toy has 10: take more per tile");
  EXPECT_EQ(error_of<UsageError>([] {
              partition_spiking(layers_of({20, 12}), toy_machine(10), {2});
            }),
            "neurons per tile are given of 1 spiking layers; there are 2");
  EXPECT_EQ(error_of<UsageError>([] {
              partition_spiking(layers_of({20, 12, 4}), toy_machine(2));
            }),
            "3 spiking layers need as many tiles; toy has 2");
}

}  // namespace
}  // namespace tessera::ops
