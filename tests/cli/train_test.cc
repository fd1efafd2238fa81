// `tessera train`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/tool.h"
#include "report/strict_markup.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::content_of;
using test::expect_failure;
using test::expect_refused;
using test::json_of;
using test::Outcome;
using test::results_of;
using test::says;
using testing::MarkupReader;

class TrainCliTest : public test::ToolTest {
 protected:
  static constexpr const char* kSmall =
      "train --layers 64,32,10 --images 400 --epochs 3 --lr 0.02 --seed 3 --threads 2";

  /// Digits without their training files, as with only the test images.
  static void write_mnist(const std::string& folder, uint32_t count) {
    std::filesystem::create_directories(folder);
    std::ofstream images(folder + "/t10k-images-idx3-ubyte", std::ios::binary),
        labels(folder + "/t10k-labels-idx1-ubyte", std::ios::binary);
    const auto bytes = [](std::initializer_list<uint32_t> numbers) {
      std::string text;
      for (uint32_t number : numbers)
        for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(number >> shift & 0xFF);
      return text;
    };
    images << bytes({0x803, count, 28, 28});
    labels << bytes({0x801, count});
    for (uint32_t i = 0; i < count; ++i) {
      labels << static_cast<char>(i % 10);
      for (uint32_t pixel = 0; pixel < 784; ++pixel)
        images << static_cast<char>((pixel * (i % 10 + 1) + 7 * i) % 251);
    }
  }

  json train(const std::string& options) const {
    return results_of(run(fmt::format("{} --json {}", kSmall, options)))[0];
  }
};

TEST_F(TrainCliTest, PrintsThePassesOfItsStep) {
  const Outcome o = run("train --layers 64,32,10 --images 400 --threads 2 --estimate --print passes");
  EXPECT_EQ(o.status, 0) << o.err;
  for (const char* pass : {"decompose", "remove unused", "fuse", "weights", "layouts", "lower", "liveness"})
    EXPECT_TRUE(says(o.out, pass)) << pass;
  EXPECT_EQ(run("train --layers 64,32,10 --estimate --print passes --json").status, 2);
}

TEST_F(TrainCliTest, JsonHasWhatWasTrained) {
  const json r = train("");
  EXPECT_EQ(r["settings"]["layers"], json({64, 32, 10}));
  EXPECT_EQ(r["settings"]["optimizer"], "momentum");
  EXPECT_EQ(r["machine"], "host");
  EXPECT_EQ(r["tiles"], 2);
  EXPECT_EQ(r["steps_per_epoch"], 6);  // 340 images in batches of 50
  EXPECT_EQ(r["steps"], 18);
  EXPECT_EQ(r["parameters"], 64 * 32 + 32 + 32 * 10 + 10);
  EXPECT_TRUE(r["finished"]);
  ASSERT_EQ(r["epochs"].size(), 3u);
  double best = 0;
  for (const json& epoch : r["epochs"]) {
    for (const char* key : {"epoch", "loss", "accuracy", "validation_loss", "validation_accuracy", "seconds"})
      EXPECT_TRUE(epoch[key].is_number()) << key;
    best = std::max(best, epoch["validation_accuracy"].get<double>());
  }
  EXPECT_EQ(r["epochs"][r["best_epoch"].get<size_t>() - 1]["validation_accuracy"], best);
  EXPECT_TRUE(r["test_accuracy"].is_number());
  EXPECT_GT(r["step"]["purposes"]["parameter"], 4 * 2410 - 1);
  EXPECT_FALSE(r["step"]["operations"].empty());
}

TEST_F(TrainCliTest, PrintsARowPerEpoch) {
  const Outcome o = run(kSmall);
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.err, "");
  for (const char* text : {"340 for training, 60 for validation, 100 for testing", "64-32-10, dense",
                           "host, 2 tiles", "\n    3  ", "test accuracy"})
    EXPECT_TRUE(says(o.out, text));
}

