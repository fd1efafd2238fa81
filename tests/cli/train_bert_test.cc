// `tessera train bert`.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/pretraining.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

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

class TrainBertCliTest : public test::ToolTest {
 protected:
  static constexpr const char* kText = "train bert --documents 60 --vocabulary 100 --seed 3 --tiles 2";
  static constexpr const char* kSizes = "--length 32 --batch 4";
  static constexpr const char* kSteps = "--steps 6 --evaluate-every 4";

  json train(const std::string& options) const {
    return results_of(run(fmt::format("{} --threads 1 --json {}", kText, options)))[0];
  }
  /// Trains on few documents, as tiles take long to evaluate the held-out ones.
  json train_few(const std::string& options) const {
    return results_of(
        run("train bert --documents 24 --vocabulary 100 --seed 3 --threads 1 --json " + options))[0];
  }
  static std::string small() { return fmt::format("{} {} {}", kText, kSizes, kSteps); }
};

TEST_F(TrainBertCliTest, JsonHasWhatWasTrained) {
  const Outcome o = run(small() + " --json");
  EXPECT_EQ(json_of(o)["schema"], 1);
  EXPECT_EQ(json_of(o)["command"], "train bert");
  const json r = results_of(o)[0];
  EXPECT_EQ(r["settings"]["vocab_size"], 100);
  EXPECT_EQ(r["settings"]["optimizer"], "lamb");
  EXPECT_EQ(r["settings"]["phases"][0]["steps"], 6);
  EXPECT_EQ(r["phases"][0]["length"], 32);
  EXPECT_GT(r["phases"][0]["packing_factor"], 1);
  EXPECT_TRUE(r["finished"]);
  ASSERT_EQ(r["evaluations"].size(), 2U);
  EXPECT_EQ(r["evaluations"][0]["step"], 4);
  EXPECT_EQ(r["evaluations"][1]["step"], 6);
  EXPECT_EQ(r["evaluations"][1]["sequences"], r["sequences"]);
  EXPECT_GT(r["tokens_per_second"], r["sequences_per_second"]);
  EXPECT_FALSE(r["phases"][0]["step"]["operations"].empty());
  EXPECT_GT(r["predicted_seconds"], 0);
}

/// Two replicas, each with half of the optimizer's state of large parameters. Tests of graphs check that
/// losses are the same wherever values lie: the short run only trains the division.
TEST_F(TrainBertCliTest, TrainsReplicasOnChips) {
  const std::string machine =
      file("two.toml", "like = \"m2000\"\nchips = 2\ntiles = 16\ntile_bytes = 8000000");
  const std::string options =
      "--documents 24 --vocabulary 100 --seed 3 --length 16 --batch 4 --steps 2 --replicas 2";
  const auto train_on_chips = [&](const std::string& more) {
    return results_of(run(fmt::format("train bert --json {} --machine {} {}", options, machine, more)))[0];
  };
  const auto place_on_chips = [&](const std::string& more) {
    return train_on_chips(test::is_full() ? more : more + " --estimate");
  };
  const auto expect_loss = [](const char* name, const json& r, const json& of, double within) {
    if (!test::is_full()) return;
    const auto loss = [&](const json& each) { return each["evaluations"][0][name].get<double>(); };
    EXPECT_NEAR(loss(r), loss(of), within) << name;
  };
  const json whole = train_on_chips(""), shards = train_on_chips("--shard");
  EXPECT_EQ(shards["settings"]["replicas"], 2);
  EXPECT_EQ(whole["settings"].count("overlap"), 0);
  const json late = place_on_chips("--no-overlap");
  EXPECT_EQ(late["settings"]["overlap"], false);
  expect_loss("held_out_loss", late, whole, 0);
  EXPECT_EQ(shards["settings"]["shard_from"], 8192);
  EXPECT_NEAR(shards["evaluations"][0]["held_out_loss"].get<double>(),
              whole["evaluations"][0]["held_out_loss"].get<double>(), 1e-4);
  const auto optimizer = [](const json& r) {
    return r["phases"][0]["step"]["purposes"]["optimizer"].get<double>();
  };
  EXPECT_LT(optimizer(shards), 0.6 * optimizer(whole));
  EXPECT_EQ(whole["phases"][0]["step"].count("streaming_bytes"), 0);
  const json offloaded = place_on_chips("--shard --offload");
  expect_loss("held_out_loss", offloaded, shards, 0);
  EXPECT_EQ(offloaded["settings"]["offload_from"], 8192);
  EXPECT_GT(offloaded["phases"][0]["step"]["streaming_bytes"], 0);
  EXPECT_LT(optimizer(offloaded), 0.6 * optimizer(shards));
  const json far = place_on_chips("--offload-weights --offload-gradients --micro-batches 2"),
             near = place_on_chips("--micro-batches 2");
  expect_loss("loss", far, near, 0);
  // Predicted times decide where the held-out loss is computed.
  expect_loss("held_out_loss", far, near, 1e-4);
  EXPECT_EQ(far["settings"]["offload_weights_from"], 8192);
  EXPECT_EQ(far["settings"]["offload_gradients_from"], 8192);
  const json ahead = place_on_chips("--offload-weights --offload-gradients --micro-batches 2 --prefetch");
  expect_loss("loss", ahead, near, 0);
  EXPECT_EQ(ahead["settings"]["prefetch"], true);
  const auto seconds = [](const json& r) { return r["phases"][0]["step"]["seconds"].get<double>(); };
  EXPECT_LT(seconds(ahead), seconds(far));
  const json placed = place_on_chips("--place '*.word_embeddings.weight=weights+state+shard,*.bias=none'");
  expect_loss("held_out_loss", placed, whole, 1e-4);
  EXPECT_EQ(placed["settings"]["groups"][0]["offload_weights"], true);
  EXPECT_EQ(placed["settings"]["groups"][0]["offload_gradients"], false);
  EXPECT_EQ(placed["settings"]["groups"][1]["names"], json::array({"*.bias"}));
  const auto streaming = [](const json& r) {
    return r["phases"][0]["step"]["streaming_bytes"].get<uint64_t>();
  };
  EXPECT_GT(streaming(far), streaming(placed));
  const json divided = place_on_chips("--shard-weights");
  expect_loss("loss", divided, whole, 0);
  EXPECT_EQ(divided["settings"]["shard_weights_from"], 8192);
  const json in_parts = place_on_chips("--shard-gradients --micro-batches 2");
  expect_loss("loss", in_parts, near, 1e-3);
  EXPECT_EQ(in_parts["settings"]["shard_gradients_from"], 8192);
  EXPECT_LT(optimizer(in_parts), 0.6 * optimizer(near));
  const auto gradient = [](const json& r) {
    return r["phases"][0]["step"]["purposes"]["gradient"].get<double>();
  };
  EXPECT_LT(gradient(in_parts), 0.7 * gradient(near));
  const json some = place_on_chips("--micro-batches 2 --place '*.word_embeddings.weight=shard-gradients'");
  expect_loss("loss", some, near, 1e-3);
  EXPECT_EQ(some["settings"]["groups"][0]["shard_gradients"], true);
  expect_refused(run(fmt::format("{} --shard-gradients", small())), "--micro-batches of more than one");
  expect_refused(run(fmt::format("{} --shard-weights", small())), "parameters are divided among replicas");
  expect_refused(run(fmt::format("{} --offload-gradients", small())), "--micro-batches of more than one");
  expect_refused(run(fmt::format("{} --place '*.bias=gradients'", small())),
                 "--micro-batches of more than one");
  expect_refused(run(fmt::format("{} --place '*.bias=shard'", small())), "is divided among replicas");
  expect_refused(run(fmt::format("{} --place '*.bias=shard-weights'", small())),
                 "parameters are divided among replicas");
  expect_refused(run(fmt::format("{} --place '*.bias'", small())),
                 "--place: invalid value '*.bias' (expected NAMES=WHAT, such as *.bias=none)");
  expect_refused(run(fmt::format("{} --place '*.bias=gradient'", small())),
                 "--place: invalid value 'gradient' (choose from ");
  expect_refused(run(fmt::format("{} --place 'missing=none'", small())),
                 "no parameter has the name 'missing'");
  expect_refused(run(fmt::format("{} --shard", small())), "is divided among replicas");
  expect_refused(run(fmt::format("{} --replicas 3", small())),
                 "micro-batches of 4 packs cannot be divided among 3 replicas equally");
}

