// The study of the MLPerf slides: its rows, and the numbers beside them.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/resnet_training.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "data/image_source.h"
#include "data/text/batch.h"
#include "studies/mlperf/bert_steps.h"
#include "studies/mlperf/local_batch.h"
#include "studies/mlperf/resnet_steps.h"
#include "studies/mlperf/rows.h"
#include "studies/mlperf/small_sums.h"
#include "studies/mlperf/state_bytes.h"
#include "studies/mlperf/study.h"
#include "studies/paper/tables.h"
#include "support/error_of.h"
#include "support/number_of.h"
#include "train/bert/network.h"

namespace tessera::studies::mlperf {
namespace {

const Section& section_named(std::string_view name) {
  for (const Section& section : paper().sections)
    if (section.name == name) return section;
  throw Error("there is no such section");
}

/// A study with both machines, before anything ran.
Study empty_study() {
  Study study(paper(), {.machines = {"pod16", "host"}});
  study.parts.push_back({machine::find("pod16"), {}});
  study.parts.push_back({machine::host(1), {}});
  return study;
}

/// All steps of BERT take the same time, except steps of padded sequences.
Study study_with_steps(double seconds, double padded_seconds) {
  Study study = empty_study();
  Part& pod = study.parts[0];
  for (const Cell& cell : section_named(kSteps).cells(pod.machine, study.request)) {
    const bool is_padded = cell.name.find("at most 1 in a pack") != std::string::npos;
    pod.results[{std::string(kSteps), cell.name}].values["seconds"] = is_padded ? padded_seconds : seconds;
  }
  return study;
}

std::map<std::string, Comparison> comparisons_by_name(std::string_view section, const Study& study) {
  std::map<std::string, Comparison> all;
  for (const Comparison& c : section_named(section).comparisons(study)) all[c.what] = c;
  return all;
}

TEST(MlperfStudy, PublishedTablesStateTheirSource) {
  ASSERT_EQ(kSlides.size(), 3u);
  for (const base::EmbeddedFile& file : kSlides) EXPECT_TRUE(file.content.starts_with("# ")) << file.name;
  const Published published(kSlides, "");
  EXPECT_EQ(published.number(kSlidesTable, "GC200: memory", "value"), 900);
  EXPECT_EQ(published.number(kSlidesTable, "positions", "value"), std::nullopt);
  EXPECT_EQ(published.number(kLogsTable, "BERT open v1.1 POD16", "minutes"), 26.05);
  EXPECT_EQ(published.number(kStepsTable, "v1.1 POD16 packed", "steps"), 1141);
}

/// Whatever ran: every row has a number, words, or the reason why there is none.
TEST(MlperfStudy, EveryPublishedRowHasOursOrAReason) {
  const Study study = empty_study();
  std::set<std::string> rows;
  for (const Section& section : paper().sections)
    for (const Comparison& c : section.comparisons(study)) {
      rows.insert(c.what);
      EXPECT_TRUE(c.published || !c.says.empty()) << c.what;
      EXPECT_TRUE(c.ours || !c.remark.empty()) << c.what;
      EXPECT_FALSE(test::says(c.remark, "nothing of ours beside it")) << c.what;
      EXPECT_TRUE(!c.ours || !c.origin.empty()) << c.what;
    }
  for (const char* table : {kSlidesTable, kLogsTable})
    for (const PublishedRow& row : study.published.rows(table))
      EXPECT_TRUE(rows.contains(row.text("name"))) << row.where();
}

TEST(MlperfStudy, MachinesHaveTheirPublishedFigures) {
  const auto all = comparisons_by_name("hardware", empty_study());
  for (const char* exact : {"GC200: tiles", "GC200: threads", "M2000: chips", "M2000: exchange memory",
                            "POD64: servers", "POD64: machines", "M2000: host link", "POD64: chips"})
    EXPECT_NEAR(all.at(exact).ratio().value(), 1, 1e-9) << exact;
  for (const char* near : {"GC200: memory", "GC200: memory bandwidth", "GC200: exchange", "GC200: compute"})
    EXPECT_NEAR(all.at(near).ratio().value(), 1, 0.03) << near;
  EXPECT_EQ(all.at("GC200: die").ours, std::nullopt);
  EXPECT_EQ(all.at("GC200: tiles").origin, "modelled");
}

TEST(MlperfStudy, SetupsHaveThePacksOfTheirConfigurations) {
  const Published published(kSlides, "");
  for (const char* name : {"v1.0 POD16", "v1.0 POD64", "v2.0 POD16", "v2.0 POD64"}) {
    const BertSetup* setup = find_setup(name);
    ASSERT_NE(setup, nullptr) << name;
    EXPECT_FALSE(setup->is_assumed) << name;
    EXPECT_EQ(setup->packs_of_step(), published.number(kStepsTable, name, "packs")) << name;
    EXPECT_EQ(setup->listed_batch(), published.number(kStepsTable, name, "listed")) << name;
  }
  for (const BertSetup& setup : bert_setups()) {
    EXPECT_EQ(machine::find(setup.machine).chips, setup.chips()) << setup.name;
    uint32_t attention = setup.head_layers, feed_forward = setup.head_feed_forwards;
    for (const uint32_t layers : setup.layers) attention += layers;
    for (const uint32_t layers : setup.feed_forwards) feed_forward += layers;
    EXPECT_EQ(attention, 24u) << setup.name;
    EXPECT_EQ(feed_forward, setup.feed_forwards.empty() ? 0u : 24u) << setup.name;
  }
  EXPECT_EQ(setup_of("v1.1", 64), find_setup("v1.0 POD64"));
  EXPECT_EQ(setup_of("v2.0", 64), find_setup("v2.0 POD64"));
  EXPECT_EQ(setup_of("v1.1", 256), nullptr);
}

TEST(MlperfStudy, InputsAreTheArraysOfABatch) {
  const graph::BertBatch shape = pack_of(3, 2);
  EXPECT_EQ(shape.predictions, 79u);
  EXPECT_EQ(pack_of(1, 2).predictions, 76u);
  const PretrainingBatch batch = train::padding_of(shape, 0);
  size_t elements = 0;
  for (const auto* array : {&batch.input_ids, &batch.token_type_ids, &batch.position_ids, &batch.sequence_ids,
                            &batch.masked_lm_positions, &batch.masked_lm_labels, &batch.cls_positions,
                            &batch.next_sentence_labels})
    elements += array->size();
  EXPECT_EQ(input_bytes(shape), 4 * elements);
}

/// 8 · 2² + 4 · 2 · 3 + 4 · 2 · 5 operations for each of 5 tokens in a layer.
TEST(MlperfStudy, OperationsAreThoseOfProductsAndAttention) {
  graph::BertConfig config;
  config.vocab_size = 7;
  config.hidden_size = 2;
  config.num_hidden_layers = 3;
  config.intermediate_size = 3;
  graph::BertBatch step{.packs = 1, .tokens = 5, .sequences = 0, .predictions = 0};
  EXPECT_EQ(forward_flops(config, step), 5.0 * 3 * (32 + 24 + 40));
  step.predictions = 1;
  EXPECT_EQ(forward_flops(config, step), 5.0 * 3 * (32 + 24 + 40) + 4 * (2 + 7));
}

TEST(MlperfStudy, GainsCountTheFactorAndTheStepsOfBoth) {
  const auto all = comparisons_by_name("speed-up", study_with_steps(2, 1.9));
  // The factor of nnlshp, which is the published one as nothing was packed.
  EXPECT_NEAR(all.at("depth 3 nnlshp: speed-up").ours.value(), 1.996 * 1.9 / 2, 1e-9);
  EXPECT_EQ(all.at("depth 3 nnlshp: speed-up").published, 1.913);
  EXPECT_EQ(all.at("depth 3 nnlshp: speed-up").origin, "modelled");
  EXPECT_EQ(all.at("depth 1 none: speed-up").ours, 1);
  EXPECT_EQ(all.at("depth 1 none: speed-up").published, 1);
  const double with_transfers = all.at("packed in time").ours.value();
  EXPECT_EQ(with_transfers, all.at("depth 3 nnlshp: speed-up with transfers").ours);
  EXPECT_NEAR(with_transfers, 1.996 * 1.9 / 2, 1e-2);
  EXPECT_GT(all.at("FLOPs reduced").ours.value(), 1.9);
  EXPECT_LT(all.at("FLOPs reduced").ours.value(), 1.996);
  EXPECT_EQ(all.at("original beside packed").ours, std::nullopt);  // measured on the host
}

TEST(MlperfStudy, TimesToTrainAreStepsOfAsManySequences) {
  const auto all = comparisons_by_name("time", study_with_steps(1.4, 1));
  EXPECT_NEAR(all.at("BERT open v1.1 POD16").ours.value(), 1141 * 1.4 / 60, 1e-9);
  EXPECT_NEAR(all.at("BERT closed v2.0 POD64").ours.value(), 1141 * 1.4 / 60 * 3072 / 4608, 1e-9);
  EXPECT_EQ(all.at("BERT closed v1.0 POD16").ours, all.at("BERT open v1.0 POD16").ours);
}

/// Passes take 10 ms each, and the rest takes 10 ms once.
TEST(MlperfStudy, StepsOfResnetFollowFromThoseOfOtherMicroBatches) {
  Study study = empty_study();
  EXPECT_EQ(comparisons_by_name(kResnet, study).at("ResNet-50 v2.0 POD16").remark, "not run here");
  Part& pod = study.parts[0];
  for (const Cell& cell : section_named(kResnet).cells(pod.machine, study.request)) {
    const bool has_six = cell.name.find("6 micro-batches") != std::string::npos;
    pod.results[{std::string(kResnet), cell.name}].values = {{"seconds", has_six ? 0.07 : 0.03},
                                                             {"tile_bytes", 600000}};
  }
  const auto step_of_round = [&](const char* round, uint32_t chips) {
    return modelled_resnet_step(study, *resnet_setup_of(round, chips)).value();
  };
  EXPECT_TRUE(step_of_round("v1.0", 16).is_whole);
  EXPECT_TRUE(step_of_round("v1.0", 64).is_whole);
  EXPECT_FALSE(step_of_round("v1.1", 16).is_whole);
  EXPECT_NEAR(step_of_round("v1.1", 16).seconds, 0.11, 1e-9);
  EXPECT_NEAR(step_of_round("v1.1", 64).seconds, 0.04, 1e-9);
  const double clocks = machine::find("pod64").clock_hz / machine::find("bow_pod64").clock_hz;
  EXPECT_NEAR(step_of_round("v2.0", 64).seconds, 0.05 * clocks, 1e-9);
  EXPECT_NEAR(step_of_round("v2.0", 16).seconds, (0.01 + 1.1 * 0.1) * clocks, 1e-9);
  const auto all = comparisons_by_name(kResnet, study);
  EXPECT_NEAR(all.at("ResNet-50 v1.0 POD16").ours.value(), 44 * 1281167.0 / 1920 * 0.07 / 60, 1e-6);
  EXPECT_EQ(all.at("ResNet-50: local batch").ours, 20);
  EXPECT_EQ(all.at("ResNet-50: chips of a replica").ours, 1);
  // 20 * 2 * 64 images in 30 ms.
  EXPECT_EQ(all.at("ResNet-50: hosts at most").ours, 2);
  for (auto& [key, result] : pod.results) result.fits = false;
  EXPECT_TRUE(test::says(comparisons_by_name(kResnet, study).at("ResNet-50: chips of a replica").remark,
                         "does not fit"));
}

TEST(MlperfStudy, SetupsOfResnetAreThoseOfTheSubmissions) {
  for (const ResnetSetup& setup : resnet_setups())
    EXPECT_EQ(machine::find(setup.machine).chips, setup.chips) << setup.machine;
  EXPECT_EQ(resnet_setup_of("v1.0", 16)->images(), 1920U);
  EXPECT_EQ(resnet_setup_of("v2.0", 256)->images(), 10240U);
  EXPECT_EQ(resnet_setup_of("v1.0", 128), nullptr);
  const ResnetTrainingSettings settings = settings_of(*resnet_setup_of("v1.0", 64));
  EXPECT_EQ(settings.batch, 2560U);
  EXPECT_EQ(settings.norm_replicas, 2U);
  EXPECT_TRUE(settings.recompute);
}

TEST(MlperfStudy, StepsOfResnetAreEstimated) {
  if (!test::is_full()) GTEST_SKIP() << "of ./test --full";
  const ResnetSetup setup{.machine = "m2000", .chips = 4, .local_batch = 2, .accumulation = 2};
  ResnetTrainingSettings settings = settings_of(setup);
  settings.depth = 8;
  const Result result =
      estimate_resnet_step(setup, settings, train::outlined_images({"", 100, 10, {8, 8, 10, 3}}).format);
  EXPECT_TRUE(result.fits) << result.reason;
  EXPECT_GT(result.value("seconds").value(), 0);
  EXPECT_GT(result.value("tile_bytes").value(), 0);
}

TEST(MlperfStudy, StepsBesideTheLogsAreShown) {
  const Study study = study_with_steps(1.4, 1);
  const auto all = comparisons_by_name(kSteps, study);
  EXPECT_EQ(all.at("a step of a POD16").ours, 1.4);
  EXPECT_EQ(all.at("a step of a POD16").published, 1.37);
  EXPECT_EQ(all.at("batch of v1.0 POD16").ours, 3072);
  EXPECT_TRUE(test::says(all.at("batch of v1.0 POD16").remark, "1536 packs"));
  for (const Section& section : paper().sections)
    for (const Figure& figure : section.figures(study))
      for (const auto& row : figure.rows) EXPECT_EQ(row.size(), figure.head.size()) << figure.title;
  EXPECT_EQ(section_named(kSteps).figures(study)[0].rows.size(), bert_setups().size());
  EXPECT_TRUE(test::says(json(study), "\"origin\": \"modelled\""));
}

/// As the study of packing names them.
TEST(MlperfStudy, PackingsAreThoseOfTheStudyOfPacking) {
  Study study = empty_study();
  study.parts[1].results[{"squad-1.1", "depth 2 spfhp, of some lengths"}].values = {
      {"packs", 45335}, {"strategies", 348}, {"padding", 2159161}};
  const auto all = comparisons_by_name("squad-1.1", study);
  for (const char* exact : {"depth 2 spfhp: strategies", "depth 2 spfhp: tokens", "depth 2 spfhp: padding"})
    EXPECT_EQ(all.at(exact).ours, all.at(exact).published) << exact;
  EXPECT_EQ(all.at("depth 3 spfhp: tokens").ours, std::nullopt);
  EXPECT_EQ(all.at("depth 3 spfhp: tokens").remark, "not run here");
  // Without lengths nothing is packed.
  EXPECT_TRUE(section_named("squad-1.1").cells(machine::host(1), {}).empty());
}

TEST(MlperfStudy, AttentionIsThatOfTheSlide) {
  Study study = empty_study();
  for (const Cell& cell : section_named("model").cells(study.parts[1].machine, {}))
    study.parts[1].results[{"model", cell.name}] = cell.run({study.parts[1].machine});
  const auto all = comparisons_by_name("model", study);
  EXPECT_EQ(all.at("mask: pairs that attend").ours, 13);
  EXPECT_TRUE(test::says(all.at("positions").remark, "0 1 2 0 1"));
  EXPECT_TRUE(test::says(all.at("unpacking for NSP").remark, "0 3"));
}

TEST(MlperfStudy, SmallTermsAreLostToNearestAlone) {
  const Result sums = small_sums(8192);
  EXPECT_EQ(sums.value("nearest"), 1);
  EXPECT_NEAR(sums.value("stochastic").value(), 2, 0.02);
}

TEST(MlperfStudy, ReplicasDivideTheState) {
  BertSetup setup{.name = "", .machine = "", .packs = 1, .layers = {2}};
  setup.numbers = "mlperf-v1";
  PretrainingSettings settings = settings_of(setup, graph::BertConfig::named("tiny"));
  settings.shard_from.reset();
  settings.stage_layers.clear();
  settings.pipeline = graph::PipelineKind::sequential;
  const graph::BertBatch batch = pack_of(2, 1);
  const Result state = state_result(train::pretraining_graph(settings, batch));
  const double parameters = state.value("parameters").value();
  EXPECT_EQ(state.value("parameter_bytes"), 2 * parameters);
  EXPECT_EQ(state_of_replica(state, 1), 2 * 4 * parameters);  // two FP32 moments
  EXPECT_LT(state_of_replica(state, 4), 0.26 * state_of_replica(state, 1));
  EXPECT_GT(state_of_replica(state, 4), 0.25 * state_of_replica(state, 1));
  settings.numbers = "mlperf-v2";
  EXPECT_EQ(state_of_replica(state_result(train::pretraining_graph(settings, batch)), 1), 2 * 2 * parameters);
}

TEST(MlperfStudy, AccumulationSavesUpdates) {
  const Result result{.values = {{"once_seconds", 2}, {"pass_seconds", 1}}};
  EXPECT_DOUBLE_EQ(update_share(result, 1), 2.0 / 3);
  EXPECT_DOUBLE_EQ(update_share(result, 198), 0.01);
}

TEST(MlperfStudy, ThePictureHasTheRecomputedPasses) {
  const std::vector<Figure> figures = section_named("pipeline").figures(empty_study());
  std::string pictures;
  for (const Figure& figure : figures) pictures += text(figure);
  for (const char* pass : {"F1", "F2", "F3", "R1", "R2", "R3", "B1", "B2", "B3"})
    EXPECT_TRUE(test::says(pictures, pass)) << pass;
  EXPECT_TRUE(test::says(section_named("pipeline").charts(empty_study()).code, "R3"));
}

TEST(MlperfStudy, LocalBatchesAndStepsAreEstimated) {
  if (!test::is_full()) GTEST_SKIP() << "of ./test --full";
  graph::BertConfig config = graph::BertConfig::named("mini");
  config.vocab_size = 512;
  config.num_hidden_layers = 2;
  const Result small = estimate_local_batch(config, {1, true}),
               large = estimate_local_batch(config, {4, true});
  EXPECT_GT(small.value("stash_bytes").value(), 0);
  EXPECT_GT(large.value("stash_bytes").value(), 3 * small.value("stash_bytes").value());
  EXPECT_GT(estimate_local_batch(config, {1, false}).value("stash_bytes"), small.value("stash_bytes"));
  EXPECT_GT(small.value("once_seconds").value(), 0);
  const BertSetup& setup = *find_setup("v1.0 POD16");
  config.num_hidden_layers = 4;
  PretrainingSettings settings = settings_of(setup, config);
  settings.stage_layers = {1, 1, 1, 1};
  const double extrapolated = extrapolate_step(setup, 3, settings).value("seconds").value();
  const Result whole = estimate_step(setup, 3, settings);
  EXPECT_NEAR(extrapolated / whole.value("seconds").value(), 1, 0.25);
  EXPECT_NEAR(whole.value("host_bytes").value(), static_cast<double>(input_bytes(pack_of(3, 1536))), 1e5);
}

}  // namespace
}  // namespace tessera::studies::mlperf
