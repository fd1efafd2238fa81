// Training steps of spiking networks as cells.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <string>
#include <vector>

#include "studies/paper/study.h"

namespace tessera::studies::snn {

// Sizes of all networks: 24 × 24 × 2 events of N-MNIST, and its classes.
inline constexpr uint32_t kInputs = 24 * 24 * 2;
inline constexpr uint32_t kClasses = 10;

/// A network of the paper's measurements of throughput.
struct NetworkCase {
  std::vector<uint32_t> hidden;  ///< neurons of each hidden layer
  uint32_t steps = 10;
  uint32_t batch = 48;
  double room = 0.05;             ///< capacity of lists as a fraction of a layer's neurons
  bool adam = false;              ///< Adam instead of SGD
  uint32_t neurons_per_tile = 0;  ///< neurons per tile of hidden layers; 0: as planned
  uint32_t chips = 1;             ///< number of chips like the machine, linked as in a POD16
};

/// Hidden layers with `neurons_per_tile` neurons per tile on a chip with one tile for the readout.
std::vector<uint32_t> hidden_layers(uint32_t neurons_per_tile, uint32_t layers);

/// Capacity of lists: a multiple of 8, like the paper's 48 of 980 neurons for 5 %, and 24 for 2.5 %.
uint32_t list_room(uint32_t neurons, double fraction);

/// Number of neurons of all hidden layers.
uint64_t neurons_of(const NetworkCase& what);

/// "3 layers, 2942 neurons, capacity 5 %, T = 10, batch 48, SGD".
std::string name_of(const NetworkCase& what);

/// A training step: enters "seconds", "samples_per_second", "fired" and "listed" (fractions of the hidden
/// layers' neurons per step), and on tiles the fraction of cycles in each phase ("compute_share", …),
/// "balance" (of RunCost), "tile_bytes" and "total_bytes", and on several chips "link_bytes".
Result run_network(const NetworkCase& what, const Setting& setting);

}  // namespace tessera::studies::snn