TEST_F(TrainCliTest, EveryKindAndOptimizerRuns) {
  for (const char* options :
       {"--kind static --density 1/4 --block 8",
        "--kind dynamic --block 4 --every 2 --schedule set",
        "--kind dynamic --block 4 --every 2 --change 0.5 --until 1",
        "--kind dynamic --schedule none",
        "--optimizer sgd --weight-decay 0.001 --clip-norm 1",
        "--optimizer nesterov --momentum 0.5 --activation gelu",
        "--optimizer adam --dropout 0.1",
        "--optimizer adamw --weight-decay 0.1 --micro-batches 5 --betas 0.8,0.99",
        "--optimizer lamb --weight-decay 0.01 --exclude '*.bias' --lr-schedule linear --warmup 3",
        "--optimizer lamb --no-bias-correction --lr-schedule cosine --lr-end 0.1",
        "--optimizer lars --momentum 0.5 --trust-coefficient 0.01 --lr-schedule polynomial --lr-power 2",
        "--optimizer nesterov --lr-schedule step --lr-decay-at 0.3,0.6 --lr-decay 0.2",
        "--kind butterfly --recipe paper",
        "--kind bpbp",
        "--kind pixelfly --block 4 --butterfly 4 --rank 2",
        "--kind block-butterfly --block 4",
        "--kind fastfood",
        "--kind butterfly --form unfused",
        "--kind circulant",
        "--kind low-rank --rank 3",
        "--kind monarch --recipe best",
        "--recipe paper"})
    EXPECT_TRUE(train(options)["finished"]) << options;
}

TEST_F(TrainCliTest, SeveralSeedsHaveAMean) {
  const std::string command = fmt::format("{} --seeds 3", kSmall);
  const json all = json_of(run(command + " --json"));
  ASSERT_EQ(all["results"].size(), 3u);
  double sum = 0;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(all["results"][i]["settings"]["seed"], 3 + i);
    sum += all["results"][i]["test_accuracy"].get<double>();
  }
  EXPECT_NEAR(all["test_accuracy"]["mean"], sum / 3, 1e-12);
  EXPECT_GE(all["test_accuracy"]["margin"], 0);
  EXPECT_EQ(all["test_accuracy"]["confidence"], 0.95);
  EXPECT_EQ(all["results"][0]["test_accuracy"], train("")["test_accuracy"]);
  const Outcome text = run(command);
  EXPECT_TRUE(says(text.out, "seed 5: test accuracy"));
  EXPECT_TRUE(says(text.out, "mean of 3 seeds"));
}

TEST_F(TrainCliTest, BatchesAreSwept) {
  const std::string page = path("sweep.html");
  const std::string command = fmt::format("{} --batch 25,100,50 --seeds 2", kSmall);
  const json all = json_of(run(fmt::format("{} --json --report '{}'", command, page)));
  ASSERT_EQ(all["results"].size(), 6u);
  ASSERT_EQ(all["sweep"].size(), 3u);
  EXPECT_FALSE(all.contains("test_accuracy"));
  for (size_t i = 0; i < 3; ++i) {
    const json& point = all["sweep"][i];
    EXPECT_EQ(point["batch"], (json{25, 100, 50})[i]);
    EXPECT_EQ(point["seeds"], json({3, 4}));
    EXPECT_EQ(point["steps_per_epoch"], 340 / point["batch"].get<int>());
    EXPECT_GT(point["epoch_seconds"], 0);
    for (size_t seed = 0; seed < 2; ++seed) {
      const json& one = all["results"][2 * i + seed];
      EXPECT_EQ(one["settings"]["batch"], point["batch"]);
      EXPECT_EQ(one["test_accuracy"], point["test_accuracies"][seed]);
    }
  }
  EXPECT_EQ(all["results"][0]["test_accuracy"], train("--batch 25")["test_accuracy"]);
  const std::string html = MarkupReader::read(content_of(page)).whole_text();
  for (const char* text : {"Test accuracy", "Time per epoch", "batch 100"}) EXPECT_TRUE(says(html, text));
  const Outcome text = run(command);
  EXPECT_TRUE(says(text.out, "batch 100, seed 4: test accuracy"));
  EXPECT_TRUE(says(text.out, "batch  seeds  steps per epoch"));
}

