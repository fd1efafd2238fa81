// Training of residual networks: it learns, and interruptions change nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/communicator.h>
#include <tessera/error.h>
#include <tessera/training.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "data/image_source.h"
#include "data/samples.h"
#include "io/files.h"
#include "support/error_of.h"
#include "support/jpeg_file.h"
#include "support/number_of.h"
#include "support/on_ranks.h"
#include "train/resnet/network.h"

namespace tessera {
namespace {

using test::content_of;
using test::error_of;
using test::says;

/// Small images, of which a few are enough.
const ImageSplit& small_images() {
  static const ImageSplit set = synthetic_images(160, 32, 1, {12, 12, 4});
  return set;
}

ResnetTrainingSettings small_settings() {
  ResnetTrainingSettings s;
  s.depth = 8;
  s.batch = 16;
  s.epochs = 2;
  s.lr = 0.05;
  s.padding = 1;
  s.seed = 3;
  return s;
}

std::string file_named(const std::string& name) {
  return testing::TempDir() + "/tessera_resnet_" + name + ".safetensors";
}

TEST(ResnetTrainer, Learns) {
  ResnetTrainingSettings s = small_settings();
  s.epochs = 8;
  s.augment = false;
  s.label_smoothing = 0.1;
  Trainer trainer(s, small_images(), Machine::host(2), 1);
  EXPECT_EQ(trainer.steps(), 8 * 9U);  // 144 images
  EXPECT_EQ(trainer.evaluations(), 8U);
  const TrainingResult result = trainer.train();
  ASSERT_TRUE(result.finished);
  EXPECT_LT(result.epochs.back().loss, 0.8 * result.epochs.front().loss);
  EXPECT_GT(*result.test_accuracy, 0.4);  // of four classes
}

TEST(ResnetTrainer, LearnsAlikeInSixteenBits) {
  const auto loss_with = [](const char* numbers) {
    ResnetTrainingSettings s = small_settings();
    s.epochs = 1;
    s.numbers = numbers;
    return Trainer(s, small_images(), Machine::host(2), 1).train().epochs.front().loss;
  };
  const double expected = loss_with("fp32");
  for (const char* numbers : {"bf16", "mlperf-v1", "mlperf-v2"})
    EXPECT_NEAR(loss_with(numbers), expected, 0.1) << numbers;
}

/// Like a configuration of MLPerf's submissions, for a smaller network.
TEST(ResnetTrainer, TrainsOnChipsAsOnTheHost) {
  if (!test::is_full()) GTEST_SKIP() << "of ./test --full";
  const ImageSplit images = synthetic_images(32, 8, 1, {8, 8, 4});
  ResnetTrainingSettings s = small_settings();
  s.optimizer = OptimizerKind::lars;
  s.label_smoothing = 0.1;
  s.batch = 8;
  s.micro_batches = 2;
  s.replicas = 2;
  s.norm_replicas = 2;
  s.recompute = true;
  s.steps = 3;
  const Machine chips =
      Machine::find("m2000").with("chips", 2).with("tiles", 16).with("tile_bytes", 80'000'000);
  for (const auto& [numbers, tolerance] : {std::pair("fp32", 1e-3), std::pair("mlperf-v1", 0.05)}) {
    s.numbers = numbers;
    const auto losses_on = [&](const Machine& machine) {
      std::vector<double> losses;
      Trainer(s, images, machine, 1).train({.progress = [&](const TrainingProgress& now) {
        losses.push_back(now.step_loss);
        return true;
      }});
      return losses;
    };
    const std::vector<double> expected = losses_on(Machine::host(2)), found = losses_on(chips);
    ASSERT_EQ(found.size(), 3U);
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], tolerance) << numbers << ", step " << i + 1;
  }
}

