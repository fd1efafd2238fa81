// Pre-training of BERT: it learns, packed or padded, and continues where it was stopped.
#include <gtest/gtest.h>
#include <tessera/communicator.h>
#include <tessera/pretraining.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "io/files.h"
#include "support/error_of.h"
#include "support/number_of.h"
#include "support/on_ranks.h"
#include "train/bert/trainer_impl.h"

namespace tessera {
namespace {

using test::error_of;
using test::says;

const TextSplit& text() {
  static const TextSplit split =
      split_text(synthetic_text({.vocabulary = 80, .documents = 60, .seed = 3}), 0.2, 1);
  return split;
}

PretrainingSettings small() {
  PretrainingSettings s;
  s.config = {.hidden_size = 32,
              .num_hidden_layers = 1,
              .num_attention_heads = 2,
              .intermediate_size = 64,
              .max_position_embeddings = 64};
  s.phases = {{.length = 48, .packs = 4, .steps = 30}};
  s.lr = 0.01;
  s.evaluate_every = 8;
  s.seed = 5;
  return s;
}

BertTrainer trainer_of(const PretrainingSettings& settings, uint32_t threads = 1) {
  return {settings, text(), Machine::host(2), threads};
}

class BertTrainerTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string trained_at_once(const PretrainingSettings& settings, uint32_t threads = 1) const {
    const std::string file = path("whole");
    std::filesystem::remove(file);
    trainer_of(settings, threads).train({.checkpoint = file});
    return test::content_of(file);
  }
  const test::TemporaryFolder folder_;
};

TEST_F(BertTrainerTest, Learns) {
  PretrainingSettings settings = small();
  settings.config.num_hidden_layers = 2;
  settings.phases[0].steps = 150;
  settings.evaluate_every = 50;
  const PretrainingResult result = trainer_of(settings).train();
  ASSERT_TRUE(result.finished);
  ASSERT_EQ(result.evaluations.size(), 3U);
  EXPECT_NEAR(result.evaluations[0].held_out_loss,
              result.evaluations[0].masked_lm_loss + result.evaluations[0].next_sentence_loss, 1e-12);
  EXPECT_LT(result.evaluations[2].masked_lm_loss, std::log(80.0) - 0.3);
  EXPECT_LT(result.evaluations[2].loss, result.evaluations[0].loss);
  EXPECT_GT(result.tokens_per_second, result.sequences_per_second);
  EXPECT_GT(result.sequences, 150U * 4);
}

/// The held-out set has the same sequences and masks, packed or padded.
TEST_F(BertTrainerTest, PacksHaveTheLossesOfPaddedSequences) {
  for (const graph::PackedAverage average : {graph::PackedAverage::token, graph::PackedAverage::sequence}) {
    PretrainingSettings settings = small();
    settings.average = average;
    settings.lr = 1e-30;  // the parameters stay
    settings.phases[0].steps = 1;
    const auto loss_of = [&](bool packed) {
      settings.packed = packed;
      return trainer_of(settings).train().evaluations.at(0);
    };
    const PretrainingEvaluation packed = loss_of(true), padded = loss_of(false);
    EXPECT_NEAR(packed.masked_lm_loss, padded.masked_lm_loss, 1e-5);
    EXPECT_NEAR(packed.next_sentence_loss, padded.next_sentence_loss, 1e-5);
  }
}

std::vector<PretrainingSettings> variants() {
  std::vector<PretrainingSettings> all(4, small());
  for (PretrainingSettings& each : all) each.phases[0].steps = 20;
  all[1].micro_batches = 2;
  all[1].numbers = "mlperf-v2";
  all[1].lr_schedule = {.kind = graph::ScheduleKind::linear, .warmup = 5};
  all[2].phases = {{.length = 32, .packs = 6, .steps = 14}, {.length = 64, .packs = 3, .steps = 9}};
  all[2].optimizer = OptimizerKind::adamw;
  all[3].packed = false;
  all[3].numbers = "mlperf-v1";
  all[3].rounding = graph::Rounding::nearest;
  all[3].evaluate_every = 0;
  all[3].epochs = 1;
  all[3].phases[0].steps = 0;
  return all;
}

TEST_F(BertTrainerTest, ContinuesBitByBitWhereverItStops) {
  test::EveryNth some(2), whole_again(4);
  for (const PretrainingSettings& settings : variants()) {
    uint32_t threads = 1;
    const std::string whole = trained_at_once(settings);
    if (whole_again.takes()) {
      EXPECT_EQ(trained_at_once(settings, 2), whole);  // on another number of threads
    }
    for (const uint64_t stop : {3U, 8U, 17U}) {
      if (!some.takes()) continue;
      threads = 3 - threads;
      const std::string file = path("stopped");
      std::filesystem::remove(file);
      const PretrainingResult stopped = trainer_of(settings).train(
          {.checkpoint = file, .progress = [&](const PretrainingProgress& now) { return now.step < stop; }});
      EXPECT_FALSE(stopped.finished);
      EXPECT_EQ(stopped.step, stop);
      BertTrainer resumed = trainer_of(settings, threads);
      resumed.resume(file);
      EXPECT_EQ(resumed.step(), stop);
      EXPECT_TRUE(resumed.train({.checkpoint = file}).finished);
      EXPECT_TRUE(test::content_of(file) == whole) << settings.numbers << ", stopped after " << stop;
    }
  }
}

/// Checkpoints of ranks equal those of one process, which can continue from them.
TEST_F(BertTrainerTest, RanksTrainAsOneProcess) {
  uint32_t number = 0;
  for (const char* numbers : {"fp32", "bf16"}) {
    SCOPED_TRACE(numbers);
    PretrainingSettings settings = small();
    settings.phases[0].steps = 12;
    settings.numbers = numbers;
    settings.replicas = 2;
    settings.shard_from = 100;
    const std::string whole = trained_at_once(settings), file = path("ranks");
    for (const uint64_t stop : {5U, 12U}) {
      if (!test::takes_half(number++)) continue;
      std::filesystem::remove(file);
      const auto errors = test::errors_on_ranks(
          connect_threads(2, std::chrono::minutes(10)), [&](const std::shared_ptr<Communicator>& ranks) {
            BertTrainer trainer(settings, text(), Machine::host(2), 1, ranks);
            const auto progress = [&](const PretrainingProgress& now) {
              return ranks->rank() == 0 || now.step < stop;
            };
            EXPECT_EQ(trainer.train({.checkpoint = file, .progress = progress}).step, stop);
          });
      EXPECT_EQ(errors, std::vector<std::string>(2));
      BertTrainer resumed = trainer_of(settings);
      resumed.resume(file);
      EXPECT_TRUE(resumed.train({.checkpoint = file}).finished);
      EXPECT_TRUE(test::content_of(file) == whole) << "stopped after " << stop;
    }
  }
}

/// Each of two ranks has a stage, and so has each of four ranks with two replicas.
TEST_F(BertTrainerTest, RanksTrainStagesAsOneProcess) {
  for (const uint32_t replicas : {1U, 2U}) {
    SCOPED_TRACE(replicas);
    PretrainingSettings settings = small();
    settings.config.num_hidden_layers = 2;
    settings.phases[0].steps = 3;
    settings.numbers = replicas == 1 ? "bf16" : "fp32";
    settings.micro_batches = 2;
    settings.stages = 2;
    settings.pipeline = graph::PipelineKind::one_forward_one_backward;
    settings.replicas = replicas;
    const std::string whole = trained_at_once(settings), file = path("stages");
    std::filesystem::remove(file);
    const auto errors =
        test::errors_on_ranks(connect_threads(2 * replicas, std::chrono::minutes(10)),
                              [&](const std::shared_ptr<Communicator>& ranks) {
                                BertTrainer trainer(settings, text(), Machine::host(2), 1, ranks);
                                EXPECT_TRUE(trainer.train({.checkpoint = file}).finished);
                              });
    EXPECT_EQ(errors, std::vector<std::string>(2 * size_t{replicas}));
    EXPECT_TRUE(test::content_of(file) == whole);
  }
}

TEST_F(BertTrainerTest, RanksOfOtherSettingsAreRefused) {
  const auto errors = test::errors_on_ranks(connect_threads(2, std::chrono::minutes(10)),
                                            [&](const std::shared_ptr<Communicator>& ranks) {
                                              PretrainingSettings settings = small();
                                              settings.replicas = 2;
                                              settings.lr = ranks->rank() == 0 ? 0.01 : 0.02;
                                              BertTrainer(settings, text(), Machine::host(2), 1, ranks);
                                            });
  const std::string error = "rank 1 has another set of settings than rank 0: start all ranks with the same";
  EXPECT_EQ(errors, (std::vector<std::string>{error, error}));
}

TEST_F(BertTrainerTest, RanksOfOtherCheckpointsAreRefused) {
  PretrainingSettings settings = small();
  settings.replicas = 2;
  const std::string file = path("stopped");
  trainer_of(settings).train(
      {.checkpoint = file, .progress = [](const PretrainingProgress& now) { return now.step < 3; }});
  const auto errors = test::errors_on_ranks(
      connect_threads(2, std::chrono::minutes(10)), [&](const std::shared_ptr<Communicator>& ranks) {
        BertTrainer trainer(settings, text(), Machine::host(2), 1, ranks);
        if (ranks->rank() == 0) trainer.resume(file);
        trainer.train();
      });
  for (const std::string& error : errors)
    EXPECT_TRUE(error.ends_with("all ranks have to make the same calls")) << error;
}

TEST_F(BertTrainerTest, RanksResumeEqualCheckpointsOrNone) {
  PretrainingSettings settings = small();
  settings.phases[0].steps = 3;
  settings.replicas = 2;
  for (const uint64_t stop : {1U, 2U}) {
    BertTrainer trainer = trainer_of(settings);
    trainer.train({.checkpoint = path("step" + std::to_string(stop)),
                   .progress = [&](const PretrainingProgress& now) { return now.step < stop; }});
  }
  const auto errors = test::errors_on_ranks(
      connect_threads(2, std::chrono::minutes(10)), [&](const std::shared_ptr<Communicator>& ranks) {
        BertTrainer trainer(settings, text(), Machine::host(2), 1, ranks);
        const bool is_first = ranks->rank() == 0;
        EXPECT_THROW(trainer.resume(path(is_first ? "step1" : "none")), Error);
        EXPECT_EQ(trainer.step(), 0U);
        trainer.resume(path("step2"));
        EXPECT_EQ(trainer.step(), 2U);
        trainer.resume(path(is_first ? "step1" : "step2"));
      });
  for (const std::string& error : errors)
    EXPECT_TRUE(error.starts_with("rank 1 has another checkpoint than rank 0")) << error;
}

/// One of two ranks loses its connection in the second step.
TEST_F(BertTrainerTest, RanksDoNotGoOnAfterAStepThatBrokeOff) {
  PretrainingSettings settings = small();
  settings.replicas = 2;
  const auto errors = test::errors_on_ranks(
      connect_threads(2, std::chrono::minutes(10)), [&](const std::shared_ptr<Communicator>& ranks) {
        const auto breaking = std::make_shared<test::BreakingCommunicator>(ranks);
        BertTrainer trainer(settings, text(), Machine::host(2), 1, breaking);
        const auto progress = [&](const PretrainingProgress&) {
          if (ranks->rank() == 1) breaking->refuse(test::kGradientBytes);
          return true;
        };
        EXPECT_ERROR("the connection is broken", trainer.train({.progress = progress}));
        EXPECT_EQ(trainer.step(), 1U);
        EXPECT_ERROR("step 2 has failed, and training cannot go on from there: resume", trainer.train());
        EXPECT_ERROR("step 2 has failed", trainer.save(path("never")));
      });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

/// The same checkpoints, also if training goes on in the middle of an epoch.
TEST_F(BertTrainerTest, TextInAFileTrainsAsTextInMemory) {
  const TokenText all = synthetic_text({.vocabulary = 80, .documents = 60, .seed = 3});
  write_tokens(path("tokens.safetensors"), all);
  const TextSplit in_file = load_text(path("tokens.safetensors"), 0.2, 1);
  ASSERT_TRUE(in_file.train->tokens.is_in_file());
  const std::string whole = trained_at_once(small()), file = path("stopped");
  trainer_of(small()).train(
      {.checkpoint = file, .progress = [](const PretrainingProgress& now) { return now.step < 11; }});
  BertTrainer resumed(small(), in_file, Machine::host(2));
  resumed.resume(file);
  EXPECT_TRUE(resumed.train({.checkpoint = file}).finished);
  EXPECT_TRUE(test::content_of(file) == whole);
}

TEST_F(BertTrainerTest, AnEvaluationIsReportedAfterItsCheckpoint) {
  const std::string file = path("checkpoint");
  uint32_t evaluations = 0;
  trainer_of(small()).train({.checkpoint = file, .progress = [&](const PretrainingProgress& now) {
                               if (now.evaluated == nullptr) return true;
                               BertTrainer resumed = trainer_of(small());
                               resumed.resume(file);
                               EXPECT_EQ(resumed.step(), now.step);
                               evaluations += 1;
                               return true;
                             }});
  EXPECT_EQ(evaluations, 4U);
}

TEST_F(BertTrainerTest, ACheckpointThatCannotBeWrittenLeavesTheOneBefore) {
  const std::string file = path("checkpoint");
  std::string first;
  std::optional<test::FileLimit> limit;
  const auto let_half_be_written = [&](const PretrainingProgress& now) {
    if (now.step != 8) return true;
    first = test::content_of(file);
    limit.emplace(first.size() / 2);
    return true;
  };
  const std::string error =
      error_of([&] { trainer_of(small()).train({.checkpoint = file, .progress = let_half_be_written}); });
  limit.reset();
  EXPECT_TRUE(says(error, file + ": cannot write"));
  EXPECT_FALSE(first.empty());
  EXPECT_TRUE(test::content_of(file) == first);
  EXPECT_EQ(folder_.count(), 1U);
}

void train_until_killed(const std::string& file, uint64_t at) {
  trainer_of(small()).train({.checkpoint = file, .progress = [&](const PretrainingProgress& now) {
                               if (now.step >= at) raise(SIGKILL);
                               return true;
                             }});
}

TEST(BertTrainerDeathTest, ContinuesFromTheLastCheckpointWhenKilled) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string killed = (std::filesystem::temp_directory_path() / "tessera-bert-killed").string(),
                    whole = killed + "-not";
  std::filesystem::remove(killed);
  const auto at = 9 + std::random_device()() % 20;  // the other process draws its own
  EXPECT_EXIT(train_until_killed(killed, at), testing::KilledBySignal(SIGKILL), "");
  BertTrainer resumed = trainer_of(small());
  resumed.resume(killed);
  EXPECT_EQ(resumed.step() % 8, 0U);
  EXPECT_GE(resumed.step(), 8U);
  resumed.train({.checkpoint = killed});
  trainer_of(small()).train({.checkpoint = whole});
  EXPECT_TRUE(test::content_of(killed) == test::content_of(whole));
  std::filesystem::remove(killed);
  std::filesystem::remove(whole);
}

/// The text with another token for [MASK].
TextSplit with_mask(uint32_t mask) {
  TokenText train = *text().train, held_out = *text().held_out;
  train.special.mask = held_out.special.mask = mask;
  return {std::make_shared<const TokenText>(train), std::make_shared<const TokenText>(held_out)};
}

TEST_F(BertTrainerTest, BothTextsHaveOneVocabulary) {
  const auto error = [](const TextSplit& split) {
    return error_of([&] { BertTrainer(small(), split, Machine::host(2)); });
  };
  EXPECT_TRUE(says(error({text().train, with_mask(11).held_out}), "the special tokens of the texts"));
  TokenText other = *text().held_out;
  other.vocabulary = 81;
  EXPECT_TRUE(says(error({text().train, std::make_shared<const TokenText>(other)}),
                   "the vocabularies of the texts for training and held out differ, 80 and 81"));
  EXPECT_TRUE(says(error({text().train, nullptr}), "a split of text lacks"));
}

TEST_F(BertTrainerTest, PositionsThatCannotBeAreDamage) {
  const std::string file = path("checkpoint");
  trainer_of(small()).train(
      {.checkpoint = file, .progress = [](const PretrainingProgress& now) { return now.step < 11; }});
  const auto error = [&](auto change) {
    train::BertTrainerImpl trainer(small(), text(), Machine::host(2), 1, false);
    trainer.resume(file, false);
    change(trainer.position);
    save_checkpoint(path("changed"), trainer.identity, text_of(trainer.position), trainer.trained());
    return error_of([&] { trainer_of(small()).resume(path("changed")); });
  };
  using Position = train::PretrainingPosition;
  EXPECT_EQ(error([](Position&) {}), "(no error)");
  for (const auto& [change, message] : std::initializer_list<std::pair<void (*)(Position&), const char*>>{
           {[](Position& p) { p.step = 31; }, "step 31 of 30"},
           {[](Position& p) { p.step = 20; }, "step 20 of 30 with 1 evaluations"},
           {[](Position& p) { p.evaluations[0].step = 7; }, "with an evaluation after step 7"},
           {[](Position& p) { p.steps_in_sum = 4; }, "a sum over 4 steps since step 8"},
           {[](Position& p) { p.sequences = 11 * 4 - 1; }, "with 43 sequences"},
           {[](Position& p) { p.sequences = 1'000'000; }, "with 1000000 sequences"}})
    EXPECT_TRUE(says(error(change), message)) << message;
}

PretrainingSettings two_phases() {
  PretrainingSettings s = small();
  s.phases = {{.length = 32, .packs = 6, .steps = 14}, {.length = 64, .packs = 3, .steps = 9}};
  return s;
}

/// Evaluating in between changes nothing.
TEST_F(BertTrainerTest, MayBeEvaluatedAndSavedBetweenSteps) {
  for (const PretrainingSettings& settings : {small(), two_phases()}) {
    const std::string whole = trained_at_once(settings), file = path("stepwise");
    std::filesystem::remove(file);
    BertTrainer first = trainer_of(settings);
    EXPECT_GT(first.evaluate().held_out_loss, 0);
    EXPECT_EQ(first.evaluate().loss, 0);
    double loss = 0;
    const auto stop = [&](const PretrainingProgress& now) {
      loss = now.step_loss;
      return false;
    };
    while (first.step() < 17) {
      first.train({.progress = stop});
      const PretrainingEvaluation now = first.evaluate();
      EXPECT_EQ(now.step, first.step());
      EXPECT_GT(loss, 0);
      if (first.step() % 8 == 1) {
        EXPECT_EQ(now.loss, loss);
      }
      if (first.step() % 8 == 0) {
        EXPECT_EQ(now.held_out_loss, first.history().back().held_out_loss);
      }
    }
    EXPECT_EQ(first.history().size(), 2U);
    first.save(file);
    BertTrainer second = trainer_of(settings);
    second.resume(file);
    EXPECT_EQ(second.evaluate().held_out_loss, first.evaluate().held_out_loss);
    second.train();
    second.save(file);
    EXPECT_TRUE(test::content_of(file) == whole);
  }
  EXPECT_USAGE_ERROR("give its path", trainer_of(small()).save(""));
}

TEST_F(BertTrainerTest, EachPhaseHasItsCosts) {
  const Machine machine = Machine::find("gc200").with("tiles", 64);
  const auto alone = [&](const PretrainingPhase& phase) {
    PretrainingSettings s = two_phases();
    s.phases = {phase};
    return BertTrainer::for_estimates(s, text(), machine);
  };
  const BertTrainer ones[] = {alone(two_phases().phases[0]), alone(two_phases().phases[1])};
  for (const bool only_estimates : {true, false}) {
    const BertTrainer both = only_estimates ? BertTrainer::for_estimates(two_phases(), text(), machine)
                                            : BertTrainer(two_phases(), text(), machine);
    EXPECT_EQ(both.evaluations(0), 1U);
    EXPECT_EQ(both.evaluations(1), 2U);  // after steps 16 and 23
    for (const size_t i : {0U, 1U}) {
      const BertTrainer& one = ones[i];
      EXPECT_EQ(both.step_cost(i).seconds, one.step_cost().seconds);
      EXPECT_EQ(both.step_cost(i).total_bytes, one.step_cost().total_bytes);
      EXPECT_EQ(both.evaluation_cost(i).seconds, one.evaluation_cost().seconds);
      EXPECT_EQ(both.evaluation_batches(i), one.evaluation_batches());
      EXPECT_EQ(both.parameters(), one.parameters());
    }
  }
}

TEST_F(BertTrainerTest, AllPhasesHaveToFitBeforeTheFirstBegins) {
  PretrainingSettings settings = two_phases();
  settings.config.num_hidden_layers = 2;
  settings.phases[1].packs = 100;
  settings.phases[1].steps = 1;
  const Machine machine = Machine::find("gc200").with("tiles", 32);
  BertTrainer trainer(settings, text(), machine);
  ASSERT_EQ(trainer.step_cost(0).overflow, "");
  ASSERT_NE(trainer.step_cost(1).overflow, "");
  EXPECT_ERROR("with packs of 64 tokens: ", trainer.train());
  EXPECT_EQ(trainer.step(), 0U);
}

/// A phase that cannot begin leaves the trainer, and its checkpoint, at the end of the one before.
TEST_F(BertTrainerTest, APhaseThatFailsToBeginMayBeginLater) {
  const std::string whole = trained_at_once(two_phases()), file = path("checkpoint");
  train::BertTrainerImpl trainer(two_phases(), text(), Machine::host(2), 1, false);
  trainer.phases[1].settings.packs = 0;  // no graph can be made of 0 packs
  EXPECT_THROW(trainer.train({.checkpoint = file}), Error);
  EXPECT_EQ(trainer.position.step, 14U);
  EXPECT_EQ(trainer.present->phase, 0U);
  BertTrainer resumed = trainer_of(two_phases());
  resumed.resume(file);
  EXPECT_EQ(resumed.step(), 14U);
  trainer.phases[1].settings.packs = 3;
  EXPECT_TRUE(trainer.train({.checkpoint = file}).finished);
  EXPECT_TRUE(test::content_of(file) == whole);
}

TEST_F(BertTrainerTest, ContinuesOnlyTheSameTraining) {
  const std::string file = path("checkpoint");
  trainer_of(small()).train(
      {.checkpoint = file, .progress = [](const PretrainingProgress& now) { return now.step < 3; }});
  const auto error = [&](auto change, const TextSplit& of = text()) {
    PretrainingSettings settings = small();
    change(settings);
    return error_of([&] { BertTrainer(settings, of, Machine::host(2)).resume(file); });
  };
  const auto same = [](PretrainingSettings&) {};
  EXPECT_EQ(error(same), "(no error)");
  EXPECT_EQ(error([](PretrainingSettings& s) { s.overlap = false; }), "(no error)");
  EXPECT_EQ(error([](PretrainingSettings& s) { s.offload_from = s.offload_weights_from = 0; }), "(no error)");
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.lr = 0.5; }), "its lr is 0.01, now it is 0.5"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.packed = false; }), "its pack is \"optimal\""));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.config.type_vocab_size = 3; }),
                   "its type_vocab_size is 2, now it is 3"));
  const TextSplit other = split_text(synthetic_text({.vocabulary = 80, .documents = 60, .seed = 9}), 0.2, 1);
  EXPECT_TRUE(says(error(same, other), "other data"));
  EXPECT_TRUE(says(error(same, with_mask(11)), "other data"));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 100);
  EXPECT_TRUE(says(error(same), "it may be truncated"));
  std::ofstream(file) << "something else";
  EXPECT_TRUE(says(error(same), file));
}