/// Micro-batches of all replicas are sent, and several hosts share them.
TEST_F(TrainBertCliTest, TimesHaveTransfersFromAndToHosts) {
  const auto step = [&](const std::string& machine, const std::string& more) {
    const std::string chips = file("two.toml", "like = \"m2000\"\nchips = 2\ntiles = 16\n" + machine);
    return results_of(run(
        fmt::format("train bert --documents 60 --vocabulary 100 --length 16 --batch 4 --replicas 2 --steps 2 "
                    "--micro-batches 2 --estimate --json --machine {} {}",
                    chips, more)))[0]["phases"][0]["step"];
  };
  const std::string room = "tile_bytes = 8000000\n", two = room + "hosts = 2\n";
  const json without = step(room, ""), one = step(room, "--host-io"), both = step(two, "--host-io");
  EXPECT_EQ(without.count("host_io"), 0U);
  EXPECT_GE(one["host_io"]["bytes_in"], 4 * 4 * 16 * 4);  // four arrays of ids, u32
  EXPECT_EQ(one["host_io"]["bytes_in"], both["host_io"]["bytes_in"]);
  const auto transfers = [](const json& of) { return of["host_io"]["seconds"].get<double>() - 2 * 10e-6; };
  EXPECT_NEAR(transfers(one), 2 * transfers(both), 1e-12);
  EXPECT_NEAR(one["seconds"].get<double>() - without["seconds"].get<double>(),
              one["host_io"]["seconds"].get<double>(), 1e-12);
}

/// Options in a file apply unless the command line has them.
TEST_F(TrainBertCliTest, TakesOptionsFromAFile) {
  const std::string sizes = "documents = 60\nvocabulary = 100\nlength = 16\nbatch = 4\nsteps = 2\n";
  const std::string options =
      file("options.toml", sizes + "bias-correction = false\nbetas = \"0.7,0.9\"\nlr = 0.003\n");
  const auto settings = [&](const std::string& more) {
    return results_of(run(fmt::format("train bert --json --config {} {}", options, more)))[0]["settings"];
  };
  const json own = settings(""), longer = settings("--batch 8 --bias-correction");
  EXPECT_EQ(own["phases"][0]["batch"], 4);
  EXPECT_EQ(own["bias_correction"], false);
  EXPECT_EQ(own["lr"], 0.003);
  EXPECT_EQ(longer["phases"][0]["batch"], 8);
  EXPECT_EQ(longer.count("bias_correction"), 0);
  for (const bool without : {true, false}) {
    const std::string negative =
        file("negative.toml", fmt::format("{}no-bias-correction = {}\n", sizes, without));
    const json of_flag = results_of(run("train bert --json --config " + negative))[0]["settings"];
    EXPECT_EQ(of_flag.count("bias_correction"), without ? 1U : 0U) << without;
  }
  const std::string divided = file("divided.toml", sizes + "shard = true\noffload = true\n");
  expect_refused(run("train bert --config " + divided), "is divided among replicas");
  for (const char* flags : {"--no-shard --no-offload", "--shard=false --offload=false"}) {
    const json whole = results_of(
        run(fmt::format("train bert --json --estimate --config {} {}", divided, flags)))[0]["settings"];
    EXPECT_EQ(whole.count("shard_from") + whole.count("offload_from"), 0U) << flags;
  }
  const std::string epochs =
      file("epochs.toml", "documents = 60\nvocabulary = 100\nlength = 16\nbatch = 4\nepochs = 2\n");
  const Outcome of_steps = run(fmt::format("train bert --json --config {} --steps 2", epochs));
  EXPECT_EQ(results_of(of_steps)[0]["settings"]["phases"][0]["steps"], 2);
  const auto refused = [&](const std::string& content, const std::string& why) {
    expect_refused(run(fmt::format("train bert --config {}", file("wrong.toml", content))), why);
  };
  refused("bacth = 4", "'bacth' is not an option of bert");
  refused("config = \"other.toml\"", "'config' is not an option of bert");
  refused("batch = [4]", "'batch' takes a string, a number, true or false");
  refused("batch = \"x\"", "--batch");
  refused("steps = 2\nepochs = 2", "--steps and --epochs both say how long to train");
  refused("bias-correction = true\nno-bias-correction = true",
          "'no-bias-correction' is given under another name too");
  expect_refused(run("train bert --config mlperf"),
                 "--config: invalid value 'mlperf' (choose from mlperf-v1.0-pod16, mlperf-v1.0-pod64, "
                 "mlperf-v2.0-pod16, "
                 "mlperf-v2.0-pod64, or a .toml file; the end of a name, such as pod16, may follow from "
                 "--machine)");
  expect_refused(run("train bert --config mlperf-v1.0 --machine bow"), "invalid value 'mlperf-v1.0'");
}