/// Gradients that FP16 holds only with a loss scale.
TEST(ResnetTrainer, BlocksGrowBySmallGradientsToo) {
  ResnetTrainingSettings s = small_settings();
  s.density = 0.5;
  s.block_size = 4;
  const train::ImageFormat format{12, 12, 1, 4, {{128}, {64}}};
  const train::Patterns patterns = train::initial_patterns(s, format);
  graph::Arrays arrays;
  for (uint32_t i = 0; i < 16; ++i) arrays["labels"].push_back(static_cast<float>(i % 4));
  std::minstd_rand random(3);
  for (uint32_t i = 0; i < 16 * 12 * 12; ++i)
    arrays["images"].push_back(static_cast<float>(random() / 16 % 256));
  const std::string weight = "layer3.0.conv2.weight";
  const auto gradient_with = [&](const char* numbers) {
    s.numbers = numbers;
    graph::Session session(train::resnet_gradient_graph(s, format, patterns), Machine::host(1));
    std::vector<float> last = session.get("fc.weight");
    for (float& each : last) each *= 0x1p-15F;
    session.set("fc.weight", last);
    return session.run(arrays).at(train::gradient_name(weight));
  };
  const std::vector<float> expected = gradient_with("fp32"), found = gradient_with("mlperf-v1");
  ASSERT_EQ(found.size(), expected.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    difference += std::pow(found[i] - expected[i], 2);
    size += std::pow(expected[i], 2);
  }
  EXPECT_GT(size, 0);
  EXPECT_LT(difference, 0.25 * size);
}

