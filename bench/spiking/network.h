// Spiking networks with random weights, scaled such that every hidden layer fires at a given rate.
#pragma once

#include <tessera/spiking.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::bench {

inline constexpr float kDecay = 0.95F;  ///< of all potentials

struct SpikingCase {
  std::vector<uint32_t> sizes = {};  ///< inputs, hidden layers, outputs
  bool recurrent = false;
  uint32_t batch = 256;
  uint32_t steps = 100;
  double input_activity = 0.02;
  double firing = 0.025;  ///< fraction of hidden neurons that fire in a step
  double listed = 0.04;   ///< fraction that are listed

  std::string name() const;
};

/// A network, its inputs, parameters and gradients.
class SpikingBench {
 public:
  SpikingBench(const SpikingCase& of, uint32_t threads);
  /// Takes these layers instead of layers of the case's sizes. All layers but the last must spike.
  SpikingBench(const SpikingCase& of, std::vector<SpikingLayer> layers, const SpikingNetworkOptions& options);

  void forward();
  void gradients();

  /// Means over all samples and steps.
  double firing(size_t layer) const;
  double listed(size_t layer) const;
  /// Bytes kept for gradients: reserved, and in use.
  double reserved_bytes() const;
  double used_bytes() const;
  /// Bytes that dense backpropagation through time keeps: potentials and inputs.
  double dense_bytes() const;
  double dropped() const;

  /// The number of layers that spike.
  size_t hidden() const;
  std::vector<uint16_t>& ids() { return ids_; }
  std::vector<uint32_t>& num() { return num_; }
  const std::vector<std::vector<float>>& parameters() const { return parameters_; }
  float& gradient_threshold() { return control_.gradient_threshold; }

  /// inputs.npy [steps · batch, inputs], parameterI.npy and gradientI.npy in their orders, upstream.npy;
  /// spikes.npy: the spikes of each hidden layer; gradient_threshold.npy.
  void write(const std::string& folder) const;

 private:
  void draw_inputs();
  void calibrate();
  void draw_weight(size_t layer, double scale);
  double mean(uint64_t count, size_t layer) const;
  SpikeLists inputs() const;

  SpikingCase case_;
  std::vector<SpikingLayer> layers_;
  uint32_t input_capacity_;
  std::vector<uint16_t> ids_;
  std::vector<uint32_t> num_;
  SpikingNetwork network_;
  std::vector<std::vector<float>> parameters_, gradients_;
  std::vector<size_t> weights_;  // position of each layer's weight among the parameters
  std::vector<const float*> parameter_pointers_;
  std::vector<float*> gradient_pointers_;
  std::vector<float> upstream_;
  SpikingControl control_;
};

}  // namespace tessera::bench
