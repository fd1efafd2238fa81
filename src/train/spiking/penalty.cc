#include "train/spiking/penalty.h"

#include <algorithm>
#include <cstdint>

namespace tessera::train {

ActivityPenalty::ActivityPenalty(double strength, double cap, const SpikingNetwork& network)
    : strength_(strength), cap_(cap) {
  if (strength == 0) return;
  const size_t samples = network.batch();
  for (size_t i = 0; i + 1 < network.layers(); ++i) {
    const size_t neurons = network.layer(i).neurons;
    Layer& layer = layers_.emplace_back();
    layer.excess.resize(samples * neurons);
    layer.upstream.resize(samples * network.steps() * neurons);
  }
  for (const Layer& layer : layers_) upstreams_.push_back(layer.upstream.data());
}

double ActivityPenalty::evaluate(const SpikingNetwork& network) {
  double penalty = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    std::vector<float>& excess = layers_[i].excess;
    const SpikeLists lists = network.spikes(i);
    const uint32_t neurons = network.layer(i).neurons, batch = network.batch(), steps = network.steps();
    std::ranges::fill(excess, 0.0F);
    for (size_t list = 0; list < size_t{steps} * batch; ++list)
      for (uint32_t e = 0; e < lists.num[2 * list]; ++e)
        excess[list % batch * neurons + lists.ids[list * lists.capacity + e]] += 1;
    double squares = 0;
    for (float& spikes : excess) {
      spikes = static_cast<float>(std::max(0.0, double{spikes} / steps - cap_));
      squares += double{spikes} * spikes;
    }
    penalty += strength_ * squares / static_cast<double>(excess.size());
  }
  return penalty;
}

const std::vector<const float*>& ActivityPenalty::gradients(const SpikingNetwork& network) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    const SpikeLists lists = network.spikes(i);
    const uint32_t neurons = network.layer(i).neurons, batch = network.batch(), steps = network.steps();
    const auto factor = static_cast<float>(2 * strength_ / static_cast<double>(layer.excess.size()) / steps);
    for (size_t list = 0; list < size_t{steps} * batch; ++list)
      for (uint32_t e = 0; e < lists.num[2 * list + 1]; ++e) {
        const size_t place = list * lists.capacity + e;
        layer.upstream[place] = factor * layer.excess[list % batch * neurons + lists.ids[place]];
      }
  }
  return upstreams_;
}

}  // namespace tessera::train