/// The submissions' configurations, on smaller networks and chips.
TEST_F(TrainBertCliTest, DividesLayersAmongStagesAsAsked) {
  const std::string small =
      "--documents 60 --vocabulary 100 --length 16 --batch 16 --micro-batches 2 --size mini --dropout 0 "
      "--steps 1";
  const std::string chips =
      file("chips.toml", "like = \"m2000\"\ntiles = 16\ntile_bytes = 80000000\nchips = 4");
  const json r = results_of(run(
      fmt::format("train bert --json --config mlperf-v1.0-pod16 {} --machine {} --stages 1,3 --replicas 2 "
                  "--estimate",
                  small, chips)))[0];
  EXPECT_EQ(r["settings"]["stage_layers"], json({1, 3}));
  EXPECT_EQ(r["settings"]["stages"], 2);
  EXPECT_EQ(r["settings"]["betas"], json({0.71, 0.998}));
  EXPECT_EQ(r["settings"]["shard_from"], 8192);
  // Without the machine in its name.
  for (const auto& [asked, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {"mlperf-v1.0 --machine pod16", "stages of 3, 7, 7, 7 layers are 24 layers, and there are 4"},
           {"mlperf-v2.0 --machine bow_pod16", "stages of 0, 3, 4, 3, 4, 3, 4, 3 attention parts are 24"}})
    expect_refused(run(fmt::format("train bert --config {} {}", asked, small)), message);
  expect_refused(run(fmt::format("train bert {} --stages 1,2", small)), "stages of 1, 2 layers are 3 layers");
  expect_refused(run(fmt::format("train bert {} --stages 4,0", small)),
                 "all but the first stage have at least");
  const json parts = results_of(
      run(fmt::format("train bert --json --config mlperf-v2.0-pod64 {} --machine {} --stages 0,2/1 "
                      "--head-layers 2/3 --replicas 2 --estimate",
                      small, chips)))[0];
  EXPECT_EQ(parts["settings"]["stage_layers"], json({0, 2}));
  EXPECT_EQ(parts["settings"]["stage_feed_forwards"], json({0, 1}));
  EXPECT_EQ(parts["settings"]["head_layers"], 2);
  EXPECT_EQ(parts["settings"]["head_feed_forwards"], 3);
  EXPECT_EQ(parts["settings"]["numbers"], "mlperf-v2");
  // More stages than layers: the first one has none, or layers are in parts.
  const std::string tiny = fmt::format(
      "train bert --json --documents 60 --vocabulary 100 --length 16 --batch 16 --steps 1 "
      "--micro-batches 2 --pipeline 1f1b --estimate --machine {}",
      file("more.toml",
           "like = \"m2000\"\ntiles = 16\ntile_bytes = 80000000\ntopology = \"all-to-all\"\nchips = 3"));
  for (const std::string stages : {"0,1,1", "1/0,0/1,1/1"})
    EXPECT_EQ(results_of(run(fmt::format("{} --stages {}", tiny, stages)))[0]["settings"]["stages"], 3);
  for (const auto& [stages, message] : std::initializer_list<std::pair<std::string, std::string>>{
           {"0,2/1 --head-layers 1/3",
            "stages of 0, 2 attention parts and 1 with the prediction of masked "
            "tokens are 3 attention parts, and there are 4"},
           {"1,1 --head-layers 1", "stages of 1, 1 layers and 1 with the prediction of masked tokens are 3"},
           {"1/2,3/2", "the stage of a feed-forward part is 0; it must be the stage of the part before"},
           {"2 --head-layers 1", "--head-layers is for --stages with the number of layers of each"},
           {"1/2/3,1", "(expected layers, such as 4, or attention and feed-forward parts, such as 4/3)"},
           {"2/2", "--stages: invalid value '2/2' (expected a whole number from 1 to"}})
    expect_refused(run(fmt::format("train bert {} --stages {}", small, stages)), message);
}

TEST_F(TrainBertCliTest, AttentionMayHaveAnotherDropout) {
  const json settings =
      results_of(run("train bert --json --documents 60 --vocabulary 100 --length 16 --batch 4 "
                     "--steps 1 --estimate --dropout 0.2 --attention-dropout 0"))[0]["settings"];
  EXPECT_EQ(settings["hidden_dropout_prob"], 0.2);
  EXPECT_EQ(settings["attention_probs_dropout_prob"], 0);
}

TEST_F(TrainBertCliTest, LayersInPartsTrainAlike) {
  const std::string machine =
      file("two.toml", "like = \"m2000\"\nchips = 2\ntiles = 16\ntile_bytes = 8000000");
  const auto loss = [&](const std::string& stages) {
    return results_of(run(
        fmt::format("train bert --json --documents 24 --vocabulary 100 --seed 3 --length 16 --batch 4 "
                    "--micro-batches 2 --steps 2 --dropout 0 --pipeline 1f1b --machine {} --stages {}",
                    machine, stages)))[0]["evaluations"][0]["held_out_loss"]
        .get<double>();
  };
  EXPECT_NEAR(loss("1/0,0/1 --head-layers 1"), loss("2"), 1e-4);
}