TEST_F(TrainCliTest, ASweepContinuesWhereItStopped) {
  const std::string small = fmt::format(
      "train --layers 64,32,10 --images 400 --lr 0.02 --tiles 2 --json --epochs 40 "
      "--kind butterfly --recipe paper --batch 50,25 --seeds 2 --checkpoint '{}'",
      path("sweep.safetensors"));
  const std::string third = path("sweep-batch25-seed0.safetensors");
  const Outcome stopped = run(
      small + " --threads 2",
      fmt::format("{{}} & while ! test -e '{}' && kill -0 $!; do sleep 0.005; done; kill -INT $!; wait $!",
                  third));
  if (stopped.status == 0) GTEST_SKIP() << "it had finished when the signal came";
  ASSERT_EQ(stopped.status, 130) << stopped.err;
  EXPECT_TRUE(says(stopped.err, "interrupted while training with batch 25, seed "));
  const json so_far = json::parse(stopped.out);
  ASSERT_GE(so_far["results"].size(), 3u);
  EXPECT_EQ(so_far["results"].back()["finished"], false);
  EXPECT_EQ(so_far["sweep"][0]["test_accuracies"][1], so_far["results"][1]["test_accuracy"]);
  expect_failure(2, run(small), "sweep-batch50-seed0.safetensors exists: add --resume");
  const Outcome resumed = run(small + " --threads 1 --resume");
  const json all = json_of(resumed);
  ASSERT_EQ(all["results"].size(), 4u);
  EXPECT_EQ(all["results"][0]["resumed_from_step"], all["results"][0]["steps"]);
  EXPECT_EQ(all["results"][3]["resumed_from_step"], 0);
  EXPECT_TRUE(all["sweep"][0]["epoch_seconds"].is_null());
  const json alone = results_of(
      run("train --layers 64,32,10 --images 400 --lr 0.02 --tiles 2 --json --epochs 40 --kind butterfly "
          "--recipe paper --batch 25"))[0];
  EXPECT_EQ(all["results"][2]["test_loss"], alone["test_loss"]);
  EXPECT_EQ(left_behind(), 4u);
}

TEST_F(TrainCliTest, MnistTrainsWithEveryStructure) {
  const std::string folder = path("digits");
  write_mnist(folder, 300);
  for (const char* kind :
       {"dense", "butterfly", "bpbp", "pixelfly", "fastfood", "circulant", "low-rank", "monarch"}) {
    const json r = results_of(run(
        fmt::format("train --data '{}' --dataset mnist --kind {} --recipe paper --epochs 1 --batch 20 --json",
                    folder, kind)))[0];
    EXPECT_EQ(r["settings"]["layers"], json({784, 1024, 10}));
    EXPECT_EQ(r["settings"]["optimizer"], "momentum");
    EXPECT_TRUE(r["finished"]) << kind;
    EXPECT_TRUE(says(r["images"].get<std::string>(), "204 for training, 36 for validation, 60 for testing"));
  }
}

TEST_F(TrainCliTest, LayersFollowFromTheImages) {
  const std::string folder = path("digits");
  write_mnist(folder, 100);
  const Outcome o = run(fmt::format("train --data '{}' --kind pixelfly --estimate --json", folder));
  EXPECT_EQ(results_of(o)[0]["settings"]["layers"], json({784, 1024, 10}));
}

TEST_F(TrainCliTest, AnEstimateOfATiledMachineIsWhatItTakes) {
  const json estimate = train("--machine bow --estimate"), done = train("--machine bow");
  EXPECT_FALSE(estimate.contains("epochs"));
  EXPECT_EQ(estimate["step"]["cycles"], done["step_cycles"]);
  EXPECT_EQ(estimate["evaluation"]["cycles"], done["evaluation_cycles"]);
  EXPECT_EQ(done["cycles"].get<uint64_t>(), 18 * estimate["step"]["cycles"].get<uint64_t>());
  EXPECT_GT(estimate["predicted_seconds"], 0);
  const Outcome text = run(fmt::format("{} --machine bow --estimate", kSmall));
  for (const char* part : {"parameter", "fullest tile", "linear f32[50, 32]", "cycles"})
    EXPECT_TRUE(says(text.out, part));
}