Machine four_chips() {
  return Machine::find("m2000").with("chips", 4).with("tiles", 16).with("tile_bytes", 8'000'000);
}

/// Trains in `whole` with the settings `near`, and in `file` for a step with `near` and then with `far`.
void expect_continued(const PretrainingSettings& near, const PretrainingSettings& far,
                      const std::string& whole, const std::string& file) {
  const Machine chips = four_chips();
  BertTrainer(near, text(), chips).train({.checkpoint = whole});
  BertTrainer(near, text(), chips).train({.checkpoint = file, .progress = [](const PretrainingProgress& now) {
                                            return now.step < 1;
                                          }});
  BertTrainer resumed(far, text(), chips);
  resumed.resume(file);
  EXPECT_TRUE(resumed.train({.checkpoint = file}).finished);
  EXPECT_TRUE(test::content_of(file) == test::content_of(whole));
}

/// The order matters for sums over four, unlike sums over two.
TEST_F(BertTrainerTest, ContinuesWhereValuesOfFourReplicasLieElsewhere) {
  PretrainingSettings near = small();
  near.phases[0].steps = 2;
  near.replicas = 4;
  near.optimizer = OptimizerKind::adamw;
  PretrainingSettings far = near;
  far.overlap = false;
  far.prefetch = true;
  far.shard_weights_from = far.offload_from = far.offload_weights_from = 30;
  expect_continued(near, far, path("whole"), path("stopped"));
}