TEST_F(TrainBertCliTest, SlicesOfTheHeadTakeLessMemoryAndTrainAlike) {
  const auto result = [&](uint32_t slices, const std::string& options) {
    return results_of(
        run(fmt::format("train bert --json --seed 3 --length 64 --dropout 0 --steps 2 "
                        "--evaluate-every 2 --head-slices {} {}",
                        slices, options)))[0];
  };
  const std::string small = "--documents 60 --vocabulary 100 --batch 4";
  const json whole = result(1, small), sliced = result(4, small);
  EXPECT_NEAR(sliced["evaluations"][0]["loss"].get<double>(), whole["evaluations"][0]["loss"].get<double>(),
              1e-4);
  EXPECT_EQ(sliced["settings"]["head_slices"], 4);
  // Passes take memory for the gradient of the table twice, so logits have to be larger.
  const std::string large = "--documents 400 --vocabulary 16000 --batch 64 --threads 2 --estimate";
  EXPECT_LT(result(8, large)["phases"][0]["step"]["bytes"], result(1, large)["phases"][0]["step"]["bytes"]);
}

TEST_F(TrainBertCliTest, ActivationsOfAPipelineMayLieBesideTheChips) {
  const std::string machine =
      file("two.toml", "like = \"m2000\"\nchips = 2\ntiles = 16\ntile_bytes = 8000000");
  const auto estimated = [&](const std::string& options) {
    return run(
        fmt::format("train bert --json --documents 60 --vocabulary 100 --seed 3 --length 64 --batch 24 "
                    "--micro-batches 6 --steps 2 --dropout 0 --stages 2 --machine {} --estimate {}",
                    machine, options));
  };
  const json near = results_of(estimated("--pipeline grouped"))[0]["phases"][0]["step"],
             far = results_of(estimated("--pipeline grouped --offload-activations"))[0]["phases"][0]["step"];
  EXPECT_LT(far["bytes"], near["bytes"]);
  EXPECT_GT(far["streaming_bytes"], 0);
  expect_refused(estimated("--offload-activations"),
                 "a sequential pipeline has none in flight: leave that out, or choose grouped, interleaved");
}

TEST_F(TrainBertCliTest, RecomputesAsMuchAsAMemoryBudgetNeeds) {
  const std::string estimate =
      "train bert --json --documents 60 --vocabulary 100 --length 32 --batch 4 --steps 2 --threads 1 "
      "--estimate";
  const std::string options = file("fit.toml", "recompute = \"fit\"\n");
  for (const std::string& asked : {estimate + " --recompute=fit", estimate + " --config '" + options + "'"})
    EXPECT_EQ(results_of(run(asked))[0]["settings"]["recompute"], "fit");
  const json limited = results_of(run(estimate + " --recompute=100000000"))[0];
  EXPECT_EQ(limited["settings"]["recompute"], 100'000'000);
  EXPECT_LE(limited["phases"][0]["step"]["bytes"], 100'000'000);
  EXPECT_EQ(results_of(run(estimate + " --config '" + options + "' --no-recompute"))[0]["settings"].count(
                "recompute"),
            0U);
  expect_refused(run(estimate + " --recompute=1000"), "more than its memory budget of 1000 bytes");
  for (const char* wrong : {"fits", "0", "-1", "1.5", "1e9", "99999999999999999999"})
    expect_refused(run(fmt::format("{} --recompute={}", estimate, wrong)),
                   "expected true, false, fit, or a number of bytes above 0");
}

/// A plan names the command with which a step takes the predicted time.
TEST_F(TrainBertCliTest, PlansHowToDivideAStep) {
  const std::string chips =
      file("chips.toml", "like = \"m2000\"\ntiles = 16\ntile_bytes = 8000000\nchips = 2");
  const std::string options = file("options.toml",
                                   "documents = 60\nvocabulary = 100\nlength = 16\nbatch = 2\nsteps = 1\n"
                                   "recompute = true\nreplicas = 2\nshard = true\nplan = true\n"
                                   "offload-activations = true\n");
  const std::string plan =
      fmt::format("train bert --config '{}' --machine '{}' --dropout 0 --no-bias-correction", options, chips);
  expect_refused(run(plan + " --estimate"),
                 "--plan only searches, and trains and reports nothing; leave out");
  expect_refused(run(plan + " --place '*.bias=none'"), "leave them out (--place)");
  expect_refused(run(plan + " --shard-gradients"), "leave that out (--shard-gradients)");
  const Outcome o = run(plan + " --json");
  EXPECT_EQ(json_of(o)["command"], "train bert");
  const json r = results_of(o)[0];
  EXPECT_EQ(r["tile_bytes"], 8'000'000);
  EXPECT_GT(r["considered"], r["small_estimates"]);
  EXPECT_FALSE(r["frontier"].empty());
  EXPECT_TRUE(r["frontier"][0]["estimated"].is_null());
  // The division of the file comes first.
  const json given = r["estimated"][0], chosen = r["chosen"];
  EXPECT_EQ(given["replicas"], 2);
  EXPECT_EQ(given["recompute"], true);
  EXPECT_EQ(given["shard"], true);
  EXPECT_EQ(given["offload_activations"], false);
  EXPECT_EQ(given["head_slices"], 1);
  EXPECT_EQ(r["stopped"], false);
  EXPECT_EQ(chosen["estimated"]["fits"], true);
  EXPECT_EQ(chosen["estimated"]["lacking_tile_bytes"], 0);
  EXPECT_EQ(chosen["offload_weights"], false);
  EXPECT_LE(chosen["estimated"]["seconds"], given["estimated"]["seconds"]);
  const std::string command = r["train"];
  ASSERT_TRUE(command.starts_with("tessera train bert --config ")) << command;
  EXPECT_TRUE(says(command, "--bias-correction=false"));
  EXPECT_TRUE(says(command, "--plan=false"));
  const json trained = results_of(run(command.substr(8) + " --estimate --json"))[0];
  EXPECT_EQ(trained["phases"][0]["step"]["seconds"], chosen["estimated"]["seconds"]);
  EXPECT_EQ(trained["settings"].count("recompute"), chosen["recompute"] == false ? 0U : 1U);

  const Outcome text = run(
      fmt::format("train bert --documents 60 --vocabulary 100 --length 16 --batch 1 --steps 1 --machine '{}' "
                  "--plan --plan-time-limit 0.001",
                  chips));
  EXPECT_EQ(text.status, 0) << text.err;
  for (const char* words : {"Extrapolated: the Pareto frontier", "Estimated as whole networks:",
                            "The fastest division that fits so far, ", "tessera train bert --"})
    EXPECT_TRUE(says(text.out, words));
  EXPECT_FALSE(says(text.out, "--plan"));
}

