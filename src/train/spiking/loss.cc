#include "train/spiking/loss.h"

#include <algorithm>
#include <cmath>

#include "train/evaluation.h"

namespace tessera::train {
namespace {

constexpr double kRightRate = 0.8;
constexpr double kWrongRate = 0.2;

}  // namespace

SpikingOutput::SpikingOutput(SpikingLoss loss, const SpikingNetwork& network)
    : loss_(loss),
      steps_(network.steps()),
      batch_(network.batch()),
      classes_(network.layer(network.layers() - 1).neurons),
      logits_(size_t{batch_} * classes_),
      largest_(loss == SpikingLoss::maximum ? logits_.size() : 0),
      upstream_(size_t{steps_} * logits_.size()) {}

void SpikingOutput::read(const SpikingNetwork& network) {
  const size_t last = network.layers() - 1, row = logits_.size();
  std::ranges::fill(logits_, 0.0F);
  if (loss_ == SpikingLoss::spikes || loss_ == SpikingLoss::rate) {
    const SpikeLists lists = network.spikes(last);
    for (size_t list = 0; list < size_t{steps_} * batch_; ++list)
      for (uint32_t i = 0; i < lists.num[2 * list]; ++i)
        logits_[list % batch_ * classes_ + lists.ids[list * lists.capacity + i]] += 1;
    return;
  }
  const std::span<const float> u = network.potentials(last);
  if (loss_ == SpikingLoss::last) {
    std::ranges::copy(u.last(row), logits_.begin());
  } else if (loss_ == SpikingLoss::mean) {
    for (uint32_t t = 0; t < steps_; ++t)
      for (size_t i = 0; i < row; ++i) logits_[i] += u[t * row + i];
    for (float& logit : logits_) logit /= static_cast<float>(steps_);
  } else {
    std::ranges::copy(u.first(row), logits_.begin());
    std::ranges::fill(largest_, 0U);
    for (uint32_t t = 1; t < steps_; ++t)
      for (size_t i = 0; i < row; ++i)
        if (u[t * row + i] > logits_[i]) {
          logits_[i] = u[t * row + i];
          largest_[i] = t;
        }
  }
}

double SpikingOutput::sample_loss(std::span<const float> row, uint32_t label) const {
  if (loss_ != SpikingLoss::rate) return cross_entropy_of(row, label);
  double sum = 0;
  for (uint32_t c = 0; c < classes_; ++c) {
    const double error = double{row[c]} / steps_ - (c == label ? kRightRate : kWrongRate);
    sum += error * error;
  }
  return sum / classes_;
}

void SpikingOutput::sample_gradient(std::span<const float> row, uint32_t label,
                                    std::vector<double>& to) const {
  if (loss_ == SpikingLoss::rate) {
    for (uint32_t c = 0; c < classes_; ++c)
      to[c] = 2 * (double{row[c]} / steps_ - (c == label ? kRightRate : kWrongRate)) / classes_ / steps_;
    return;
  }
  const double most = *std::ranges::max_element(row);
  double sum = 0;
  for (uint32_t c = 0; c < classes_; ++c) sum += to[c] = std::exp(row[c] - most);
  for (uint32_t c = 0; c < classes_; ++c) to[c] = to[c] / sum - (c == label ? 1 : 0);
}

SpikingOutput::Result SpikingOutput::evaluate(std::span<const uint32_t> labels) const {
  const std::span<const float> rows(logits_.data(), labels.size() * classes_);
  Result result{.right = count_right(rows, labels)};
  for (size_t b = 0; b < labels.size(); ++b)
    result.loss += sample_loss(rows.subspan(b * classes_, classes_), labels[b]);
  return result;
}

const float* SpikingOutput::gradient(const SpikingNetwork& network, std::span<const uint32_t> labels) {
  const size_t row = logits_.size();
  std::vector<float> of_logits(row);
  std::vector<double> sample(classes_);
  for (uint32_t b = 0; b < batch_; ++b) {
    sample_gradient({logits_.data() + size_t{b} * classes_, classes_}, labels[b], sample);
    for (uint32_t c = 0; c < classes_; ++c)
      of_logits[size_t{b} * classes_ + c] = static_cast<float>(sample[c] / batch_);
  }
  if (loss_ == SpikingLoss::spikes || loss_ == SpikingLoss::rate) {
    const SpikeLists lists = network.spikes(network.layers() - 1);
    for (size_t list = 0; list < size_t{steps_} * batch_; ++list)
      for (uint32_t i = 0; i < lists.num[2 * list + 1]; ++i) {
        const size_t place = list * lists.capacity + i;
        upstream_[place] = of_logits[list % batch_ * classes_ + lists.ids[place]];
      }
    return upstream_.data();
  }
  std::ranges::fill(upstream_, 0.0F);
  for (size_t i = 0; i < row; ++i) {
    if (loss_ == SpikingLoss::last) {
      upstream_[(steps_ - 1) * row + i] = of_logits[i];
    } else if (loss_ == SpikingLoss::maximum) {
      upstream_[largest_[i] * row + i] = of_logits[i];
    } else {
      for (uint32_t t = 0; t < steps_; ++t)
        upstream_[t * row + i] = of_logits[i] / static_cast<float>(steps_);
    }
  }
  return upstream_.data();
}

}  // namespace tessera::train