/// With all settings on which no result depends, but not with others, a training is continued to the same
/// parameters.
TEST_F(BertTrainerTest, ContinuesWhereValuesLieElsewhere) {
  PretrainingSettings near = small();
  near.config.num_hidden_layers = 2;
  near.phases[0].steps = 3;
  near.stages = near.replicas = near.micro_batches = 2;
  near.optimizer = OptimizerKind::adamw;
  PretrainingSettings far = near;
  far.pipeline = graph::PipelineKind::one_forward_one_backward;
  far.overlap = false;
  far.prefetch = true;
  far.shard_weights_from = far.offload_from = far.offload_weights_from = far.offload_gradients_from =
      far.offload_activations_from = 30;
  far.groups = {{.names = {"*.bias"},
                 .shard = false,
                 .shard_gradients = false,
                 .offload = true,
                 .offload_weights = false}};
  const std::string file = path("stopped");
  expect_continued(near, far, path("whole"), file);
  const auto error = [&](auto change) {
    PretrainingSettings settings = far;
    change(settings);
    return error_of([&] { BertTrainer(settings, text(), four_chips()).resume(file); });
  };
  EXPECT_TRUE(
      says(error([](PretrainingSettings& s) { s.shard_from = 30; }), "a checkpoint of other settings"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.shard_gradients_from = 30; }),
                   "a checkpoint of other settings"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.groups[0].shard = true; }), "its groups is missing"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.recompute = true; }), "its recompute is missing"));
}