TEST(ResnetTrainer, CountsWhatIsLearned) {
  const Trainer trainer = Trainer::for_estimates(small_settings(), small_images(), Machine::host(1));
  // The first convolution has one channel instead of three, and there are four classes.
  EXPECT_EQ(trainer.parameters(), 75'290U - 2 * 144 - 6 * 65);
  EXPECT_GT(trainer.step_cost().seconds, 0);
  EXPECT_EQ(trainer.evaluation_batch(), 16U);
}

TEST(ResnetTrainer, TrainsWithinAMemoryBudget) {
  ResnetTrainingSettings s = small_settings();
  s.steps = 2;
  s.memory_budget = graph::kMachineMemory;
  const graph::RunCost cost = Trainer::for_estimates(s, small_images(), Machine::host(1)).step_cost();
  EXPECT_EQ(cost.overflow, "");
  s.memory_budget = cost.total_bytes;
  Trainer trainer(s, small_images(), Machine::host(1), 1);
  EXPECT_EQ(trainer.step_cost().total_bytes, cost.total_bytes);
  EXPECT_TRUE(trainer.train().finished);
  s.memory_budget = 1000;
  EXPECT_USAGE_ERROR("more than its memory budget of 1000 bytes",
                     Trainer::for_estimates(s, small_images(), Machine::host(1)));
}

TEST(ResnetTrainer, EstimatesImagesByTheirOutline) {
  const ImageOutline outline{"images", 160, 32, {12, 12, 4}};
  const Trainer known = Trainer::for_estimates(small_settings(), small_images(), Machine::host(1)),
                outlined = Trainer::for_estimates(small_settings(), outline, Machine::host(1));
  EXPECT_EQ(outlined.step_cost().seconds, known.step_cost().seconds);
  EXPECT_EQ(outlined.parameters(), known.parameters());
  EXPECT_EQ(outlined.steps(), known.steps());
}

struct ResnetCase {
  const char* name;
  OptimizerKind optimizer = OptimizerKind::momentum;
  double density = 1;
  DropGrowKind drop_grow = DropGrowKind::none;
  uint32_t micro_batches = 1, replicas = 1, norm_replicas = 1;
  bool recompute = false;
  uint64_t steps = 0;
  bool is_full = false;
  const char* numbers = "fp32";
};

std::ostream& operator<<(std::ostream& out, const ResnetCase& each) { return out << each.name; }

const ResnetCase kResnetCases[] = {
    {"momentum"},
    {.name = "lars_micro_batches", .optimizer = OptimizerKind::lars, .micro_batches = 2, .steps = 13},
    {.name = "dynamic", .density = 0.5, .drop_grow = DropGrowKind::rigl},
    {.name = "random", .density = 0.5, .drop_grow = DropGrowKind::set},
    {.name = "replicas", .micro_batches = 2, .replicas = 2, .norm_replicas = 2, .recompute = true},
    {.name = "dynamic_replicas",
     .density = 0.5,
     .drop_grow = DropGrowKind::rigl,
     .micro_batches = 2,
     .replicas = 2,
     .norm_replicas = 0,
     .is_full = true},
    {.name = "bf16", .steps = 11, .numbers = "bf16"},
    // As configurations of MLPerf's submissions.
    {.name = "mlperf",
     .optimizer = OptimizerKind::lars,
     .micro_batches = 2,
     .replicas = 2,
     .norm_replicas = 2,
     .recompute = true,
     .steps = 11,
     .numbers = "mlperf-v1"},
    {.name = "mlperf_dynamic",
     .density = 0.5,
     .drop_grow = DropGrowKind::rigl,
     .steps = 11,
     .numbers = "mlperf-v1"}};

class ResnetTrainings : public testing::TestWithParam<ResnetCase> {};

TEST_P(ResnetTrainings, ResumeBitForBit) {
  if (GetParam().is_full && !test::is_full()) GTEST_SKIP() << "of ./test --full";
  ResnetTrainingSettings s = small_settings();
  s.optimizer = GetParam().optimizer;
  s.density = GetParam().density;
  s.block_size = 4;
  s.drop_grow = {GetParam().drop_grow, 0.3, 5, 0.75};
  s.micro_batches = GetParam().micro_batches;
  s.replicas = GetParam().replicas;
  s.norm_replicas = GetParam().norm_replicas;
  s.recompute = GetParam().recompute;
  s.steps = GetParam().steps;
  s.numbers = GetParam().numbers;
  const std::string whole = file_named(std::string("whole_") + GetParam().name),
                    broken = file_named(std::string("broken_") + GetParam().name);
  std::filesystem::remove(broken);
  Trainer uninterrupted(s, small_images(), Machine::host(2), 2);
  const TrainingResult expected = uninterrupted.train({.checkpoint = whole});
  ASSERT_TRUE(expected.finished);
  EXPECT_EQ(expected.epochs.size(), 2U);
  TrainingResult result;
  for (uint64_t stop = 6; !result.finished; stop += 7) {
    Trainer trainer(s, small_images(), Machine::host(2), 1);
    if (std::filesystem::exists(broken)) trainer.resume(broken);
    result = trainer.train(
        {.checkpoint = broken, .progress = [&](const TrainingProgress& now) { return now.step < stop; }});
  }
  EXPECT_EQ(result.test_loss, expected.test_loss);
  EXPECT_TRUE(content_of(broken) == content_of(whole));
  ResnetTrainingSettings other = s;
  other.label_smoothing = 0.2;
  Trainer trainer(other, small_images(), Machine::host(2), 1);
  EXPECT_TRUE(says(error_of([&] { trainer.resume(whole); }), "its label_smoothing is 0.0, now it is 0.2"));
  std::filesystem::remove(whole);
  std::filesystem::remove(broken);
}

INSTANTIATE_TEST_SUITE_P(All, ResnetTrainings, testing::ValuesIn(kResnetCases),
                         [](const auto& of) { return std::string(of.param.name); });

/// Calls work(communicator) on two ranks, which both have to succeed.
template <class Work>
void on_two_ranks(const Work& work) {
  EXPECT_EQ(test::errors_on_ranks(connect_threads(2, std::chrono::minutes(10)), work),
            std::vector<std::string>(2));
}

/// Expects two ranks to train as one process does, also if each continues from a checkpoint of the other.
void expect_ranks_train_as_one(ResnetTrainingSettings s, const std::string& name) {
  const ImageSplit images = synthetic_images(48, 16, 1, {12, 12, 4});
  s.replicas = 2;
  s.norm_replicas = 2;
  s.steps = 5;  // two of them are an epoch
  const std::string whole = file_named(name + "_one"), stopped = file_named(name + "_stopped"),
                    divided = file_named(name + "_ranks");
  Trainer one(s, images, Machine::host(2), 1);
  const TrainingResult expected = one.train({.checkpoint = whole});
  on_two_ranks([&](const std::shared_ptr<Communicator>& ranks) {
    Trainer trainer(s, images, Machine::host(2), 1, ranks);
    const auto progress = [&](const TrainingProgress& now) { return ranks->rank() == 0 || now.step < 3; };
    EXPECT_EQ(trainer.train({.checkpoint = stopped, .progress = progress}).step, 3U);
  });
  on_two_ranks([&](const std::shared_ptr<Communicator>& ranks) {
    Trainer trainer(s, images, Machine::host(2), 1, ranks);
    trainer.resume(stopped);
    const TrainingResult result = trainer.train({.checkpoint = divided});
    ASSERT_EQ(result.epochs.size(), expected.epochs.size());
    for (size_t i = 0; i < result.epochs.size(); ++i) {
      EXPECT_EQ(result.epochs[i].loss, expected.epochs[i].loss);
      EXPECT_EQ(result.epochs[i].accuracy, expected.epochs[i].accuracy);
      EXPECT_EQ(result.epochs[i].validation_loss, expected.epochs[i].validation_loss);
    }
    EXPECT_EQ(result.test_loss, expected.test_loss);
    trainer.save_parameters(divided + ".parameters");
  });
  EXPECT_TRUE(content_of(divided) == content_of(whole));
  one.save_parameters(whole + ".parameters");
  EXPECT_TRUE(content_of(divided + ".parameters") == content_of(whole + ".parameters"));
  Trainer resumed(s, images, Machine::host(2), 1);
  resumed.resume(stopped);
  EXPECT_TRUE(resumed.train({.checkpoint = stopped}).finished);
  EXPECT_TRUE(content_of(stopped) == content_of(whole));
  for (const std::string& file : {whole, stopped, divided, whole + ".parameters", divided + ".parameters"})
    std::filesystem::remove(file);
}

TEST(ResnetTrainer, RanksTrainAsOneProcess) {
  ResnetTrainingSettings s = small_settings();
  s.shard_from = 1000;
  expect_ranks_train_as_one(s, "dense");
}

TEST(ResnetTrainer, RanksComputeBlocksAgainAsOneProcess) {
  ResnetTrainingSettings s = small_settings();
  s.numbers = "bf16";
  s.micro_batches = 2;
  s.recompute = true;
  expect_ranks_train_as_one(s, "recomputed");
}

/// Where blocks grow follows from the gradients of all images, of which a rank trains with half.
TEST(ResnetTrainer, RanksChangePatternsAsOneProcess) {
  ResnetTrainingSettings s = small_settings();
  s.density = 0.5;
  s.block_size = 4;
  s.drop_grow = {DropGrowKind::rigl, 0.3, 2, 1};
  expect_ranks_train_as_one(s, "patterns");
}

TEST(ResnetTrainer, RanksThatDifferAreRefused) {
  const auto errors_with = [](auto change) {
    return test::errors_on_ranks(connect_threads(2, std::chrono::minutes(10)),
                                 [&](const std::shared_ptr<Communicator>& ranks) {
                                   ResnetTrainingSettings s = small_settings();
                                   s.replicas = 2;
                                   ImageSplit images = small_images();
                                   if (ranks->rank() == 1) change(s, images);
                                   Trainer(s, images, Machine::host(1), 1, ranks);
                                 });
  };
  const auto expect = [](const std::vector<std::string>& errors, const std::string& text) {
    for (const std::string& error : errors) EXPECT_TRUE(says(error, text));
  };
  expect(errors_with([](ResnetTrainingSettings& s, ImageSplit&) { s.lr = 0.06; }),
         "rank 1 has another set of settings than rank 0");
  expect(errors_with([](ResnetTrainingSettings&, ImageSplit& images) { images.name = "others"; }),
         "rank 1 has another set of samples than rank 0");
  expect(errors_with([](ResnetTrainingSettings& s, ImageSplit&) { s.depth = 9; }),
         "unknown depth 9 of a ResNet");
}

TEST(ResnetTrainer, SavesAndEvaluatesBetweenSteps) {
  ResnetTrainingSettings s = small_settings();
  s.density = 0.5;
  s.block_size = 4;
  s.drop_grow = {DropGrowKind::set, 0.3, 2, 0.75};
  const std::string stopped = file_named("stopped"), saved = file_named("beside");
  Trainer trainer(s, small_images(), Machine::host(2), 1);
  double sum = 0;
  trainer.train({.checkpoint = stopped, .progress = [&](const TrainingProgress& now) {
                   sum += now.step_loss;
                   EXPECT_NEAR(now.loss, sum / static_cast<double>(now.step), 1e-6);
                   return now.step < 5;
                 }});
  EXPECT_EQ(trainer.step(), 5U);
  EXPECT_TRUE(trainer.history().empty());
  const SampleScore score = trainer.test();
  EXPECT_GT(score.loss, 0);
  EXPECT_EQ(score.accuracy * 32, std::round(score.accuracy * 32));
  EXPECT_GT(trainer.validate().loss, 0);
  trainer.save(saved);
  EXPECT_TRUE(content_of(saved) == content_of(stopped));
  const std::vector<NamedParameter> parameters = trainer.named_parameters();
  const auto found =
      std::ranges::find(parameters, std::string("layer2.0.conv1.weight"), &NamedParameter::name);
  ASSERT_TRUE(found != parameters.end());
  EXPECT_EQ(found->shape, (graph::Shape{32, 16, 3, 3}));
  EXPECT_GE(std::ranges::count(found->values, 0.0F), 32 * 16 * 9 / 2);
  std::filesystem::remove(stopped);
  std::filesystem::remove(saved);
}

/// Divided among replicas or beside the chips; checkpoints do not depend on that.
TEST(ResnetTrainer, DividesTheStateOfOptimizers) {
  ResnetTrainingSettings s = small_settings();
  s.replicas = 2;
  s.steps = 3;
  Trainer whole(s, small_images(), Machine::host(1), 1);
  const std::string path = file_named("divided");
  const TrainingResult expected = whole.train({.checkpoint = path});
  s.shard_from = 1000;
  Trainer divided(s, small_images(), Machine::host(1), 1);
  EXPECT_NEAR(*divided.train().test_loss, *expected.test_loss, 1e-4);
  s.shard_from.reset();
  s.offload_from = 1000;
  Trainer(s, small_images(), Machine::host(1), 1).resume(path);
  std::filesystem::remove(path);
}

TEST(ResnetTrainer, SavesWhatTorchvisionReads) {
  ResnetTrainingSettings s = small_settings();
  s.steps = 1;
  Trainer trainer(s, small_images(), Machine::host(1), 1);
  trainer.train();
  const std::string path = file_named("saved");
  trainer.save_parameters(path);
  const std::string header = content_of(path);
  for (const char* text : {R"("conv1.weight")", R"("layer3.0.bn2.running_var")", R"("shape":[16,1,3,3])",
                           R"("shape":[32,32,3,3])"})
    EXPECT_NE(header.find(text), std::string::npos) << text;
  std::filesystem::remove(path);
}

/// One of two ranks loses its connection in the second step.
TEST(ResnetTrainer, RanksDoNotGoOnAfterAStepThatBrokeOff) {
  ResnetTrainingSettings s = small_settings();
  s.replicas = 2;
  s.steps = 5;
  const ImageSplit images = synthetic_images(48, 16, 1, {12, 12, 4});
  on_two_ranks([&](const std::shared_ptr<Communicator>& ranks) {
    const auto breaking = std::make_shared<test::BreakingCommunicator>(ranks);
    Trainer trainer(s, images, Machine::host(2), 1, breaking);
    const auto progress = [&](const TrainingProgress&) {
      if (ranks->rank() == 1) breaking->refuse(test::kGradientBytes);
      return true;
    };
    EXPECT_TRUE(says(error_of([&] { trainer.train({.progress = progress}); }), "the connection is broken"));
    EXPECT_EQ(trainer.step(), 1U);
    EXPECT_TRUE(says(error_of([&] { trainer.train(); }), "step 2, or the evaluation after it, has failed"));
    EXPECT_TRUE(says(error_of([&] { trainer.save("never"); }), "step 2, or"));
  });
}

#ifdef TESSERA_JPEG

TEST(ResnetTrainer, LearnsFromAFolderOfFiles) {
  const test::TemporaryFolder folder;
  for (const char* name : {"blue", "red"}) {
    std::filesystem::create_directory(folder.path() / name);
    for (uint8_t i = 0; i < 40; ++i) {
      const auto light = static_cast<uint8_t>(100 + 3 * i), dark = static_cast<uint8_t>(2 * i);
      const bool is_red = std::string(name) == "red";
      folder.write(fmt::format("{}/{}.jpg", name, i),
                   test::jpeg_of(20, 24, is_red ? light : dark, 60, is_red ? dark : light));
    }
  }
  ResnetTrainingSettings s = small_settings();
  s.size = 12;
  s.epochs = 8;
  const ImageFolder images = find_image_folder(folder.path().string());
  Trainer trainer(s, images, Machine::host(1), 2), again(s, images, Machine::host(1), 1);
  const TrainingResult result = trainer.train(), other = again.train();
  EXPECT_GT(*result.test_accuracy, 0.6);
  EXPECT_EQ(result.test_loss, other.test_loss);
}

/// 36 images of two classes for training, and four for testing.
void write_blue_and_red(const test::TemporaryFolder& folder) {
  for (const char* name : {"blue", "red"}) {
    std::filesystem::create_directory(folder.path() / name);
    for (uint8_t i = 0; i < 20; ++i)
      folder.write(fmt::format("{}/{}.jpg", name, i), test::jpeg_of(16, 16, 10, i, 200));
  }
}

/// Each rank reads the files of its own images.
TEST(ResnetTrainer, RanksStopAtAFileThatOneOfThemLacksAndMayGoOn) {
  const test::TemporaryFolder folder;
  write_blue_and_red(folder);
  ResnetTrainingSettings s = small_settings();
  s.size = 12;
  s.replicas = 2;
  s.steps = 2;
  const ImageFolder images = find_image_folder(folder.path().string());
  const TrainingResult expected = Trainer(s, images, Machine::host(1), 1).train();
  const train::Division division = train::divide(images.train.count(), s.validation, s.seed);
  ASSERT_EQ(division.training.size(), 2 * s.batch);  // so each is trained with
  const std::string missing = images.train.paths.at(division.training.front()),
                    elsewhere = missing + ".elsewhere";
  on_two_ranks([&](const std::shared_ptr<Communicator>& ranks) {
    Trainer trainer(s, images, Machine::host(1), 1, ranks);
    if (ranks->rank() == 0)
      std::filesystem::rename(missing, elsewhere);  // the other waits for this one in train()
    EXPECT_TRUE(says(error_of([&] { trainer.train(); }), missing));
    if (ranks->rank() == 0) std::filesystem::rename(elsewhere, missing);
    EXPECT_EQ(trainer.train().test_loss, expected.test_loss);
  });
}

TEST(ResnetTrainer, DoesNotGoOnWithoutAnEpochThatCouldNotBeEvaluated) {
  const test::TemporaryFolder folder;
  write_blue_and_red(folder);
  ResnetTrainingSettings s = small_settings();
  s.size = 12;
  const ImageFolder images = find_image_folder(folder.path().string());
  const train::Division division = train::divide(images.train.count(), s.validation, s.seed);
  const std::string held_out = images.train.paths.at(division.validation.front());
  Trainer trainer(s, images, Machine::host(1), 1);
  std::filesystem::rename(held_out, held_out + ".elsewhere");
  EXPECT_TRUE(says(error_of([&] { trainer.train(); }), held_out));
  EXPECT_TRUE(says(error_of([&] { Trainer(s, images, Machine::host(1), 1); }), held_out + ": No such file"));
  std::filesystem::rename(held_out + ".elsewhere", held_out);
  EXPECT_EQ(trainer.step(), trainer.steps_per_epoch());
  EXPECT_TRUE(says(error_of([&] { trainer.train(); }), "cannot go on from there: resume a checkpoint"));
  EXPECT_TRUE(says(error_of([&] { trainer.save("never"); }), "has failed"));
}

#endif

TEST(ResnetTrainer, RefusesSettingsOutOfRange) {
  const auto error = [](auto change) {
    ResnetTrainingSettings s = small_settings();
    change(s);
    return error_of<UsageError>([&] { Trainer::for_estimates(s, small_images(), Machine::host(1)); });
  };
  EXPECT_TRUE(says(error([](auto& s) { s.depth = 19; }), "unknown depth 19 of a ResNet"));
  EXPECT_TRUE(says(error([](auto& s) { s.label_smoothing = 1; }), "the label smoothing is 1"));
  EXPECT_TRUE(says(error([](auto& s) { s.density = 0; }), "the density is 0"));
  EXPECT_TRUE(says(error([](auto& s) { s.block_size = 3; }), "the block size is 3"));
  EXPECT_TRUE(says(error([](auto& s) { s.replicas = 5; }), "cannot be divided among 5 replicas"));
  EXPECT_TRUE(says(error([](auto& s) { s.norm_replicas = 2; }),
                   "statistics of 2 replicas together, which is no divisor of the number of replicas, 1;"));
  EXPECT_TRUE(
      says(error([](auto& s) { s.shard_from = 1; }), "divided among replicas, but there is only one"));
  EXPECT_TRUE(says(error([](auto& s) {
                     s.recompute = true;
                     s.density = 0.5;
                   }),
                   "blocks whose patterns change cannot be computed again"));
  EXPECT_TRUE(says(error([](auto& s) {
                     s.memory_budget = graph::kMachineMemory;
                     s.density = 0.5;
                   }),
                   "blocks whose patterns change cannot be computed again"));
  EXPECT_TRUE(says(error([](auto& s) {
                     s.recompute = true;
                     s.memory_budget = graph::kMachineMemory;
                   }),
                   "leave out one of them"));
  EXPECT_TRUE(says(error([](auto& s) { s.batch = 145; }), "a batch of 145 is larger than the 144 images"));
  EXPECT_TRUE(says(error([](auto& s) { s.density = 1e-4; }), "without a block of 16 × 16"));
  EXPECT_TRUE(says(error([](auto& s) { s.numbers = "fp8"; }), "fp8"));
}

}  // namespace
}  // namespace tessera