TEST_F(TrainBertCliTest, APlanGoesOnFromADivisionOfMoreChips) {
  const std::string chips =
      file("chips.toml", "like = \"m2000\"\ntiles = 16\ntile_bytes = 8000000\nchips = 2");
  const std::string plan = fmt::format(
      "train bert --documents 60 --vocabulary 100 --length 16 --batch 4 --machine '{}' --replicas 4 --plan",
      chips);
  const json r = results_of(run(plan + " --json"))[0];
  const json given = r["estimated"][0]["estimated"];
  EXPECT_EQ(given["fits"], false);
  EXPECT_TRUE(given["seconds"].is_null());
  EXPECT_TRUE(says(given["overflow"].get<std::string>(), "4 replicas"));
  EXPECT_EQ(r["chosen"]["estimated"]["fits"], true);
}

TEST_F(TrainBertCliTest, APlanOfWhatDoesNotFitSaysWhatIsClosest) {
  const std::string chips =
      file("chips.toml", "like = \"m2000\"\ntiles = 64\ntile_bytes = 150000\nchips = 2\nstreaming_bytes = 0");
  const Outcome o =
      run(fmt::format("train bert --size mini --documents 60 --vocabulary 100 --length 16 --batch 2 "
                      "--machine '{}' --plan --plan-estimates 2 --json",
                      chips));
  expect_failure(1, o, "in the closest the fullest tile lacks");
  const json r = results_of(o, 1)[0];
  EXPECT_TRUE(r["chosen"].is_null());
  EXPECT_LE(r["estimated"].size(), 2U);
  EXPECT_GT(r["estimated"][0]["estimated"]["lacking_tile_bytes"], 0);
  EXPECT_GT(r["frontier"][0]["extrapolated"]["lacking_tile_bytes"], 0);
  EXPECT_EQ(r.count("train"), 0U);
  EXPECT_TRUE(says(r["overflow"].get<std::string>(), "in the closest"));
}

/// The division of the options is estimated first.
TEST_F(TrainBertCliTest, AnInterruptedPlanHasWhatItFound) {
  const std::string chips =
      file("chips.toml", "like = \"m2000\"\ntiles = 64\ntile_bytes = 8000000\nchips = 2");
  const Outcome o =
      run(fmt::format("train bert --size mini --documents 200 --vocabulary 100 --length 64 --batch 16 "
                      "--replicas 2 --machine '{}' --plan --json",
                      chips),
          "{} & sleep 2; kill -INT $!; wait $!");
  expect_failure(130, o, "interrupted: ");
  EXPECT_TRUE(says(o.err, "stopping after this estimate"));
  const json r = results_of(o, 130)[0];
  EXPECT_EQ(r["stopped"], true);
  EXPECT_LE(r["estimated"].size(), 1U);
}

/// The total time is the sum over phases of their steps and evaluations.
TEST_F(TrainBertCliTest, EachPhaseHasItsCosts) {
  const std::string options = "--batch 4 --estimate --evaluate-every 100000 ";
  const json both = train(options + "--length 16,64 --steps 10,1000");
  ASSERT_EQ(both["phases"].size(), 2U);
  for (const size_t i : {0U, 1U}) {
    const json one = train(options + (i == 0 ? "--length 16 --steps 10" : "--length 64 --steps 1000"));
    EXPECT_EQ(both["phases"][i]["step"]["bytes"], one["phases"][0]["step"]["bytes"]);
    EXPECT_EQ(both["phases"][i]["step"]["seconds"], one["phases"][0]["step"]["seconds"]);
  }
  const double first = both["phases"][0]["step"]["seconds"], second = both["phases"][1]["step"]["seconds"];
  EXPECT_GT(both["predicted_seconds"], 10 * first + 1000 * second);
  const Outcome o = run(fmt::format("{} {} --length 16,64 --steps 10,1000 --print passes", kText, options));
  for (const char* words : {"with packs of 16 tokens:", "with packs of 64 tokens:", "decompose", "liveness"})
    EXPECT_TRUE(says(o.out, words));
}

TEST_F(TrainBertCliTest, APhaseThatDoesNotFitIsFoundFirst) {
  const std::string options = fmt::format(
      "train bert --machine '{}' --documents 400 --vocabulary 500 --batch 4 --optimizer adamw --length "
      "16,512 "
      "--estimate --json",
      tiles_of("gc200", 64));
  const Outcome o = run(options);
  expect_failure(1, o, "with packs of 512 tokens: ");
  const json phases = results_of(o, 1)[0]["phases"];
  EXPECT_EQ(phases[0]["step"].count("overflow"), 0U);
  EXPECT_EQ(phases[1]["step"]["fits"], false);
  EXPECT_TRUE(says(o.err, phases[1]["step"]["overflow"].get<std::string>()));
}

