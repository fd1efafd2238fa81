#include "train/regrow.h"

#include <utility>

#include "sparse/pattern.h"
#include "train/network.h"

namespace tessera::train {
namespace {

/// The weights as dense matrices, and all other parameters.
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

}  // namespace

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
  const bool by_gradient = settings_.drop_grow.kind == DropGrowKind::rigl;
  std::vector<std::vector<float>> gradients;
  if (by_gradient) gradients = dense_gradients(session, batch, step);
  for (size_t layer = 0; layer + 2 < settings_.layers.size(); ++layer) {
    const std::string name = weight_name(layer);
    const SparseMatrix weight{session.pattern(name), session.get(name)};
    const auto count = static_cast<uint64_t>(fraction * static_cast<double>(weight.pattern.blocks()));
    if (count == 0) continue;
    const std::vector<BlockPosition> grow =
        by_gradient
            ? strongest_empty_blocks(weight.pattern, count,
                                     row_major<const float>(gradients[layer].data(), weight.pattern.cols))
            : random_empty_blocks(weight.pattern, count, settings_.seed, static_cast<uint32_t>(step),
                                  static_cast<uint32_t>(layer));
    const std::vector<BlockPosition> drop = weakest_blocks(weight, grow.size());
    session.set_pattern(name, replaced(weight.pattern, drop, grow));
  }
}

}  // namespace tessera::train