TEST_F(BertTrainerTest, SettingsThatDoNotFitAreRefused) {
  const auto error = [&](auto change) {
    PretrainingSettings settings = small();
    change(settings);
    return error_of<UsageError>([&] { trainer_of(settings); });
  };
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.phases[0].length = 128; }),
                   "at most the positions of the model, 64"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.phases[0].packs = 100'000; }), "larger than the"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.micro_batches = 3; }), "cannot be divided into 3"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.numbers = "fp8"; }), "unknown numbers 'fp8'"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.rounding = graph::Rounding::stochastic; }),
                   "numbers fp32 have none"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.roundings.parameters = graph::Rounding::nearest; }),
                   "parameters are FP32 with the numbers fp32, and not rounded"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) {
                     s.numbers = "mlperf-v1";
                     s.roundings.state = graph::Rounding::nearest;
                   }),
                   "moments are FP32 with the numbers mlperf-v1, and not rounded"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) {
                     s.numbers = "mlperf-v1";
                     s.partials = Type::f32;
                     s.roundings.partials = graph::Rounding::nearest;
                   }),
                   "partial sums of products are FP32 with the numbers mlperf-v1, and not rounded"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.sums = Type::f32; }),
                   "only gradients of 16-bit parameters have sums of another type"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.numbers = "mlperf-v1", s.sums = Type::bf16; }),
                   "gradients are f16, and their sums bf16"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.partials = Type::f32; }),
                   "only products of 16 bits have partial sums of another type"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.numbers = "mlperf-v1", s.partials = Type::bf16; }),
                   "products are f16, and their partial sums bf16"));
  EXPECT_TRUE(
      says(error([](PretrainingSettings& s) { s.config.hidden_dropout_prob = 1; }), "dropout probability"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.config.type_vocab_size = 1; }), "token types"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.lr = -1; }), "learning rate"));
  EXPECT_TRUE(says(error([](PretrainingSettings& s) { s.loss_scale = graph::LossScale{.initial = 0}; }),
                   "the loss scale is 0; it must be positive"));
}

