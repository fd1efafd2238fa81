// The study of sequence packing, on a small histogram.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "io/files.h"
#include "studies/packing/study.h"
#include "studies/packing/training_cell.h"
#include "studies/paper/tables.h"
#include "support/error_of.h"

namespace tessera::studies::packing {
namespace {

/// With all packings of its first data set.
const Study& study() {
  static const Study made = [] {
    const test::TemporaryFolder folder;
    folder.write("lengths.csv", "length,count\n1,20\n2,30\n3,9\n5,14\n7,6\n8,4\n");
    Study s(paper(), {.only = {"wikipedia"}});
    s.request.lengths = {pack::read_histogram(folder.file("lengths.csv"), 8).histogram};
    s.parts.push_back({machine::host(1), {}});
    for (const Cell& cell : paper().sections[0].cells(s.parts[0].machine, s.request))
      s.parts[0].results[{"wikipedia", cell.name}] = cell.run({s.parts[0].machine});
    return s;
  }();
  return made;
}

/// The packings, by "depth 3 best".
std::map<std::string, Result> packings() {
  std::map<std::string, Result> all;
  for (const auto& [key, result] : study().parts[0].results)
    all[key.second.substr(0, key.second.find(','))] = result;
  return all;
}

TEST(PackingStudy, RunsEveryAlgorithmAtEveryDepth) {
  const auto all = packings();
  EXPECT_EQ(all.size(), 1 + 3 * 7 + 1U);
  for (const char* name : {"depth 1 none", "depth 2 spfhp", "depth 2 lpfhp", "depth 2 best", "depth 3 nnlshp",
                           "depth 16 best", "depth any best"})
    EXPECT_TRUE(all.contains(name)) << name;
  EXPECT_EQ(all.at("depth 1 none").value("packs"), 83);  // a sequence each
  for (const auto& [name, packing] : all) {
    EXPECT_GE(packing.value("packs"), packing.value("lower_bound")) << name;
    EXPECT_EQ(packing.value("sequences"), 83) << name;
  }
}

// Cells of an earlier run belong to another data set unless its lengths are the same.
TEST(PackingStudy, CellsAreOfTheirLengthsAlone) {
  const auto first_cell_of = [](std::vector<uint64_t> counts) {
    const Request request{.lengths = {pack::Histogram{std::move(counts)}}};
    return paper().sections[0].cells(machine::host(1), request)[0].name;
  };
  const std::string name = first_cell_of({0, 2, 3, 2, 0});
  EXPECT_EQ(first_cell_of({0, 2, 3, 2, 0}), name);
  EXPECT_NE(first_cell_of({0, 2, 2, 3, 0}), name);  // as many sequences
  EXPECT_NE(first_cell_of({0, 3, 1, 3, 0}), name);  // and tokens
  EXPECT_NE(first_cell_of({0, 2, 3, 2}), name);     // in shorter packs
}

TEST(PackingStudy, RowsOfADepthShareTheBestBound) {
  const Figure figure = paper().sections[0].figures(study())[0];
  std::map<std::string, std::string> bounds;
  for (const auto& row : figure.rows)
    EXPECT_EQ(bounds.emplace(row[1].words, row[8].words).first->second, row[8].words) << row[0].words;
  EXPECT_EQ(std::stod(bounds.at("2")), packings().at("depth 2 best").value("lower_bound"));
}

TEST(PackingStudy, PublishedRowsStandBeside) {
  std::map<std::string, Comparison> all;
  for (const Comparison& c : paper().sections[0].comparisons(study())) all[c.what] = c;
  EXPECT_EQ(all.at("depth 3 spfhp: packs").published, 9.095e6);
  EXPECT_EQ(all.at("depth 3 spfhp: efficiency").published, .8944);
  EXPECT_EQ(all.at("depth 3 spfhp: packs").ours, packings().at("depth 3 spfhp").value("packs"));
  EXPECT_EQ(all.at("depth 3 best: packs").published, std::nullopt);
  EXPECT_TRUE(test::says(csv(study()), "depth 3 spfhp: packing_factor"));
  const std::string tables = text(figures_of(study())[0]);
  EXPECT_TRUE(test::says(tables, "1.790"));
  EXPECT_TRUE(test::says(tables, "1.913"));  // the speed-up of nnlshp
}

TEST(PackingStudy, SampledPacksStandForAll) {
  const pack::Packing packing =
      pack::plan(study().request.lengths[0], {.algorithm = pack::Algorithm::spfhp, .max_per_pack = 4});
  uint64_t tokens = 0, sequences = 0;
  for (const PackLengths& pack : sample_packs(packing, packing.packs())) {
    sequences += pack.size();
    tokens = std::accumulate(pack.begin(), pack.end(), tokens);
  }
  EXPECT_EQ(sequences, packing.sequences);
  EXPECT_EQ(tokens, packing.tokens);
  const std::vector<PackLengths> few = sample_packs(packing, 6);
  ASSERT_EQ(few.size(), 6u);
  EXPECT_TRUE(std::ranges::is_sorted(few, {}, &PackLengths::size));
  const auto of_few = std::accumulate(few.begin(), few.end(), size_t{0},
                                      [](size_t sum, const PackLengths& pack) { return sum + pack.size(); });
  EXPECT_NEAR(static_cast<double>(of_few) / 6, packing.packing_factor(), 0.5);
}

TEST(PackingStudy, TrainingBatchesAreOfTheirPacks) {
  const std::vector<PackLengths> packs = {{5, 3}, {8}};
  const graph::BertBatch shape{.packs = 2, .tokens = 8, .sequences = 2, .predictions = 3};
  const PretrainingBatch batch = random_batch(packs, shape, 100);
  EXPECT_EQ(batch.sequence_ids, (PretrainingBatch::Array{1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(batch.position_ids, (PretrainingBatch::Array{0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(batch.cls_positions[1], 5u);
  EXPECT_EQ(batch.tokens, 16u);
  EXPECT_EQ(batch.sequences, 3u);
  EXPECT_EQ(batch.predictions, predictions_of(5) + predictions_of(3) + predictions_of(8));
  EXPECT_LT(std::ranges::max(batch.input_ids), 100u);
}

TEST(PackingStudy, StepsOfBertAreTimed) {
  const auto packing = [](uint32_t depth) {
    return pack::plan(study().request.lengths[0], {.max_per_pack = depth});
  };
  graph::BertConfig config = graph::BertConfig::named("tiny");
  config.vocab_size = 100;
  const SecondsPerPack seconds = measure_training(config, packing(2), packing(1), 1, 1);
  EXPECT_GT(seconds.packed, 0);
  EXPECT_GT(seconds.padded, 0);
}

TEST(PackingStudy, SpeedUpsOfTrainingAreThoseOfSequences) {
  const Section& training = paper().sections[2];
  Study s(paper(), {.only = {"training"}});
  s.request.lengths = study().request.lengths;
  s.parts.push_back({machine::host(1), {}});
  for (const Cell& cell : training.cells(s.parts[0].machine, s.request))
    s.parts[0].results[{"training", cell.name}].values = {
        {"packing_factor", 1.6}, {"seconds_per_pack", 2.5}, {"seconds_per_padded_sequence", 2}};
  const std::vector<Comparison> all = training.comparisons(s);
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[0].what, "depth 2 spfhp: speed-up of training");
  EXPECT_DOUBLE_EQ(all[0].ours.value(), 1.6 * 2 / 2.5);
  EXPECT_EQ(all[0].published, 1.544);
  const Figure figure = training.figures(s)[0];
  ASSERT_EQ(figure.rows.size(), 6u);
  EXPECT_EQ(figure.rows[0].size(), figure.head.size());
  EXPECT_TRUE(test::says(text(figure), "1.280"));  // 1.6 · 2 / 2.5
}

TEST(PackingStudy, AMissingFileIsNamed) {
  Request request;
  EXPECT_TRUE(
      test::says(test::error_of([&] { paper().data->load("/nowhere", request); }), "wikipedia-512.csv"));
}

}  // namespace
}  // namespace tessera::studies::packing