TEST_F(TrainBertCliTest, FilesAreNotWrittenOverOthers) {
  const std::string model = path("model.safetensors"), folder = path("folder");
  std::filesystem::create_directories(folder);
  const TextSplit split = split_text(synthetic_text({.vocabulary = 64, .documents = 50}), 0.2, 1);
  write_tokens(folder + "/train.safetensors", *split.train);
  write_tokens(folder + "/test.safetensors", *split.held_out);
  const std::string train_file = folder + "/train.safetensors", before = content_of(train_file);
  for (const auto& [options, message] : std::initializer_list<std::pair<std::string, std::string>>{
           {fmt::format("--checkpoint '{0}' --save '{0}'", model), "--checkpoint and --save name the same"},
           {fmt::format("--checkpoint '{}' --save '{}'", model, path("folder/../model.safetensors")),
            "--checkpoint and --save name the same"},
           {"--checkpoint new.safetensors --save ./new.safetensors", "--checkpoint and --save name the same"},
           {fmt::format("--data '{0}' --save '{0}'", train_file), "--data and --save name the same"},
           {fmt::format("--data '{}' --save '{}'", folder, train_file), "--data and --save name the same"},
           {fmt::format("--data '{}' --checkpoint '{}' --resume", folder, train_file),
            "--data and --checkpoint name the same"}})
    expect_refused(run("train bert --steps 1 " + options), message);
  EXPECT_TRUE(content_of(train_file) == before);
}

TEST_F(TrainBertCliTest, OnlyAFinishedTrainingIsSaved) {
  const std::string checkpoint = path("checkpoint.safetensors"), model = path("model.safetensors");
  const Outcome o =
      run(fmt::format("{} {} --steps 100000 --evaluate-every 1 --checkpoint '{}' --save '{}'", kText, kSizes,
                      checkpoint, model),
          fmt::format("{{}} & while ! test -e '{}' && kill -0 $!; do sleep 0.01; done; kill -INT "
                      "$!; wait $!",
                      checkpoint));
  expect_failure(130, o, "interrupted after step ");
  EXPECT_FALSE(std::filesystem::exists(model));
}

TEST_F(TrainBertCliTest, AReportThatCannotBeWrittenLeavesTheParameters) {
  const std::string checkpoint = path("checkpoint.safetensors"), model = path("model.safetensors"),
                    folder = path("reports");
  std::filesystem::create_directories(folder);
  const Outcome o =
      run(fmt::format("{} {} --json --steps 10 --evaluate-every 2 --checkpoint '{}' --save '{}' --report "
                      "'{}/page.html' --threads 1",
                      kText, kSizes, checkpoint, model, folder),
          fmt::format("{{}} & while ! test -e '{}' && kill -0 $!; do sleep 0.01; done; rmdir '{}'; wait $!",
                      checkpoint, folder));
  if (o.status == 0) GTEST_SKIP() << "it had finished when the folder was removed";
  EXPECT_EQ(results_of(o, 1).size(), 1U);
  EXPECT_TRUE(says(o.err, "page.html"));
  EXPECT_TRUE(std::filesystem::exists(model));
}

TEST_F(TrainBertCliTest, AResumedTrainingDoesNotReadWhereItBegan) {
  const std::string options = fmt::format("{} --checkpoint '{}'", small(), path("checkpoint.safetensors"));
  ASSERT_EQ(run(options).status, 0);
  EXPECT_EQ(run(options + " --resume --init nowhere.safetensors").status, 0);
}

TEST_F(TrainBertCliTest, PrintsALinePerEvaluation) {
  const Outcome o = run(small());
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.err, "");
  for (const char* words : {"synthetic text", "BERT-tiny", "packs", "held-out loss", "sequences and"})
    EXPECT_TRUE(says(o.out, words));
}

TEST_F(TrainBertCliTest, OptionsReachTheTraining) {
  for (const char* options :
       {"--pack none", "--max-per-pack 2 --average sequence", "--numbers mlperf-v1 --rounding nearest",
        "--numbers mlperf-v2 --average pack", "--numbers bf16 --micro-batches 2",
        "--numbers mlperf-v2 --sums f32 --micro-batches 2", "--numbers mlperf-v1 --partials f32",
        "--numbers bf16 --partials bf16", "--numbers mlperf-slides --micro-batches 2",
        "--numbers mlperf-v1 --loss-scale dynamic",
        "--optimizer adamw --lr 0.001 --lr-schedule linear --warmup 2 --clip-norm 1",
        "--dropout 0 --optimizer sgd"})
    EXPECT_TRUE(train(fmt::format("{} --steps 3 {}", kSizes, options))["finished"]) << options;
  EXPECT_EQ(train("--length 16,32 --batch 8,4 --steps 3,2")["steps"], 5);
  const json rounded = train(
      "--length 16 --batch 2 --steps 1 --numbers mlperf-v2 --rounding parameters=nearest,state=stochastic");
  EXPECT_EQ(rounded["settings"]["rounding"],
            json::parse(R"({"parameters": "nearest", "state": "stochastic", "partials": "stochastic"})"));
  const json scaled = train("--length 16 --batch 2 --steps 1 --numbers mlperf-v2 --loss-scale 1024");
  EXPECT_EQ(scaled["settings"]["loss_scale"], 1024);
}

TEST_F(TrainBertCliTest, ContinuesBitByBitAfterKill) {
  const std::string killed = path("killed.safetensors"), whole = path("whole.safetensors");
  const std::string many =
      fmt::format("{} {} --json --steps 12 --evaluate-every 4 --checkpoint ", kText, kSizes);
  ASSERT_EQ(run(fmt::format("{}'{}' --threads 1", many, whole)).status, 0);
  run(fmt::format("{}'{}' --threads 2", many, killed),
      fmt::format("{{}} & while ! test -e '{}' && kill -0 $!; do sleep 0.01; done; kill -KILL $!; wait $!",
                  killed));
  ASSERT_TRUE(std::filesystem::exists(killed));
  expect_refused(run(fmt::format("{}'{}'", many, killed)), "exists: add --resume");
  const Outcome resumed = run(fmt::format("{}'{}' --threads 1 --resume", many, killed));
  EXPECT_GT(results_of(resumed)[0]["resumed_from_step"], 0);
  EXPECT_TRUE(content_of(killed) == content_of(whole));
}