TEST_F(BertTrainerTest, LossesThatDivergeAreErrors) {
  PretrainingSettings settings = small();
  settings.optimizer = OptimizerKind::sgd;
  settings.lr = 1e30;
  EXPECT_ERROR("training diverged", trainer_of(settings).train());
}

/// They change nothing but the scale, and training goes on, until the scale has come down to 1.
TEST_F(BertTrainerTest, ADynamicLossScaleLeavesOutStepsWhoseLossIsNotFinite) {
  PretrainingSettings settings = small();
  settings.phases[0].steps = settings.evaluate_every = 10;
  settings.loss_scale = graph::LossScale{.initial = 16, .grow_after = 100};
  const std::string name = "bert.embeddings.LayerNorm.weight", file = path("checkpoint");
  train::BertTrainerImpl trainer(settings, text(), Machine::host(2), 1, false);
  const auto set_scales_of_embeddings = [&](float value) {
    graph::Arrays state = trainer.trained().state();
    for (float& each : state.at(name)) each = value;
    trainer.trained().set_state(state);
  };
  const auto train_until = [&](uint64_t step) {
    trainer.train({.checkpoint = file, .progress = [&](const PretrainingProgress& now) {
                     EXPECT_FALSE(std::isfinite(now.step_loss));
                     return now.step < step;
                   }});
  };
  set_scales_of_embeddings(std::numeric_limits<float>::quiet_NaN());
  const graph::Arrays before = trainer.trained().state();
  train_until(3);
  EXPECT_EQ(trainer.position.step, 3U);
  EXPECT_EQ(trainer.position.steps_in_sum, 0U);
  EXPECT_EQ(trainer.position.loss_sum, 0);
  const graph::Arrays after = trainer.trained().state();
  for (const auto& [of, values] : before)
    if (of != name && !of.starts_with("loss_scale")) {
      EXPECT_EQ(after.at(of), values) << of;
    }
  EXPECT_EQ(after.at("loss_scale").at(0), 2);
  EXPECT_EQ(after.at("loss_scale.skipped_steps").at(0), 3);
  EXPECT_ERROR("training diverged: the loss is NaN after step 4", train_until(5));

  trainer.resume(file, false);
  EXPECT_EQ(trainer.position.step, 3U);
  set_scales_of_embeddings(1);
  const PretrainingResult rest = trainer.train({});
  EXPECT_TRUE(rest.finished);
  EXPECT_GT(rest.evaluations.back().loss, 1);
  EXPECT_LT(rest.evaluations.back().loss, 10);
}

