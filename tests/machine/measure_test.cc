#include "machine/host/measure.h"

#include <gtest/gtest.h>
#include <tessera/error.h>

#include <cstdlib>
#include <fstream>

#include "io/files.h"
#include "machine/host/probes.h"
#include "support/error_of.h"

namespace tessera::machine {
namespace {

namespace fs = std::filesystem;

/// Operations of one iteration of fma_loop: 12 multiply-adds.
constexpr size_t kFlopsPerLane = 24;

HostMeasurement synthetic() {
  HostMeasurement m;
  m.cpu = "Some CPU";
  m.threads = 2;
  m.peaks = {{Isa::generic, {10, 20}, 3.0}, {Isa::avx2, {90, 180}, 3.0}};
  m.levels = {{"L1", 1 << 14, {180, 360}}, {"L2", 1 << 19, {90, 180}}, {"memory", 1 << 28, {12, 18}}};
  m.memory_write = {6, 9};
  m.memory_copy = {8, 12};
  m.superstep_seconds = 2e-7;
  return m;
}

HostFacts synthetic_facts() {
  HostFacts facts;
  facts.cpu = "Some CPU";
  return facts;
}

TEST(Measure, RatesOfThisComputerAreInOrder) {
  // Timings on a busy machine are rough; only invariants are tested.
  const HostFacts facts = detect_host();
  std::vector<std::string> steps;
  double last = -1;
  const HostMeasurement m = measure_host(facts, 2, [&](std::string_view what, double done) {
    steps.emplace_back(what);
    EXPECT_GT(done, last);
    last = done;
  });
  EXPECT_EQ(last, 1);
  EXPECT_EQ(steps.size(), m.peaks.size() + m.levels.size() + 4);
  EXPECT_EQ(m.peaks.size(), available_isas().size());
  EXPECT_GT(m.peaks.back().gflops.one, m.peaks.front().gflops.one);
  for (const PeakRate& peak : m.peaks) {
    EXPECT_GT(peak.gflops.all, 0.5);
    EXPECT_GT(peak.ghz, 0.1);
    EXPECT_LT(peak.ghz, 10);
  }
  EXPECT_GT(m.levels.front().read.one, m.levels.back().read.one);
  EXPECT_GT(m.memory_write.one, 0.05);
  EXPECT_GT(m.memory_copy.one, 0.05);
  EXPECT_GT(m.superstep_seconds, 3e-8);  // several lines go from core to core
  EXPECT_LT(m.superstep_seconds, 1e-2);
  EXPECT_EQ(active_isa(), available_isas().back());
}

TEST(Probes, UseTheActiveInstructionSet) {
  for (Isa isa : available_isas()) {
    restrict_isa(isa);
    ASSERT_EQ(active_isa(), isa);  // asking must not undo the restriction
    const size_t lanes = fma_loop_flops() / kFlopsPerLane;
    if (isa >= Isa::avx512) {
      EXPECT_EQ(lanes, 16u);
    }
    if (isa == Isa::avx2) {
      EXPECT_EQ(lanes, 8u);
    }
  }
  EXPECT_EQ(active_isa(), available_isas().back());
}

TEST(Measure, JsonKeepsEverything) {
  const HostMeasurement before = synthetic();
  const HostMeasurement after = measurement_from_json(to_json(before), "test");
  EXPECT_EQ(to_json(after), to_json(before));
  ASSERT_EQ(after.levels.size(), 3u);
  EXPECT_EQ(after.levels[2].level, "memory");
  EXPECT_EQ(after.levels[2].thread_bytes, 1u << 28);
  EXPECT_DOUBLE_EQ(after.peaks[1].gflops.all, 180);
}

TEST(Measure, HostileFilesGiveOneClearError) {
  std::string negative = to_json(synthetic());
  negative.replace(negative.find("180.0"), 5, "-18.0");
  std::string schema = to_json(synthetic());
  schema.replace(schema.find("\"schema\": 2"), 11, "\"schema\": 9");
  const std::string whole = to_json(synthetic());
  for (const std::string& text : {std::string(), std::string("[]"), std::string("{\"schema\": 2}"),
                                  whole.substr(0, whole.size() / 2), negative, schema})
    EXPECT_ERROR("some.json", measurement_from_json(text, "some.json")) << text;
}

class MeasurementFile : public testing::Test {
 protected:
  void SetUp() override {
    cache_ = std::getenv("TESSERA_CACHE");
    setenv("TESSERA_CACHE", folder_.c_str(), 1);
  }
  void TearDown() override { setenv("TESSERA_CACHE", cache_.c_str(), 1); }
  test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path() / "cache";
  std::string cache_;  ///< of this test program
};

TEST_F(MeasurementFile, IsFoundAgainByTheProcessor) {
  EXPECT_FALSE(load_measurement(synthetic_facts()).has_value());
  save_measurement(synthetic(), measurement_file(synthetic_facts()));
  const auto found = load_measurement(synthetic_facts());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(to_json(*found), to_json(synthetic()));
  HostFacts other = synthetic_facts();
  other.cpu = "Some Other CPU";
  EXPECT_FALSE(load_measurement(other).has_value());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(MeasurementFile, DamageIsNoticed) {
  const fs::path file = measurement_file(synthetic_facts());
  save_measurement(synthetic(), file);
  std::ofstream(file) << "{";
  EXPECT_THROW(load_measurement(synthetic_facts()), Error);
}

TEST_F(MeasurementFile, UnwritableFolderIsAnError) {
  std::ofstream(folder_) << "a file where the folder should be";
  EXPECT_THROW(save_measurement(synthetic(), measurement_file(synthetic_facts())), Error);
}

TEST(MeasuredFigures, TakeMeasuredRatesWhereThereAreAny) {
  const HostFacts facts = synthetic_facts();
  const HostFigures avx2 = measured_figures(synthetic(), facts, Isa::avx2, 2);
  EXPECT_DOUBLE_EQ(avx2.core_gflops(), 90);
  EXPECT_DOUBLE_EQ(avx2.l2_bytes_per_cycle * avx2.ghz, 90);
  EXPECT_DOUBLE_EQ(avx2.memory_core_gbps, 12);
  EXPECT_DOUBLE_EQ(avx2.memory_gbps, 18);
  EXPECT_DOUBLE_EQ(avx2.superstep_seconds, 2e-7);
  const HostFigures builtin = builtin_figures(facts, Isa::avx2, 2);
  EXPECT_DOUBLE_EQ(avx2.l3_bytes_per_cycle, builtin.l3_bytes_per_cycle);
  // Cost models count lanes and ports with these figures; a measured peak that is too low must not change
  // them.
  EXPECT_DOUBLE_EQ(avx2.flops_per_cycle, builtin.flops_per_cycle);
  EXPECT_DOUBLE_EQ(avx2.l1_bytes_per_cycle, builtin.l1_bytes_per_cycle);
  const HostFigures avx512 = measured_figures(synthetic(), facts, Isa::avx512, 2);
  EXPECT_DOUBLE_EQ(avx512.flops_per_cycle, builtin_figures(facts, Isa::avx512, 2).flops_per_cycle);
}

}  // namespace
}  // namespace tessera::machine