TEST_F(TrainBertCliTest, AnInterruptedTrainingGoesOn) {
  const std::string stopped = path("stopped.safetensors"), whole = path("whole.safetensors");
  const std::string many = fmt::format("{} {} --steps 12 --evaluate-every 4 --checkpoint ", kText, kSizes);
  ASSERT_EQ(run(fmt::format("{}'{}' --threads 1", many, whole)).status, 0);
  const Outcome o =
      run(fmt::format("{}'{}'", many, stopped),
          fmt::format("{{}} & while ! test -e '{}' && kill -0 $!; do sleep 0.01; done; kill -INT $!; wait $!",
                      stopped));
  if (o.status == 0) GTEST_SKIP() << "it had finished when the signal came";
  expect_failure(130, o, "interrupted after step ");
  ASSERT_EQ(run(fmt::format("{}'{}' --threads 1 --resume", many, stopped)).status, 0);
  EXPECT_TRUE(content_of(stopped) == content_of(whole));
}

TEST_F(TrainBertCliTest, ReadsFilesAndFolders) {
  const TokenText text = synthetic_text({.vocabulary = 64, .documents = 50});
  const TextSplit split = split_text(text, 0.2, 1);
  write_tokens(path("all.safetensors"), text);
  std::filesystem::create_directories(path("folder"));
  write_tokens(path("folder/train.safetensors"), *split.train);
  write_tokens(path("folder/test.safetensors"), *split.held_out);
  const std::string options = "train bert --length 32 --batch 4 --steps 2 --json --data ";
  for (const char* name : {"all.safetensors", "folder"}) {
    const json r = results_of(run(fmt::format("{}'{}'", options, path(name))))[0];
    EXPECT_EQ(r["settings"]["vocab_size"], 64);
  }
}

TEST_F(TrainBertCliTest, ParametersAreSavedAndTakenUp) {
  const std::string model = path("model.safetensors");
  const json first = train(fmt::format("{} --steps 6 --lr 0.05 --save '{}'", kSizes, model));
  const json second = train(fmt::format("{} --steps 1 --lr 1e-30 --init '{}'", kSizes, model));
  EXPECT_EQ(first["evaluations"][0]["held_out_loss"], second["evaluations"][0]["held_out_loss"]);
}

TEST_F(TrainBertCliTest, TilesTrainAsTheHost) {
  const std::string options = "--steps 2 --evaluate-every 1 --batch 1 --length 16 --dropout 0";
  const json host = train_few(options + " --tiles 2"),
             tiles = train_few(fmt::format("{} --machine '{}'", options, tiles_of("gc200", 64)));
  for (size_t i = 0; i < 2; ++i)
    EXPECT_NEAR(tiles["evaluations"][i]["held_out_loss"].get<double>(),
                host["evaluations"][i]["held_out_loss"].get<double>(), 2e-3);
  EXPECT_GT(tiles["cycles"], 0);
}

/// Unchanged BERT-tiny, with all of its tokens, on all tiles of a chip.
TEST_F(TrainBertCliTest, AWholeChipTrainsBertTinyAsTheHost) {
  if (!test::is_full()) GTEST_SKIP() << "a whole chip takes a minute, in ./test --full";
  const auto train_on = [&](const char* machine) {
    return results_of(run(
        fmt::format("train bert --documents 20 --vocabulary 30522 --seed 3 --length 64 --batch 1 --steps 2 "
                    "--evaluate-every 2 --dropout 0 --json --machine {}",
                    machine)))[0];
  };
  const json host = train_on("host --tiles 2"), tiles = train_on("gc200");
  EXPECT_EQ(tiles["tiles"], 1472);
  EXPECT_EQ(tiles["settings"]["vocab_size"], 30522);
  ASSERT_EQ(tiles["evaluations"].size(), 1U);
  for (const char* loss : {"loss", "held_out_loss"})
    EXPECT_NEAR(tiles["evaluations"][0][loss].get<double>(), host["evaluations"][0][loss].get<double>(), 2e-3)
        << loss;
  EXPECT_GT(tiles["cycles"], 0);
}

/// In 16 bits, with dropout off and rounding to the nearest, as draws of FP16 sums differ by machine.
TEST_F(TrainBertCliTest, TilesTrainAsTheHostIn16Bits) {
  const std::string options =
      "--steps 2 --evaluate-every 1 --batch 1 --length 16 --dropout 0 --rounding nearest --numbers ";
  test::EveryNth some(2);
  for (const char* numbers : {"mlperf-v1", "mlperf-slides"}) {
    if (!some.takes()) continue;
    const json host = train_few(options + numbers + " --tiles 2"),
               tiles = train_few(fmt::format("{}{} --machine '{}'", options, numbers, tiles_of("gc200", 64)));
    for (size_t i = 0; i < 2; ++i)
      EXPECT_NEAR(tiles["evaluations"][i]["held_out_loss"].get<double>(),
                  host["evaluations"][i]["held_out_loss"].get<double>(), 2e-2)
          << numbers;
  }
}

/// With all tokens of BERT, whose embeddings fill most of the memory, or the same number on each tile; and
/// with the default optimizer, which takes norms of all parameters.
TEST_F(TrainBertCliTest, AStepWithBertsVocabularyFitsTiles) {
  const uint32_t vocabulary = test::is_full() ? 30522 : 8000;
  const json r = results_of(run(fmt::format(
      "train bert --documents 100 --vocabulary {} --length 64 --batch 1 --machine '{}' --estimate "
      "--json",
      vocabulary, tiles_of("gc200", 400))))[0];
  EXPECT_EQ(r["settings"]["optimizer"], "lamb");
  EXPECT_EQ(r["settings"]["vocab_size"], vocabulary);
  EXPECT_TRUE(r["phases"][0]["step"]["fits"]);
  EXPECT_GT(r["predicted_seconds"], 0);
}