/// As with an impossible label: such a step changes parameters, and the next losses are no better.
TEST_F(BertTrainerTest, ADynamicLossScaleLeavesOutNoStepWhoseGradientsAreFinite) {
  PretrainingSettings settings = small();
  settings.phases[0].steps = settings.evaluate_every = 10;
  settings.loss_scale = graph::LossScale{.initial = 0x1p20, .grow_after = 100};
  train::BertTrainerImpl trainer(settings, text(), Machine::host(2), 1, false);
  graph::Arrays state = trainer.trained().state();
  state.at("cls.seq_relationship.bias").at(1) = -std::numeric_limits<float>::infinity();
  trainer.trained().set_state(state);
  EXPECT_ERROR("training diverged", trainer.train({}));
  EXPECT_LT(trainer.position.step, settings.evaluate_every);
  EXPECT_EQ(trainer.trained().get("loss_scale.skipped_steps").front(), 0);
}

TEST_F(BertTrainerTest, LossScalesReachTheGraph) {
  PretrainingSettings settings = small();
  settings.phases[0].steps = 2;
  settings.numbers = "mlperf-v1";
  const auto losses_with = [&](std::optional<graph::LossScale> scale) {
    settings.loss_scale = scale;
    BertTrainer trainer = trainer_of(settings);
    EXPECT_EQ(trainer.settings_json().find("loss_scale") != std::string::npos, scale.has_value());
    return trainer.train().evaluations.at(0).held_out_loss;
  };
  const double of_numbers = losses_with({});
  EXPECT_EQ(losses_with(graph::LossScale{.initial = 64, .grow_after = 0}), of_numbers);
  EXPECT_NE(losses_with(graph::LossScale{.initial = 1000, .grow_after = 0}), of_numbers);
  EXPECT_NEAR(losses_with(graph::LossScale{.initial = 64, .grow_after = 2000}), of_numbers, 1e-2);
}