TEST_F(TrainCliTest, TimesHaveTransfersFromAndToTheHostIfAskedFor) {
  const json without = train("--machine bow --estimate");
  const json with = train("--machine bow --estimate --host-io"), done = train("--machine bow --host-io");
  for (const char* part : {"step", "evaluation"}) {
    EXPECT_FALSE(without[part].contains("host_io"));
    EXPECT_FALSE(without[part]["phases"].contains("host"));
    const json& transfers = with[part]["host_io"];
    EXPECT_GE(transfers["bytes_in"], 50 * 64 * 4);
    EXPECT_GE(transfers["bytes_out"], 50 * 10 * 4);
    const double seconds = transfers["seconds"].get<double>();
    EXPECT_GT(seconds, 2 * 10e-6);
    EXPECT_NEAR(with[part]["seconds"].get<double>(), without[part]["seconds"].get<double>() + seconds, 1e-12);
    EXPECT_NEAR(with[part]["phases"]["host"].get<double>(), seconds * 1.85e9, 1);
  }
  EXPECT_EQ(with["step"]["cycles"], done["step_cycles"]);
  EXPECT_EQ(with["evaluation"]["cycles"], done["evaluation_cycles"]);
  EXPECT_EQ(with["settings"], without["settings"]);
  EXPECT_GT(with["predicted_seconds"], without["predicted_seconds"]);
  const std::string page = path("page.html");
  const Outcome text = run(fmt::format("{} --machine bow --estimate --host-io --report '{}'", kSmall, page));
  EXPECT_TRUE(says(text.out, "transfers from and to the host"));
  EXPECT_TRUE(says(MarkupReader::read(content_of(page)).whole_text(), "transfers from and to the host"));
  expect_refused(run("train --layers 64,32,10 --estimate --host-io"),
                 "--host-io is for a modelled --machine");
}

