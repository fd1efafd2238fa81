// Training on synthetic images: it learns, and interruptions change nothing.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/training.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <string_view>

#include "io/files.h"
#include "support/error_of.h"
#include "support/number_of.h"
#include "support/rewritten_file.h"

namespace tessera {
namespace {

using test::content_of;
using test::error_of;
using test::says;

constexpr ImageShape kShape = {16, 16, 10};

struct Setting {
  const char* name;
  LayerKind kind = LayerKind::dense;
  DropGrowKind drop_grow = DropGrowKind::none;
  OptimizerKind optimizer = OptimizerKind::momentum;
  double dropout = 0;
  uint32_t micro_batches = 1;
  uint32_t block_size = 8;
  graph::Schedule lr_schedule = {};
};

std::ostream& operator<<(std::ostream& out, const Setting& setting) { return out << setting.name; }

const Setting kSettings[] = {
    {"dense"},
    {"dense_adam_dropout", LayerKind::dense, DropGrowKind::none, OptimizerKind::adam, 0.1},
    {"dense_micro_batches", LayerKind::dense, DropGrowKind::none, OptimizerKind::nesterov, 0, 5},
    {"static_blocks", LayerKind::static_sparse},
    {"dynamic_set", LayerKind::dynamic_sparse, DropGrowKind::set},
    {"dynamic_rigl", LayerKind::dynamic_sparse, DropGrowKind::rigl},
    {"dynamic_rigl_adamw", LayerKind::dynamic_sparse, DropGrowKind::rigl, OptimizerKind::adamw, 0.1, 2},
    {"dynamic_elements", LayerKind::dynamic_sparse, DropGrowKind::rigl, OptimizerKind::momentum, 0, 1, 1},
    {"butterfly", LayerKind::butterfly},
    {"bpbp", LayerKind::bpbp},
    {"pixelfly", LayerKind::pixelfly},
    {"block_butterfly", LayerKind::block_butterfly},
    {"fastfood", LayerKind::fastfood},
    {"circulant", LayerKind::circulant},
    {"low_rank", LayerKind::low_rank},
    {.name = "dense_lamb_linear",
     .optimizer = OptimizerKind::lamb,
     .lr_schedule = {.kind = graph::ScheduleKind::linear, .warmup = 5, .end = 0.1}},
    {.name = "static_blocks_lamb_cosine",
     .kind = LayerKind::static_sparse,
     .optimizer = OptimizerKind::lamb,
     .micro_batches = 2,
     .lr_schedule = {.kind = graph::ScheduleKind::cosine}},
    {.name = "dense_lars_polynomial",
     .optimizer = OptimizerKind::lars,
     .lr_schedule = {.kind = graph::ScheduleKind::polynomial, .warmup = 10, .power = 2}},
    {"monarch_micro_batches", LayerKind::monarch, DropGrowKind::none, OptimizerKind::adam, 0, 5},
    {.name = "dense_step", .lr_schedule = {.kind = graph::ScheduleKind::step, .decay_at = {0.6, 0.9}}},
};

double lr_of(OptimizerKind optimizer) {
  switch (optimizer) {
    case OptimizerKind::adam:
    case OptimizerKind::adamw: return 0.003;
    case OptimizerKind::lamb: return 0.02;
    case OptimizerKind::lars: return 0.5;
    default: return 0.03;
  }
}

TrainingSettings settings_of(const Setting& setting, uint32_t epochs) {
  TrainingSettings s;
  s.layers = {256, 96, 64, 10};
  s.kind = setting.kind;
  s.density = 0.3;
  s.block_size = setting.block_size;
  s.rank = 4;
  s.drop_grow = {setting.drop_grow, 0.3, 7, 0.75};
  s.optimizer = setting.optimizer;
  s.lr = lr_of(setting.optimizer);
  s.weight_decay = setting.optimizer >= OptimizerKind::adamw ? 0.01 : 0;
  if (setting.optimizer == OptimizerKind::lamb) s.excluded = {"*.bias"};
  s.trust_coefficient = 0.05;
  s.lr_schedule = setting.lr_schedule;
  s.dropout = setting.dropout;
  s.micro_batches = setting.micro_batches;
  s.epochs = epochs;
  s.seed = 5;
  return s;
}

const ImageSplit& images() {
  static const ImageSplit set = synthetic_images(2000, 500, 1, kShape);
  return set;
}

/// The same name in the process of a death test.
std::string path_of(const std::string& name) {
  std::string path = testing::TempDir() + "/tessera_trainer_" + name + ".safetensors";
  for (char& c : path)
    if (c == ' ') c = '_';
  return path;
}

/// The worst accepted results of eight epochs; structures with few numbers per feature learn little in them.
struct Learned {
  double accuracy;
  double loss;  ///< relative to the first epoch's
};
Learned least_of(LayerKind kind) {
  switch (kind) {
    case LayerKind::dense: return {0.75, 0.6};
    case LayerKind::fastfood:
    case LayerKind::circulant:
    case LayerKind::low_rank: return {0.3, 0.8};
    default: return {0.55, 0.6};
  }
}

/// With --full all of its tiles.
Machine bow() {
  const Machine whole = Machine::find("bow");
  return test::is_full() ? whole : whole.with("tiles", 64);
}

/// In the short run, settings are in turn trained to the end or interrupted.
bool is_in_turn(const Setting& setting, size_t turn) {
  const auto is_it = [&](const Setting& each) { return std::string_view(each.name) == setting.name; };
  const auto number = static_cast<size_t>(std::ranges::find_if(kSettings, is_it) - std::begin(kSettings));
  return test::is_full() || number % 2 == turn;
}

class TrainerTest : public testing::TestWithParam<Setting> {};

TEST(Trainer, MeasuresTheOperationsOfASampleOfSteps) {
  Trainer trainer(settings_of(kSettings[0], 3), images(), Machine::host(1));
  const TrainingResult result = trainer.train();
  ASSERT_GT(result.steps_run, 32U);
  ASSERT_EQ(result.measured.size(), trainer.graph().nodes().size());
  for (double seconds : result.measured) EXPECT_GE(seconds, 0);
  EXPECT_GT(std::accumulate(result.measured.begin(), result.measured.end(), 0.0), 0);
}

TEST_P(TrainerTest, Learns) {
  // Micro-batches take several times as long: in the short run, only Monarch layers have them.
  if (GetParam().micro_batches > 1 && GetParam().kind != LayerKind::monarch && !test::is_full())
    GTEST_SKIP() << "other micro-batches learn in ./test --full";
  if (!is_in_turn(GetParam(), 0)) GTEST_SKIP() << "this setting learns in ./test --full";
  Trainer trainer(settings_of(GetParam(), 8), images(), Machine::host(2), 1);
  const TrainingResult result = trainer.train();
  ASSERT_TRUE(result.finished);
  ASSERT_EQ(result.epochs.size(), 8u);
  EXPECT_EQ(result.step, 8u * 34);  // 1,700 images in batches of 50
  const Learned least = least_of(GetParam().kind);
  EXPECT_GE(*result.test_accuracy, least.accuracy);
  EXPECT_LT(result.epochs.back().loss, least.loss * result.epochs.front().loss);
  EXPECT_EQ(result.epochs[0].accuracy.has_value(), GetParam().micro_batches == 1);
  for (const EpochResult& epoch : result.epochs)
    EXPECT_LE(epoch.validation_accuracy, result.epochs[result.best_epoch - 1].validation_accuracy);
}

bool same_numbers(const TrainingResult& a, const TrainingResult& b) {
  if (a.epochs.size() != b.epochs.size() || a.test_loss != b.test_loss || a.test_accuracy != b.test_accuracy)
    return false;
  for (size_t i = 0; i < a.epochs.size(); ++i)
    if (a.epochs[i].loss != b.epochs[i].loss || a.epochs[i].accuracy != b.epochs[i].accuracy ||
        a.epochs[i].validation_loss != b.epochs[i].validation_loss)
      return false;
  return true;
}

TEST_P(TrainerTest, ResumesBitIdenticallyOnAnyNumberOfThreads) {
  if (!is_in_turn(GetParam(), 1) && GetParam().micro_batches != 2)
    GTEST_SKIP() << "this setting is broken off in ./test --full";
  const TrainingSettings settings = settings_of(GetParam(), 2);
  const std::string whole = path_of(std::string("whole_") + GetParam().name),
                    broken = path_of(std::string("broken_") + GetParam().name);
  Trainer uninterrupted(settings, images(), Machine::host(2), 1);
  const TrainingResult expected = uninterrupted.train({.checkpoint = whole});
  const auto seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::minstd_rand random(seed);
  std::filesystem::remove(broken);
  TrainingResult result;
  uint32_t threads = 1;
  for (uint64_t stop = 0; !result.finished; threads = 3 - threads) {
    stop += 1 + random() % 30;
    Trainer trainer(settings, images(), Machine::host(2), threads);
    if (std::filesystem::exists(broken)) trainer.resume(broken);
    result = trainer.train(
        {.checkpoint = broken, .progress = [&](const TrainingProgress& now) { return now.step < stop; }});
  }
  EXPECT_TRUE(same_numbers(result, expected));
  EXPECT_TRUE(content_of(broken) == content_of(whole));
  std::filesystem::remove(whole);
  std::filesystem::remove(broken);
}

TEST(Trainer, ValidatesToTheSameBitsOnAnyNumberOfThreads) {
  TrainingSettings settings = settings_of(kSettings[0], 1);
  settings.layers = {256, 512, 256, 10};
  const auto result = [&](uint32_t threads) {
    return Trainer(settings, images(), Machine::host(4), threads).train();
  };
  const TrainingResult expected = result(1);
  for (const uint32_t threads : {2U, 3U, 4U}) {
    if (threads == 2 && !test::is_full()) continue;
    EXPECT_TRUE(same_numbers(result(threads), expected)) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Train, TrainerTest, testing::ValuesIn(kSettings),
                         [](const auto& setting) { return std::string(setting.param.name); });

void train_until_killed(const TrainingSettings& settings, const std::string& path, uint64_t at) {
  Trainer trainer(settings, images(), Machine::host(2), 1);
  if (std::filesystem::exists(path)) trainer.resume(path);
  trainer.train({.checkpoint = path, .progress = [&](const TrainingProgress& now) {
                   if (now.step >= at) raise(SIGKILL);
                   return true;
                 }});
}

TEST(TrainerDeathTest, ContinuesFromTheLastCheckpointWhenKilled) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TrainingSettings settings = settings_of({"", LayerKind::dynamic_sparse, DropGrowKind::rigl}, 3);
  const std::string whole = path_of("alive"), killed = path_of("killed");
  std::filesystem::remove(killed);
  const auto at = 35 + std::random_device()() % 66;  // in epochs 2 and 3; the other process draws its own
  EXPECT_EXIT(train_until_killed(settings, killed, at), testing::KilledBySignal(SIGKILL), "");
  Trainer resumed(settings, images(), Machine::host(2), 1);
  resumed.resume(killed);
  EXPECT_EQ(resumed.step() % 34, 0u);
  EXPECT_GE(resumed.step(), 34u);
  EXPECT_LT(resumed.step(), 3u * 34);
  resumed.train({.checkpoint = killed});
  Trainer uninterrupted(settings, images(), Machine::host(2), 1);
  uninterrupted.train({.checkpoint = whole});
  EXPECT_TRUE(content_of(killed) == content_of(whole));
  std::filesystem::remove(whole);
  std::filesystem::remove(killed);
}

TEST(Trainer, SavesTheLastStateBesideTheBestParameters) {
  TrainingSettings settings = settings_of({""}, 2);
  settings.lr = 1e-8;  // no answer changes, so that the first epoch is the best
  const std::string whole = path_of("last"), saved = path_of("saved");
  Trainer trainer(settings, images(), Machine::host(2), 1);
  const TrainingResult result = trainer.train({.checkpoint = whole});
  ASSERT_EQ(result.best_epoch, 1U);
  EXPECT_EQ(trainer.best_epoch(), 1U);
  EXPECT_EQ(trainer.history().size(), 2U);
  trainer.save(saved);
  EXPECT_TRUE(content_of(saved) == content_of(whole));
  EXPECT_EQ(trainer.test().loss, *result.test_loss);
  EXPECT_EQ(trainer.test().accuracy, *result.test_accuracy);
  EXPECT_EQ(trainer.validate().loss, result.epochs[0].validation_loss);
  Trainer resumed(settings, images(), Machine::host(2), 1);
  for (Trainer* each : {&trainer, &resumed}) {
    each->resume(saved);
    EXPECT_EQ(each->validate().loss, result.epochs[0].validation_loss);
    EXPECT_EQ(each->test().loss, *result.test_loss);
    EXPECT_EQ(each->train().test_loss, result.test_loss);
    each->save(saved);
    EXPECT_TRUE(content_of(saved) == content_of(whole));
  }
  std::filesystem::remove(whole);
  std::filesystem::remove(saved);
}

TEST(Trainer, ContinuesOnlyTheSameTraining) {
  const TrainingSettings settings = settings_of({"", LayerKind::static_sparse}, 2);
  const std::string path = path_of("identity");
  Trainer(settings, images(), Machine::host(2), 1)
      .train({.checkpoint = path, .progress = [](const TrainingProgress& now) { return now.step < 3; }});
  const auto error = [&](const TrainingSettings& other, const ImageSplit& set, uint32_t tiles,
                         bool allow = false) {
    return error_of([&] { Trainer(other, set, Machine::host(tiles)).resume(path, allow); });
  };
  EXPECT_EQ(error(settings, images(), 2), "(no error)");
  TrainingSettings other = settings;
  other.lr = 0.5;
  EXPECT_TRUE(says(error(other, images(), 2), "other settings: its lr is 0.03, now it is 0.5"));
  EXPECT_TRUE(says(error(other, images(), 2, true), "other settings"));
  EXPECT_TRUE(says(error(settings, synthetic_images(2000, 500, 2, kShape), 2), "other data"));
  EXPECT_TRUE(says(error(settings, images(), 3), "its tiles is 2, now it is 3"));
  EXPECT_TRUE(says(error(settings, images(), 3), "--allow-different-bits"));
  EXPECT_EQ(error(settings, images(), 3, true), "(no error)");
  test::rewrite_safetensors(path, [](std::string text) {
    constexpr size_t kDeep = 200'000;
    return test::with_all(std::move(text), "\"activation\":\"relu\"",
                          "\"activation\":" + std::string(kDeep, '[') + std::string(kDeep, ']'));
  });
  EXPECT_TRUE(says(error(settings, images(), 2), "nests deeper than 32 levels"));
  std::ofstream(path) << "something else";
  EXPECT_TRUE(says(error(settings, images(), 2), path));
  std::filesystem::remove(path);
}

TEST(Trainer, ContinuesFromEarlierCheckpoints) {
  const ImageSplit few = synthetic_images(300, 60, 1, {8, 8, 10});
  TrainingSettings settings = settings_of({"", LayerKind::butterfly}, 2);
  settings.layers = {64, 32, 10};
  settings.form = graph::Form::unfused;
  settings.clip_norm = 2;
  const std::string path = path_of("earlier");
  Trainer(settings, few, Machine::host(2), 1)
      .train({.checkpoint = path, .progress = [](const TrainingProgress& now) { return now.step < 3; }});
  test::rewrite_safetensors(path, [](std::string text) {
    for (const auto& [now, before] : {std::pair("\"lr\"", "\"rate\""), std::pair("\"clip_norm\"", "\"clip\""),
                                      std::pair("\"weight_decay\"", "\"decay\""),
                                      std::pair("\"form\":\"unfused\"", "\"factors\":\"published\"")}) {
      text = test::with_all(std::move(text), now, before);
    }
    return text;
  });
  Trainer again(settings, few, Machine::host(2));
  again.resume(path);
  EXPECT_GT(again.step(), 0U);
  settings.lr = 0.5;
  EXPECT_TRUE(says(error_of([&] { Trainer(settings, few, Machine::host(2)).resume(path); }), "its lr is"));
  std::filesystem::remove(path);
}

TEST(Trainer, StopsWhenItDiverges) {
  TrainingSettings settings = settings_of({""}, 3);
  settings.lr = 1e6;
  Trainer trainer(settings, images(), Machine::host(2));
  EXPECT_TRUE(says(error_of([&] { trainer.train(); }), "training diverged: the loss is NaN after step"));
  EXPECT_TRUE(says(error_of([&] { trainer.train(); }), "has failed, and training cannot go on from there"));
  EXPECT_TRUE(says(error_of([&] { trainer.save("never"); }), "has failed"));
}

TEST(Trainer, RefusesImagesThatDoNotFit) {
  TrainingSettings settings = settings_of({""}, 1);
  settings.layers.front() = 128;
  const auto error = [&] {
    return error_of<UsageError>([&] { Trainer(settings, images(), Machine::host(1)); });
  };
  EXPECT_TRUE(says(error(), "the first layer has 128 inputs; the images (synthetic images) have 256 values"));
  settings = settings_of({""}, 1);
  settings.layers.back() = 12;
  EXPECT_TRUE(says(error(), "the last layer has 12 outputs"));
  settings = settings_of({""}, 1);
  settings.batch = 1800;
  EXPECT_TRUE(says(error(), "a batch of 1800 is larger than the 1700 images"));
}

TEST(Trainer, ATiledMachineTakesWhatItsAccountSays) {
  const ImageSplit few = synthetic_images(300, 60, 1, {8, 8, 10});
  for (const Setting& setting :
       {Setting{"dense"}, Setting{"dynamic", LayerKind::dynamic_sparse, DropGrowKind::none}}) {
    TrainingSettings settings = settings_of(setting, 1);
    settings.layers = {64, 32, 10};
    Trainer trainer(settings, few, bow());
    const auto cycles = [&](const graph::RunCost& cost) {
      return static_cast<uint64_t>(std::llround(cost.seconds * bow().clock_hz()));
    };
    const uint64_t step = cycles(trainer.step_cost()), evaluation = cycles(trainer.evaluation_cost());
    EXPECT_GT(step, 1000u);
    const TrainingResult result = trainer.train();
    EXPECT_EQ(result.step_cycles, step);
    EXPECT_EQ(result.cycles, step * trainer.steps_per_epoch());
    EXPECT_EQ(result.evaluation_cycles, evaluation);
  }
}

TEST(Trainer, EstimatesWithoutSessionsWhatTheyCost) {
  const ImageSplit few = synthetic_images(300, 60, 1, {8, 8, 10});
  TrainingSettings settings = settings_of({"", LayerKind::static_sparse}, 2);
  settings.layers = {64, 32, 10};
  for (const Machine& machine : {Machine::host(2), bow()}) {
    const Trainer trainer(settings, few, machine);
    Trainer estimate = Trainer::for_estimates(settings, few, machine);
    for (const auto cost : {&Trainer::step_cost, &Trainer::evaluation_cost}) {
      EXPECT_EQ((estimate.*cost)().cycles, (trainer.*cost)().cycles);
      EXPECT_EQ((estimate.*cost)().tiles, (trainer.*cost)().tiles);
    }
    EXPECT_EQ(estimate.parameters(), trainer.parameters());
    EXPECT_EQ(estimate.graph().nodes().size(), trainer.graph().nodes().size());
    EXPECT_TRUE(says(error_of<UsageError>([&] { estimate.train(); }), "a trainer that only estimates"));
  }
}

TEST(Trainer, AHostAndATiledMachineAgree) {
  const ImageSplit few = synthetic_images(300, 60, 1, {8, 8, 10});
  TrainingSettings settings = settings_of({"", LayerKind::static_sparse}, 2);
  settings.layers = {64, 32, 10};
  const TrainingResult host = Trainer(settings, few, Machine::host(2)).train();
  const TrainingResult tiles = Trainer(settings, few, bow()).train();
  for (size_t i = 0; i < host.epochs.size(); ++i) {
    EXPECT_NEAR(host.epochs[i].loss, tiles.epochs[i].loss, 1e-4);
    EXPECT_NEAR(host.epochs[i].validation_loss, tiles.epochs[i].validation_loss, 1e-4);
  }
}

std::pair<double, double> range_of(const graph::Graph& graph, const std::string& name) {
  for (const graph::ValueInfo& info : graph.values())
    if (info.name == name && info.initial.values != nullptr) {
      const auto [least, most] = std::ranges::minmax_element(*info.initial.values);
      return {*least, *most};
    }
  return {0, 0};
}

TEST(Trainer, ThePapersOutputLayerIsUniform) {
  for (LayerKind kind : {LayerKind::dense, LayerKind::butterfly}) {
    TrainingSettings settings = settings_of({"", kind}, 1);
    settings.layers = {256, 100, 10};
    settings.recipe = Recipe::paper;
    const Trainer trainer = Trainer::for_estimates(settings, images(), Machine::host(1));
    const auto [least, most] = range_of(trainer.graph(), "layer2.weight");
    EXPECT_GT(least, -0.1);
    EXPECT_LT(least, -0.095);
    EXPECT_GT(most, 0.095);
    EXPECT_LT(most, 0.1);
    EXPECT_NE(range_of(trainer.graph(), "layer2.bias").second, 0);
    settings.recipe = Recipe::best;
    const Trainer normal = Trainer::for_estimates(settings, images(), Machine::host(1));
    EXPECT_GT(range_of(normal.graph(), "layer2.weight").second, 0.2);
    EXPECT_EQ(range_of(normal.graph(), "layer2.bias").second, 0);
  }
}

TEST(Trainer, GreyCifar10) {
  const char* data = std::getenv("TESSERA_DATA");
  if (data == nullptr || !std::filesystem::exists(std::filesystem::path(data) / "cifar-10-batches-bin"))
    GTEST_SKIP() << "TESSERA_DATA names no folder with cifar-10-batches-bin/";
  TrainingSettings settings;
  settings.grey = true;
  settings.layers = {1024, 256, 10};
  settings.epochs = 1;
  const TrainingResult result = Trainer(settings, load_images(data, "cifar-10"), Machine::host(2)).train();
  EXPECT_GT(*result.test_accuracy, 0.3);
  EXPECT_LT(*result.test_accuracy, 0.4);
}

}  // namespace
}  // namespace tessera