TEST_F(BertTrainerTest, ALossThatDivergesNamesTheLastCheckpoint) {
  const std::string file = path("checkpoint");
  trainer_of(small()).train(
      {.checkpoint = file, .progress = [](const PretrainingProgress& now) { return now.step < 3; }});
  train::BertTrainerImpl trainer(small(), text(), Machine::host(2), 1, false);
  trainer.resume(file, false);
  trainer.settings.lr = 1e30;
  trainer.settings.optimizer = OptimizerKind::sgd;
  EXPECT_ERROR(file + " is from before", trainer.train({.checkpoint = path("another")}));
}

/// The last checkpoint, which can be resumed, stays.
TEST_F(BertTrainerTest, AStepThatFailedIsNeitherSavedNorFollowed) {
  const std::string file = path("checkpoint");
  train::BertTrainerImpl trainer(small(), text(), Machine::host(2), 1, false);
  trainer.train(
      {.checkpoint = file, .progress = [](const PretrainingProgress& now) { return now.step < 7; }});
  const std::string content = test::content_of(file);
  trainer.settings.lr = 1e30;
  trainer.settings.optimizer = OptimizerKind::sgd;
  EXPECT_ERROR("training diverged", trainer.train({}));
  const std::string failed = " has failed, and training cannot go on from there: resume a checkpoint";
  EXPECT_ERROR(failed, trainer.save({.checkpoint = file}));
  EXPECT_ERROR(failed, trainer.train({.checkpoint = file}));
  EXPECT_TRUE(test::content_of(file) == content);
  trainer.settings.lr = small().lr;
  trainer.resume(file, false);
  trainer.train(
      {.checkpoint = file, .progress = [](const PretrainingProgress& now) { return now.step < 9; }});
  EXPECT_EQ(trainer.position.step, 9U);
}

