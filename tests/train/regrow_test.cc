// Dense gradients, and what a session looks like after blocks were dropped and grown.
#include "train/regrow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "sparse/pattern.h"
#include "train/network.h"

namespace tessera::train {
namespace {

TrainingSettings small_settings(DropGrowKind kind) {
  TrainingSettings s;
  s.layers = {36, 24, 18, 10};  // 18 is no multiple of the block size
  s.kind = LayerKind::dynamic_sparse;
  s.density = 0.5;
  s.block_size = 4;
  s.activation = "gelu";
  s.optimizer = OptimizerKind::sgd;
  s.batch = 20;
  s.drop_grow.kind = kind;
  return s;
}

Batch random_batch(const TrainingSettings& s) {
  Batch batch(s.batch, s.layers.front());
  base::RandomStream(3).fill_normal(batch.images);
  for (uint32_t i = 0; i < s.batch; ++i) batch.labels[i] = i % 10;
  return batch;
}

/// The step whose rate is 1 without momentum, after which weights have changed by the gradient.
void run_step(const TrainingSettings& s, graph::Session& session, Batch batch, uint64_t step) {
  std::vector<uint32_t> dropout_steps;
  for (uint32_t i = 0; i < s.micro_batches; ++i)
    dropout_steps.push_back(static_cast<uint32_t>(step * s.micro_batches + i));
  float lr = 1, loss = 0;
  std::vector<float> logits(size_t{s.batch} * s.layers.back());
  session.run(taken_by(session.graph(), {{kImages, batch.images.data()},
                                         {kLabels, batch.labels.data()},
                                         {kDropoutStep, dropout_steps.data()},
                                         {"lr", &lr},
                                         {kLoss, &loss},
                                         {kLogits, logits.data()}}));
}

TEST(Regrowth, DenseGradientsAreThoseOfTheStep) {
  for (uint32_t micro_batches : {1u, 4u})
    for (double dropout : {0.0, 0.3}) {
      TrainingSettings s = small_settings(DropGrowKind::rigl);
      s.micro_batches = micro_batches;
      s.dropout = dropout;
      graph::Session session(training_graph(s, initial_patterns(s)), Machine::host(2));
      const Batch batch = random_batch(s);
      const auto dense = Regrowth(s, Machine::host(2), 0).dense_gradients(session, batch, 7);
      const graph::Arrays before = session.state();
      run_step(s, session, batch, 7);
      for (size_t layer = 0; layer < 2; ++layer) {
        const Pattern pattern = session.pattern(weight_name(layer));
        const std::vector<float> after = session.get(weight_name(layer));
        const std::vector<float> expected = sparse::values_at(pattern, dense[layer]);
        float largest = 0;
        for (size_t i = 0; i < after.size(); ++i) {
          const float gradient = before.at(weight_name(layer))[i] - after[i];
          largest = std::max(largest, std::abs(gradient));
          ASSERT_NEAR(gradient * static_cast<float>(micro_batches), expected[i], 2e-6F)
              << "layer " << layer << ", element " << i;
        }
        EXPECT_GT(largest, 1e-3F);
      }
    }
}

TEST(Regrowth, KeepsTheNumberOfBlocksAndTheValuesOfThoseThatStay) {
  for (DropGrowKind kind : {DropGrowKind::set, DropGrowKind::rigl}) {
    const TrainingSettings s = small_settings(kind);
    graph::Session session(training_graph(s, initial_patterns(s)), Machine::host(2));
    const std::string name = weight_name(0);
    const SparseMatrix before{session.pattern(name), session.get(name)};
    Regrowth(s, Machine::host(2), 0).apply(session, random_batch(s), 100, 0.25);
    const SparseMatrix after{session.pattern(name), session.get(name)};
    ASSERT_EQ(after.pattern.blocks(), before.pattern.blocks());
    const std::vector<float> a = sparse::to_dense(before), b = sparse::to_dense(after);
    size_t lost = 0, kept = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      if (b[i] != 0) {
        ++kept;
        EXPECT_EQ(a[i], b[i]);
      } else if (a[i] != 0) {
        ++lost;
      }
    }
    const auto moved = static_cast<size_t>(0.25 * static_cast<double>(before.pattern.blocks()));
    EXPECT_EQ(lost, moved * 16);
    EXPECT_EQ(kept + lost, before.pattern.blocks() * 16);
  }
}

}  // namespace
}  // namespace tessera::train
