// Drops and grows blocks of a session's weights, on the host.
#pragma once

#include <tessera/training_settings.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/batch.h"

namespace tessera::train {

/// Sets all parameters of a session, of which none is sparse, to the parameters of one in which some are.
void copy_as_dense(const graph::Session& from, graph::Session& to);

/// Replaces this fraction of the blocks of each of these weights by as many others: those where its gradient,
/// a row-major matrix, is the largest, or random ones if there are no gradients.
void regrow(graph::Session& session, const std::vector<std::string>& weights,
            const std::vector<std::vector<float>>& gradients, double fraction, uint64_t seed, uint64_t step);

class Regrowth {
 public:
  /// Dense gradients, which RigL needs, are computed on `host`.
  Regrowth(const TrainingSettings& settings, Machine host, uint32_t threads);

  /// Replaces this fraction of the blocks of each hidden layer. `batch` is the batch of the next step.
  void apply(graph::Session& session, const Batch& batch, uint64_t step, double fraction);

  /// Gradients of the hidden layers' weights, row-major: means over the batch of a step, multiplied by the
  /// number of micro-batches.
  std::vector<std::vector<float>> dense_gradients(const graph::Session& session, const Batch& batch,
                                                  uint64_t step);

 private:
  const TrainingSettings& settings_;
  Machine host_;
  uint32_t threads_;
  std::unique_ptr<graph::Session> gradients_;  ///< made when first needed
};

}  // namespace tessera::train