TEST_F(BertTrainerTest, TilesTrainAsTheHostDoes) {
  PretrainingSettings settings = small();
  settings.phases[0].steps = 2;
  settings.evaluate_every = 1;
  const PretrainingResult host = trainer_of(settings).train();
  BertTrainer on_tiles(settings, text(), Machine::find("gc200").with("tiles", 32));
  const PretrainingResult tiles = on_tiles.train();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(tiles.evaluations[i].loss, host.evaluations[i].loss, 1e-3);
    EXPECT_NEAR(tiles.evaluations[i].held_out_loss, host.evaluations[i].held_out_loss, 1e-3);
  }
  EXPECT_GT(tiles.cycles, 0U);
}

TEST_F(BertTrainerTest, ParametersAreSavedAndLoaded) {
  PretrainingSettings settings = small();
  settings.phases[0].steps = 2;
  BertTrainer first = trainer_of(settings);
  first.train();
  first.save_parameters(path("model.safetensors"));
  BertTrainer second = trainer_of(settings);
  second.load_parameters(path("model.safetensors"));
  second.save_parameters(path("again.safetensors"));
  EXPECT_TRUE(test::content_of(path("model.safetensors")) == test::content_of(path("again.safetensors")));
  const std::string table = "bert.embeddings.word_embeddings.weight";
  EXPECT_EQ(first.parameter(table).size(), 80U * 32);
  EXPECT_EQ(first.parameter(table), second.parameter(table));
}

TEST_F(BertTrainerTest, EstimatesNeedNoSession) {
  BertTrainer estimate =
      BertTrainer::for_estimates(small(), text(), Machine::find("gc200").with("tiles", 64));
  EXPECT_GT(estimate.step_cost().seconds, 0);
  EXPECT_GT(estimate.evaluation_cost().seconds, 0);
  EXPECT_GT(estimate.parameters(), 10'000U);
  EXPECT_USAGE_ERROR("only estimates", estimate.train());
}

/// Documents of one sentence of 6 tokens each, whose sequences have 15 tokens at most.
TextSplit short_text() {
  constexpr uint64_t kTokens = 6;
  TokenText all = synthetic_text({.vocabulary = 80, .documents = 60, .seed = 3});
  std::vector<uint32_t> tokens = all.tokens.all();
  const uint64_t count = tokens.size() / kTokens;
  tokens.resize(count * kTokens);
  all.tokens = Tokens(std::move(tokens));
  all.sentences = all.documents = {0};
  for (uint64_t i = 1; i <= count; ++i) {
    all.sentences.push_back(i * kTokens);
    all.documents.push_back(i);
  }
  return split_text(all, 0.2, 1);
}

TEST_F(BertTrainerTest, EstimatesOfPacksLeaveOutWhatTilesSkip) {
  const TextSplit sentences = short_text();
  const Machine machine = Machine::find("gc200").with("tiles", 64);
  for (const uint32_t micro_batches : {1U, 2U}) {
    SCOPED_TRACE(micro_batches);
    PretrainingSettings settings = small();
    settings.phases[0].length = 64;
    settings.micro_batches = micro_batches;
    const auto cost = [&](bool estimate_packs) {
      settings.estimate_packs = estimate_packs;
      return BertTrainer::for_estimates(settings, sentences, machine).step_cost();
    };
    const graph::RunCost one = cost(false), several = cost(true);
    const double exchange = one.cycles.at("exchange");
    EXPECT_LT(several.cycles.at("compute"), one.cycles.at("compute"));
    EXPECT_NEAR(several.cycles.at("exchange"), exchange, 1e-6 * exchange);
    EXPECT_EQ(several.total_bytes, one.total_bytes);
  }
}

}  // namespace
}  // namespace tessera