TEST_F(TrainCliTest, SaysWhatDoesNotFit) {
  std::string machine = content_of(std::string(TESSERA_MACHINES) + "/gc2.toml");
  const size_t tiles = machine.find("\ntiles = ") + 1;
  machine.replace(tiles, machine.find('\n', tiles) - tiles, "tiles = 64");
  const std::string small =
      fmt::format("train --images 100 --machine '{}'", file("small.toml", machine)) + " --layers ";
  const Outcome estimate = run(small + "1024,1024,10 --estimate");
  EXPECT_EQ(estimate.status, 1);
  EXPECT_TRUE(says(estimate.out, "fullest tile, of 262,144"));
  for (const Outcome& o : {estimate, run(small + "1024,1024,10"), run(small + "1024,1536,10")}) {
    EXPECT_EQ(o.status, 1);
    EXPECT_TRUE(says(o.err, "smaller batch, sparser or smaller layers"));
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
}

TEST_F(TrainCliTest, WritesAReport) {
  for (const char* options : {"", "--estimate", "--machine bow --kind static --block 8"}) {
    const std::string page = path("page.html");
    train(fmt::format("--report '{}' {}", page, options));
    const std::string html = MarkupReader::read(content_of(page)).whole_text();
    for (const char* text : {"Memory of a training step by purpose", "Time of a training step by operation"})
      EXPECT_TRUE(says(html, text));
    EXPECT_EQ(html.find("validation loss") != std::string::npos, std::string(options) != "--estimate");
  }
}

TEST_F(TrainCliTest, AResumedRunIsTheSame) {
  const std::string whole = path("whole.safetensors"), broken = path("broken.safetensors");
  const std::string longer = "--epochs 100 --kind dynamic --block 4 --every 10";
  const std::string small = "train --layers 64,32,10 --images 400 --lr 0.02 --tiles 2 --json " + longer;
  const Outcome expected = run(fmt::format("{} --checkpoint '{}'", small, whole));
  ASSERT_EQ(expected.status, 0) << expected.err;
  // Ctrl-C once there is a checkpoint.
  const Outcome stopped = run(
      fmt::format("{} --threads 2 --checkpoint '{}'", small, broken),
      fmt::format("{{}} & while ! test -e '{}' && kill -0 $!; do sleep 0.005; done; kill -INT $!; wait $!",
                  broken));
  if (stopped.status == 0) GTEST_SKIP() << "it had finished when the signal came";
  ASSERT_EQ(stopped.status, 130) << stopped.err;
  EXPECT_TRUE(says(stopped.err, "interrupted after step"));
  EXPECT_FALSE(results_of(stopped, 130)[0]["finished"]);
  const Outcome resumed = run(fmt::format("{} --threads 1 --checkpoint '{}' --resume", small, broken));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(content_of(broken) == content_of(whole));
  json a = results_of(expected)[0], b = results_of(resumed)[0];
  EXPECT_EQ(b["resumed_from_step"], results_of(stopped, 130)[0]["steps"]);
  for (const char* key : {"test_loss", "test_accuracy", "best_epoch"}) EXPECT_EQ(a[key], b[key]) << key;
  ASSERT_EQ(a["epochs"].size(), b["epochs"].size());
  for (size_t i = 0; i < a["epochs"].size(); ++i) {
    a["epochs"][i].erase("seconds");
    b["epochs"][i].erase("seconds");
    EXPECT_EQ(a["epochs"][i], b["epochs"][i]);
  }
}

TEST_F(TrainCliTest, ChecksACheckpointBeforeItTrains) {
  const std::string file = path("run.safetensors");
  const std::string with = fmt::format("{} --checkpoint '{}'", kSmall, file);
  ASSERT_EQ(run(with + " --resume").status, 0);  // there is none yet
  expect_failure(2, run(with), "exists: add --resume");
  EXPECT_EQ(run(with + " --resume").status, 0);
  expect_failure(1, run(with + " --resume --batch 25"), "its batch is 50, now it is 25");
  const Outcome tiles = run(with + " --resume --tiles 3");
  EXPECT_EQ(tiles.status, 1);
  EXPECT_TRUE(says(tiles.err, "--allow-different-bits"));
  EXPECT_EQ(run(with + " --resume --tiles 3 --allow-different-bits").status, 0);
  const Outcome isa = run(with + " --resume --isa generic");
  EXPECT_EQ(isa.status, 1);
  EXPECT_EQ(left_behind(), 1u);  // no temporary files
}

TEST_F(TrainCliTest, BadInputIsRefusedWithOneMessage) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--kind sparse", "unknown kind of layers 'sparse' (choose from dense, static, dynamic"},
      {"--density 0.1", "--density is for --kind static or dynamic"},
      {"--kind dense --rank 4", "--rank is for --kind low-rank or pixelfly"},
      {"--kind low-rank --block 4", "--block is for --kind static, dynamic, block-butterfly or pixelfly"},
      {"--kind static --recipe paper", "--recipe is for --kind dense, butterfly and other structures"},
      {"--form unfused", "--form is for --kind butterfly and other structures"},
      {"--kind butterfly --form merged", "unknown form 'merged' (choose from fused, unfused)"},
      {"--kind monarch --recipe good", "unknown recipe 'good' (choose from paper, best)"},
      {"--kind pixelfly --butterfly 12", "a butterfly size of 12"},
      {"--seeds 2 --estimate", "--estimate is for one training"},
      {"--kind static --schedule set", "--schedule is for --kind dynamic"},
      {"--kind dynamic --schedule none --every 5", "--every is for --schedule set or rigl"},
      {"--kind static --block 7", "the block size is 7; it must be 1, 4, 8, 16 or 32"},
      {"--kind static --density 0", "the density is 0"},
      {"--kind static --density 0.01", "a density of 0.01 leaves hidden layer 1, 32 × 64, without a block"},
      {"--optimizer adam --momentum 0.5", "--momentum is for --optimizer momentum, nesterov or lars"},
      {"--optimizer sgd --betas 0.8,0.9", "--betas is for --optimizer adam, adamw or lamb"},
      {"--optimizer lamb --betas 0.8", "--betas: invalid value '0.8' (expected two numbers"},
      {"--optimizer lamb --trust-coefficient 0.1", "--trust-coefficient is for --optimizer lars"},
      {"--exclude '*.wieght'", "no parameter has the name '*.wieght' of a group; there are layer1.weight"},
      {"--lr-schedule steep", "'steep' (choose from constant, linear, polynomial, cosine, step)"},
      {"--lr-schedule step --lr-decay-at 0.5,1", "a schedule decays after 1 of the steps"},
      {"--lr-schedule step --lr-decay-at 0.5,x", "--lr-decay-at: invalid value 'x'"},
      {"--lr-schedule step --lr-end 0.1", "--lr-end is for --lr-schedule linear, polynomial or cosine"},
      {"--lr-decay 0.5", "--lr-decay is for --lr-schedule step"},
      {"--lr-end 0.1", "--lr-end is for --lr-schedule linear, polynomial or cosine"},
      {"--lr-schedule linear --lr-power 2", "--lr-power is for --lr-schedule polynomial"},
      {"--lr-schedule linear --warmup 1000", "of them warm-up, leaves none to decay in"},
      {"--lr fast", "--lr: invalid value 'fast' (expected a number)"},
      {"--lr nan", "--lr: invalid value 'nan' (expected a number)"},
      {"--batch 0", "--batch: invalid value '0' (expected a whole number from 1"},
      {"--seeds 0", "--seeds: invalid value '0' (expected a whole number from 1 to 1000)"},
      {"--seed 18446744073709551615 --seeds 2", "2 consecutive seeds from 18446744073709551615 on"},
      {"--seeds 2 --resume", "--resume is for --checkpoint FILE"},
      {"--batch 25,", "--batch: invalid value '' (expected a whole number from 1 to 2147483647)"},
      {"--batch 25,50,25", "--batch lists 25 twice"},
      {"--batch 25,1000", "a batch of 1000 is larger than the 340 images"},
      {"--batch 50,51 --micro-batches 5", "a batch of 51 cannot be divided into 5"},
      {"--batch 25,50 --estimate",
       "--estimate is for one training; leave out --estimate or all batches but one"},
      {"--batch 1000", "a batch of 1000 is larger than the 340 images"},
      {"--micro-batches 3", "a batch of 50 cannot be divided into 3"},
      {"--layers 64", "at least two sizes"},
      {"--layers 64,0,10", "the size of a layer is 0"},
      {"--activation swish", "unknown activation 'swish'"},
      {"--dataset imagenet", "--dataset"},
      {"--machine bow --tiles 4", "--tiles is for --machine host"},
      {"--machine moon", "moon"},
      {"--resume", "--resume is for --checkpoint FILE"},
      {"--estimate --checkpoint x.safetensors", "leave out one of them"},
  };
  for (const auto& [options, message] : cases) {
    std::string command = kSmall;
    if (options.starts_with("--layers")) command = "train --images 400";
    if (options.starts_with("--lr ") || options.starts_with("--seed ")) command = "train";
    SCOPED_TRACE(options);
    expect_refused(run(fmt::format("{} {}", command, options)), message);
  }
  expect_refused(run("train --machine moon --data /nowhere"), "moon");  // before data are read
  expect_refused(run("train --layers 16777216,10 --images 10000000"), "the size of a layer is 16777216");
  const std::string both = path("run"), of_seed = path("run-batch50-seed4.html");
  expect_refused(run(fmt::format("{0} --checkpoint '{1}' --report '{1}'", kSmall, both)),
                 "name the same file");
  expect_refused(run(fmt::format("{} --seeds 2 --checkpoint '{}.html' --report '{}'", kSmall, both, of_seed)),
                 "name the same file");
}

