// Parameters of a spiking network, which a session keeps and updates with the network's gradients.
#pragma once

#include <tessera/training.h>

#include <span>
#include <string>
#include <vector>

#include "train/spiking/digits.h"

namespace tessera::train {

/// The session's graph is that of Σ parameter · gradient, whose gradients are those that it is given.
class SpikingParameters {
 public:
  /// Of layers; with `digits` the first takes digits of currents, whose weights are tied.
  SpikingParameters(const SpikingTrainingSettings& settings, const std::vector<SpikingLayer>& layers,
                    bool digits, uint32_t threads);

  model::Session& session() { return session_; }
  uint64_t count() const;

  /// As SpikingNetwork takes them, and room for the gradients of those that are learned.
  const std::vector<const float*>& values() const { return values_; }
  const std::vector<float*>& gradients() const { return gradient_pointers_; }

  /// Multiplies the weights of a layer.
  void scale(size_t layer, double factor);
  /// Reads them from the session.
  void load();
  /// One step of the optimizer, counted from 0, with the gradients.
  void update(uint64_t step, double rate);

 private:
  struct Parameter {
    std::string name;
    size_t layer = 0;
    uint32_t rows = 0, cols = 0;
    bool is_weight = true;
    bool learned = true;
    bool has_digits = false;
    std::vector<float> value = {}, digits = {};
    std::vector<float> gradient = {}, reduced = {};

    const float* as_taken() const { return has_digits ? digits.data() : value.data(); }
  };
  static std::vector<Parameter> parameters_of(const SpikingTrainingSettings& settings,
                                              const std::vector<SpikingLayer>& layers, bool digits);
  static model::Graph graph_of(const SpikingTrainingSettings& settings, const std::vector<Parameter>& all);

  std::vector<Parameter> parameters_;
  model::Session session_;
  std::vector<const float*> values_;
  std::vector<float*> gradient_pointers_;
};

}  // namespace tessera::train
