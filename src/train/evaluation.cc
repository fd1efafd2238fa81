#include "train/evaluation.h"

#include <algorithm>
#include <cmath>

#include "train/network.h"

namespace tessera::train {
namespace {

constexpr uint32_t kHostRows = 512;

uint32_t rows_for(const TrainingSettings& settings, const Machine& machine) {
  const uint32_t rows = settings.batch / settings.micro_batches;
  return machine.is_host() ? std::max(rows, kHostRows) : rows;
}

}  // namespace

double cross_entropy_of(std::span<const float> logits, uint32_t label) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (float logit : logits) sum += std::exp(logit - most);
  return std::log(sum) + most - logits[label];
}

uint64_t count_right(std::span<const float> logits, std::span<const uint32_t> labels) {
  const size_t classes = labels.empty() ? 0 : logits.size() / labels.size();
  uint64_t right = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto row = logits.subspan(i * classes, classes);
    right += std::ranges::max_element(row) - row.begin() == labels[i] ? 1 : 0;
  }
  return right;
}

Evaluation::Evaluation(const TrainingSettings& settings, const std::vector<Pattern>& patterns,
                       const Machine& machine, const model::Session& trained)
    : rows_(rows_for(settings, machine)),
      classes_(settings.layers.back()),
      session_(evaluation_graph(settings, patterns, rows_), trained),
      batch_(rows_, settings.layers.front()),
      logits_(size_t{rows_} * classes_) {}

Score Evaluation::evaluate(const Samples& samples, const Standardisation& standardisation,
                           std::span<const uint32_t> images) {
  const std::vector<model::Tensor> arrays = {{kImages, batch_.images.data()}, {kLogits, logits_.data()}};
  double loss = 0;
  uint64_t right = 0;
  for (size_t first = 0; first < images.size(); first += rows_) {
    const size_t count = std::min<size_t>(rows_, images.size() - first);
    batch_.load(samples, standardisation, images.subspan(first, count));
    batch_seconds_ = session_.run(arrays);
    const std::span<const float> logits(logits_.data(), count * classes_);
    const std::span<const uint32_t> labels(batch_.labels.data(), count);
    right += count_right(logits, labels);
    for (size_t i = 0; i < count; ++i)
      loss += cross_entropy_of(logits.subspan(i * classes_, classes_), labels[i]);
  }
  const auto count = static_cast<double>(images.size());
  return {loss / count, static_cast<double>(right) / count};
}

}  // namespace tessera::train
