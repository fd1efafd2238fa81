// `tessera train resnet`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli/tool.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::content_of;
using test::expect_refused;
using test::json_of;
using test::Outcome;
using test::results_of;
using test::says;

class TrainResnetCliTest : public test::ToolTest {
 protected:
  static constexpr const char* kSmall =
      "train resnet --depth 8 --images 80 --size 12 --batch 16 --seed 3 --tiles 2 --threads 1";

  json train(const std::string& options) const {
    return results_of(run(fmt::format("{} --json {}", kSmall, options)))[0];
  }
};

TEST_F(TrainResnetCliTest, JsonHasWhatWasTrained) {
  const Outcome o = run(fmt::format("{} --epochs 2 --label-smoothing 0.1 --json", kSmall));
  EXPECT_EQ(json_of(o)["command"], "train resnet");
  const json r = results_of(o)[0];
  EXPECT_EQ(r["settings"]["depth"], 8);
  EXPECT_EQ(r["settings"]["shortcut"], "padding");
  EXPECT_EQ(r["settings"]["label_smoothing"], 0.1);
  EXPECT_EQ(r["parameters"], 75290);
  EXPECT_TRUE(r["finished"]);
  EXPECT_EQ(r["steps"], 8);  // 72 images in batches of 16
  EXPECT_EQ(r["epochs"].size(), 2U);
  EXPECT_TRUE(r["test_accuracy"].is_number());
  EXPECT_FALSE(r["step"]["operations"].empty());
}

TEST_F(TrainResnetCliTest, ResumesFromACheckpoint) {
  const std::string whole = path("whole.safetensors");
  const json expected = train(fmt::format("--steps 6 --checkpoint {}", whole));
  EXPECT_EQ(expected["epochs"].size(), 2U);
  expect_refused(run(fmt::format("{} --steps 6 --checkpoint {}", kSmall, whole)), "add --resume to continue");
  const json again = train(fmt::format("--steps 6 --checkpoint {} --resume", whole));
  EXPECT_EQ(again["resumed_from_step"], 6);
  EXPECT_EQ(again["test_loss"], expected["test_loss"]);
}

TEST_F(TrainResnetCliTest, TrainsSparseConvolutionsAndSaves) {
  const std::string saved = path("net.safetensors"), page = path("page.html");
  const json r = train(fmt::format(
      "--steps 3 --density 1/2 --block 4 --schedule set --every 2 --save {} --report {}", saved, page));
  EXPECT_EQ(r["settings"]["schedule"], "set");
  EXPECT_LT(r["parameters"], 45000);
  EXPECT_TRUE(says(content_of(saved), "\"shape\":[16,3,3,3]"));
  EXPECT_TRUE(says(content_of(page), "ResNet-8, dynamic of density 0.5, block size 4, momentum"));
}

TEST_F(TrainResnetCliTest, Estimates) {
  const json r = train("--estimate --optimizer lars");
  EXPECT_TRUE(r["estimate"]);
  EXPECT_GT(r["predicted_seconds"], 0);
  EXPECT_NEAR(r["images_per_second"].get<double>() * r["step"]["seconds"].get<double>(), 16, 1e-9);
}

/// A submission's configuration, of a smaller network on smaller chips.
TEST_F(TrainResnetCliTest, EstimatesReplicasOfAFileOfOptions) {
  const std::string chips =
      file("chips.toml", "like = \"m2000\"\nchips = 2\ntiles = 16\ntile_bytes = 80000000\n");
  const std::string small =
      "--depth 8 --size 8 --images 64 --classes 300 --batch 8 --micro-batches 2 --replicas 2 --warmup 1 "
      "--steps 5";
  const Outcome o = run(fmt::format(
      "train resnet --config mlperf-v1.1-resnet50-pod16 {} --machine {} --shard --estimate --json", small,
      chips));
  const json r = results_of(o)[0], settings = r["settings"];
  EXPECT_EQ(settings["optimizer"], "lars");
  EXPECT_EQ(settings["label_smoothing"], 0.1);
  EXPECT_EQ(settings["norm_replicas"], 2);
  EXPECT_EQ(settings["recompute"], true);
  EXPECT_EQ(settings["shard_from"], 8192);
  EXPECT_EQ(settings["batch"], 8);
  EXPECT_EQ(settings["steps"], 5);  // instead of the epochs of the file
  EXPECT_GT(r["images_per_second"], 0);
  expect_refused(run("train resnet --config mlperf-v1.0-pod16"), "(choose from mlperf-v1.0-resnet50-pod16,");
}

/// The same, trained on the host.
TEST_F(TrainResnetCliTest, TrainsWithAFileOfOptions) {
  const Outcome o =
      run("train resnet --config mlperf-v1.1-resnet50-pod16 --machine host --depth 8 --size 12 --images 80 "
          "--classes 4 --batch 16 --micro-batches 2 --replicas 2 --lr 1 --warmup 1 --steps 3 --threads 1 "
          "--json");
  const json r = results_of(o)[0];
  EXPECT_EQ(r["settings"]["numbers"], "mlperf-v2");
  EXPECT_EQ(r["settings"]["norm_replicas"], 2);
  EXPECT_TRUE(r["finished"]);
  EXPECT_EQ(r["steps"], 3);
  EXPECT_TRUE(r["test_loss"].is_number());
}

TEST_F(TrainResnetCliTest, RefusesOptionsThatConflict) {
  const auto refuses = [&](const std::string& options, const std::string& message) {
    expect_refused(run("train resnet " + options), message);
  };
  refuses("--depth 21", "unknown depth 21 of a ResNet (choose from 18, 34, ");
  refuses("--block 4", "--block is for --density below 1");
  refuses("--density 1/2 --schedule none --every 5", "--every is for --schedule set or rigl");
  refuses("--no-augment --padding 2", "--padding is for --augment");
  refuses("--steps 3 --epochs 2", "--steps and --epochs both say how long to train");
  refuses("--dataset imagenet",
          "--dataset: invalid value 'imagenet' (choose from cifar-10, synthetic, or a folder");
  refuses("--dataset synthetic --data .", "leave out one of them");
  refuses("--dataset cifar-10 --images 5", "--images is for --dataset synthetic");
  refuses("--dataset cifar-10 --size 64", "--size is for --dataset synthetic or a folder");
  refuses("--dataset cifar-10 --classes 5", "--classes is for --dataset synthetic");
  refuses("--offload-gradients", "is for --micro-batches of more than one");
  refuses("--norm-replicas 2", "statistics of 2 replicas together");
  refuses("--dataset . --data .", "--dataset is a folder of images already");
  refuses("--estimate --save a.safetensors", "--estimate trains no parameters");
  refuses("--save a.bin", "--save");
  refuses("--checkpoint a.safetensors --save a.safetensors", "name the same file");
  refuses("--betas 0.9,0.99", "--betas is for --optimizer adam, adamw or lamb");
  refuses("--batch 16 --replicas 3", "cannot be divided among 3 replicas");
  expect_refused(run("train --layers 5,5 resnet"), "--layers stands before resnet");
}

}  // namespace
}  // namespace tessera