TEST_F(TrainBertCliTest, WritesAReport) {
  const std::string page = path("page.html");
  for (const char* options : {"", "--estimate"}) {
    const Outcome o = run(fmt::format("{} --report '{}' {}", small(), page, options));
    ASSERT_EQ(o.status, 0) << o.err;
    const std::string text = testing::MarkupReader::read(content_of(page)).whole_text();
    for (const char* words : {"Pre-training of BERT-tiny", "Memory of a training step", "vocab_size",
                              "values that are stored", "6 steps of 4 packs"})
      EXPECT_TRUE(says(text, words));
  }
}

/// A file of tokens whose vocabulary has 64 tokens, with two other characters for that number.
std::string with_vocabulary(std::string file, const std::string& two) {
  const std::string key = "\"vocabulary\":\"";
  const size_t at = file.find(key + "64");
  EXPECT_NE(at, std::string::npos);
  return at == std::string::npos ? file : file.replace(at + key.size(), 2, two);
}

TEST_F(TrainBertCliTest, SaysWhatIsWrong) {
  const std::string file = path("tokens.safetensors");
  write_tokens(file, synthetic_text({.vocabulary = 64, .documents = 50}));
  for (const auto& [options, message] : std::initializer_list<std::pair<std::string, std::string>>{
           {"--length 1024", "the length is 1024; it must be at most the positions of the model, 512"},
           {"--size huge", "huge"},
           {"--numbers fp8", "unknown numbers 'fp8' (choose from fp32, bf16"},
           {"--rounding stochastic", "the numbers fp32 have none"},
           {"--rounding moments=nearest", "--rounding: invalid value 'moments=nearest' (choose from nearest"},
           {"--rounding parameters=nearest", "parameters are FP32 with the numbers fp32, and not rounded"},
           {"--loss-scale much", "--loss-scale: invalid value 'much' (expected a number or dynamic)"},
           {"--loss-scale 0", "the loss scale is 0; it must be positive"},
           {"--length 16,32 --batch 1,2,3", "--batch has 3 items"},
           {"--steps 2 --epochs 2", "leave out one of them"},
           {"--batch 5 --micro-batches 2", "cannot be divided into 2"},
           {"--stages 3", "the number of stages is 3; it must be 1 to the number of layers, 2"},
           {"--machine m2000 --stages 2 --pipeline grouped --micro-batches 4",
            "a grouped pipeline of 2 stages and one for the prediction of masked tokens takes a multiple of "
            "6 micro-batches, not 4"},
           {"--documents 60 --length 16 --machine m2000 --batch 6 --replicas 3 --estimate",
            "3 replicas of a program need a machine of whole chips, equally many for each; 'm2000' has 4"},
           {"--batch 100000", "is larger than the"},
           {"--steps 0", "--steps: invalid value '0' (expected whole numbers from 1 to"},
           {"--length 0", "--length: invalid value '0' (expected whole numbers from 1 to"},
           {"--batch 4,0 --length 16,32", "--batch: invalid value '0' (expected whole numbers from 1 to"},
           {"--estimate --init nowhere", "--estimate trains no parameters; leave out --estimate or --init"},
           {"--estimate --save model.safetensors", "leave out --estimate or --save"},
           {"--plan", "a plan is for a modelled machine"},
           {"--plan --machine m2000 --length 16,32", "a plan is of packs of one length"},
           {"--plan --machine m2000 --estimate",
            "--plan only searches, and trains and reports nothing; leave out"},
           {"--plan --machine m2000 --save model.safetensors", "leave out --plan or --save"},
           {"--plan-estimates 2", "--plan-estimates is for --plan"},
           {"--plan-time-limit 2", "--plan-time-limit is for --plan"},
           {"--plan --machine m2000 --plan-time-limit 0",
            "--plan-time-limit: invalid value '0' (expected seconds"},
           {"--plan --machine m2000 --plan-estimates 0",
            "--plan-estimates: invalid value '0' (expected a whole number from 1 to"},
           {"--pack none --max-per-pack 2", "--max-per-pack is for --pack optimal"},
           {"--estimate-packs --machine gc200", "--estimate-packs is for --estimate on a modelled machine"},
           {"--estimate-packs --estimate", "--estimate-packs is for --estimate on a modelled machine"},
           {"--resume", "--resume is for --checkpoint FILE"},
           {"--optimizer sgd --betas 0.9,0.9", "--betas is for --optimizer adam"},
           {"--data nowhere --vocabulary 100", "--vocabulary is for synthetic text"}})
    expect_refused(run("train bert " + options), message);
  expect_refused(run("train --lr 1 bert"), "--lr stands before bert");
  expect_refused(run(fmt::format("train bert --data '{0}' --save '{0}'", file)),
                 "--data and --save name the same file");
  const auto fails = [&](const std::string& options, const std::string& message) {
    expect_failure(1, run("train bert --steps 1 --batch 2 " + options), message);
  };
  fails("--data nowhere.safetensors", "nowhere.safetensors");
  fails(fmt::format("--data '{}'", path("")), "lacks train.safetensors");
  const std::string whole = content_of(file);
  fails(fmt::format("--data '{}'", this->file("cut.safetensors", whole.substr(0, whole.size() - 3))),
        "it may be truncated");
  fails(fmt::format("--data '{}'", this->file("text.txt", "some words")), "text.txt");
  for (const auto& [vocabulary, message] :
       {std::pair("6x", "its vocabulary is \"6x\"; it must be a whole number"),
        {"40", ", beyond the vocabulary of 40"},
        {" 1", "its vocabulary is \" 1\"; it must be a whole number"},
        {"07", "a vocabulary of 7 tokens; it has 8 to"}})
    fails(
        fmt::format("--data '{}'", this->file("vocabulary.safetensors", with_vocabulary(whole, vocabulary))),
        message);
  fails(fmt::format("--checkpoint '{}' --resume", this->file("other.safetensors", whole)),
        "a checkpoint of format 'tessera tokens 1'");
}

}  // namespace
}  // namespace tessera