TEST_F(TrainCliTest, TrainsSpikingNetworks) {
  const std::string one_epoch =
      "train --kind spiking --dataset randman --samples 60 --units 8 --steps 30 --batch 20 --threads 1";
  const std::string small = one_epoch + " --epochs 2";
  const std::string page = path("spikes.html"), checkpoint = path("spikes.safetensors");
  const Outcome o = run(fmt::format("{} --json --report '{}' --checkpoint '{}'", small, page, checkpoint));
  const json r = results_of(o)[0];
  EXPECT_EQ(r["settings"]["hidden"], json({128}));
  EXPECT_EQ(r["settings"]["lr"], 0.01);  // Randman's usual one
  EXPECT_EQ(r["settings"]["seed"], 0);
  EXPECT_EQ(r["recordings"], "Randman, 30 steps: 432 for training, 48 for validation, 120 for testing");
  EXPECT_EQ(r["epochs"].size(), 2u);
  EXPECT_GT(r["epochs"][1]["activity"][0]["firing"], 0);
  EXPECT_EQ(r["epochs"][1]["activity"][0]["dropped"], 0);
  EXPECT_GT(r["test_accuracy"], 0.1);
  const std::string html = MarkupReader::read(content_of(page)).whole_text();
  for (const char* text : {"Neurons that fire", "Spikes of the inputs", "Spikes of layer 1",
                           "Potentials of the readout", "Accuracy"})
    EXPECT_TRUE(says(html, text));

  const Outcome again = run(fmt::format("{} --checkpoint '{}' --resume", small, checkpoint));
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_TRUE(says(again.out, "test accuracy"));
  const std::string on_tiles =
      fmt::format("{} --epochs 1 --machine '{}' --json ", one_epoch, tiles_of("bow", 64));
  const json estimate = results_of(run(on_tiles + "--estimate"))[0], done = results_of(run(on_tiles))[0];
  EXPECT_GT(estimate["step"]["cycles"], 0);
  EXPECT_TRUE(says(done["machine"].get<std::string>(), "bow"));
  EXPECT_TRUE(done["finished"]);
  EXPECT_NEAR(done["epochs"][0]["loss"], r["epochs"][0]["loss"], 1e-3);
  const Outcome seeds = run(
      fmt::format("train --loss spikes --recurrent --layers 8,16,10 --seeds 2 --json {}", small.substr(6)));
  EXPECT_EQ(results_of(seeds).size(), 2u);
  EXPECT_EQ(results_of(seeds)[1]["settings"]["seed"], 1);
  EXPECT_EQ(results_of(seeds)[1]["settings"]["loss"], "spikes");
  EXPECT_EQ(results_of(seeds)[1]["settings"]["recurrent"], true);
}

