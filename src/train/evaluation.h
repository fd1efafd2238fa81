// Loss and accuracy on images, by a second session without dropout or gradients.
#pragma once

#include <tessera/training.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "train/batch.h"

namespace tessera::train {

struct Score {
  double loss = 0;
  double accuracy = 0;
};

/// Rows whose largest logit is that of the label; the first of equal ones counts.
uint64_t count_right(std::span<const float> logits, std::span<const uint32_t> labels);

/// −log softmax(logits)[label]
double cross_entropy_of(std::span<const float> logits, uint32_t label);

class Evaluation {
 public:
  /// Of the network that `trained` has, with its parameters.
  Evaluation(const TrainingSettings& settings, const std::vector<Pattern>& patterns, const Machine& machine,
             const model::Session& trained);

  /// Images that are evaluated together: many on a host, where more are faster; elsewhere those of a training
  /// step, for which there is memory.
  uint32_t rows() const { return rows_; }
  const model::Session& session() const { return session_; }
  /// Of one batch, on a tiled machine the model's.
  double batch_seconds() const { return batch_seconds_; }

  Score evaluate(const Samples& samples, const Standardisation& standardisation,
                 std::span<const uint32_t> images);

 private:
  uint32_t rows_;
  uint32_t classes_;
  model::Session session_;
  Batch batch_;
  base::BufferVector<float> logits_;
  double batch_seconds_ = 0;
};

}  // namespace tessera::train
