#include "train/regrow.h"

#include <utility>

#include "sparse/pattern.h"
#include "train/network.h"

namespace tessera::train {

void copy_as_dense(const graph::Session& from, graph::Session& to) {
  for (const graph::ValueInfo& info : to.graph().values()) {
    if (info.kind != graph::Kind::parameter) continue;
    std::vector<float> values = from.get(info.name);
    for (const graph::ValueInfo& trained : from.graph().values())
      if (trained.name == info.name && trained.type.pattern)
        values = sparse::to_dense({from.pattern(info.name), std::move(values)});
    to.set(info.name, values);
  }
}

void regrow(graph::Session& session, const std::vector<std::string>& weights,
            const std::vector<std::vector<float>>& gradients, double fraction, uint64_t seed, uint64_t step) {
  for (size_t i = 0; i < weights.size(); ++i) {
    const SparseMatrix weight{session.pattern(weights[i]), session.get(weights[i])};
    const auto count = static_cast<uint64_t>(fraction * static_cast<double>(weight.pattern.blocks()));
    if (count == 0) continue;
    const std::vector<BlockPosition> grow =
        gradients.empty()
            ? random_empty_blocks(weight.pattern, count, seed, static_cast<uint32_t>(step),
                                  static_cast<uint32_t>(i))
            : strongest_empty_blocks(weight.pattern, count,
                                     row_major<const float>(gradients[i].data(), weight.pattern.cols));
    const std::vector<BlockPosition> drop = weakest_blocks(weight, grow.size());
    session.set_pattern(weights[i], replaced(weight.pattern, drop, grow));
  }
}

Regrowth::Regrowth(const TrainingSettings& settings, Machine host, uint32_t threads)
    : settings_(settings), host_(std::move(host)), threads_(threads) {}

std::vector<std::vector<float>> Regrowth::dense_gradients(const graph::Session& session, const Batch& batch,
                                                          uint64_t step) {
  if (gradients_ == nullptr)
    gradients_ = std::make_unique<graph::Session>(
        gradient_graph(settings_), host_, graph::SessionOptions{.seed = settings_.seed, .threads = threads_});
  copy_as_dense(session, *gradients_);
  std::vector<float> images(batch.images.begin(), batch.images.end());
  std::vector<uint32_t> labels = batch.labels, dropout_steps;
  for (uint32_t part = 0; part < settings_.micro_batches; ++part)
    dropout_steps.push_back(static_cast<uint32_t>(step * settings_.micro_batches + part));
  std::vector<graph::Tensor> arrays = {
      {kImages, images.data()}, {kLabels, labels.data()}, {kDropoutStep, dropout_steps.data()}};
  std::vector<std::vector<float>> sums(settings_.layers.size() - 2);
  for (size_t layer = 0; layer < sums.size(); ++layer) {
    sums[layer].resize(size_t{settings_.layers[layer]} * settings_.layers[layer + 1]);
    arrays.push_back({gradient_name(layer), sums[layer].data()});
  }
  gradients_->run(taken_by(gradients_->graph(), arrays));
  return sums;
}

void Regrowth::apply(graph::Session& session, const Batch& batch, uint64_t step, double fraction) {
  std::vector<std::vector<float>> gradients;
  if (settings_.drop_grow.kind == DropGrowKind::rigl) gradients = dense_gradients(session, batch, step);
  std::vector<std::string> weights;
  for (size_t layer = 0; layer + 2 < settings_.layers.size(); ++layer) weights.push_back(weight_name(layer));
  regrow(session, weights, gradients, fraction, settings_.seed, step);
}

}  // namespace tessera::train