TEST_F(TrainCliTest, RefusesOptionsThatSpikingNetworksDoNotHave) {
  const std::pair<std::string, std::string> cases[] = {
      {"--dataset mnist", "--dataset: invalid value 'mnist' (with --kind spiking, choose from randman, "},
      {"--dataset shd", "--dataset shd needs its folder"},
      {"--dropout 0.5", "--dropout is not for --kind spiking"},
      {"--density 0.5", "--density is for --kind static or dynamic"},
      {"--layers 20,10", "takes inputs, at least one hidden layer, and classes"},
      {"--layers 21,128,10", "begins with 21 inputs and ends with 10 classes; Randman has 20 and 10"},
      {"--loss l1", "unknown loss 'l1'"},
      {"--surrogate step",
       "'step' (choose from arctan, boxcar, fast-sigmoid, sigmoid, superspike, triangle)"},
      {"--beta 2", "the decay of potentials is 2"},
      {"--batch 64,9000", "a batch of 9000 is larger than the 7200 recordings"},
      {"--smoothness 0", "a smoothness of 0"},
  };
  for (const auto& [options, message] : cases) {
    SCOPED_TRACE(options);
    expect_refused(run("train --kind spiking " + options, "unset TESSERA_DATA; {}"), message);
  }
  expect_failure(2, run("train --beta 0.5"), "--beta is for --kind spiking");
}

TEST_F(TrainCliTest, ReportsDivergenceAndMissingFiles) {
  const Outcome diverged = run("train --layers 64,32,10 --images 400 --lr 1e9");
  EXPECT_EQ(diverged.status, 1);
  EXPECT_TRUE(says(diverged.err, "training diverged: the loss is"));
  expect_failure(1, run("train --layers 64,32,10 --images 400 --lr 1e9 --batch 50,25"),
                 "batch 50, seed 0: training diverged");
  expect_failure(1, run(fmt::format("train --dataset mnist --data '{}'", path("nowhere"))),
                 "no images of mnist here");
  const Outcome unwritable = run(fmt::format("{} --report '{}/page.html'", kSmall, path("nowhere")));
  EXPECT_EQ(unwritable.status, 1);
  EXPECT_EQ(unwritable.out, "");
}

}  // namespace
}  // namespace tessera
