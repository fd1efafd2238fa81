// The costs of codelets: in a file for every sample, so that no constant changes unnoticed, and by hand where
// tile_cost_test.cc has none.
#include "kernels/host/element_sparse/cost.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/host/element_sparse/layout.h"
#include "kernels/list.h"
#include "kernels/map/cast/codelet.h"
#include "kernels/map/gather/codelet.h"
#include "kernels/samples/list.h"
#include "kernels/tile/tile_product/codelet.h"
#include "machine/model/machine.h"
#include "support/fixed_machines.h"
#include "support/golden.h"

namespace tessera::kernels {
namespace {

using program::FieldView;

/// A tile of Bow: W = 6 workers, 8 bytes a cycle, half4 and float2.
machine::Machine bow() { return machine::find("bow"); }

double cycles_of(const program::Codelet& codelet, const std::vector<FieldView>& fields) {
  return codelet.cost({fields, {}}, bow()).total();
}

FieldView matrix(Type type, uint32_t rows, uint32_t cols) { return {nullptr, type, rows, cols, cols, 1}; }

// 100 elements, 17 for a worker.
TEST(TileCosts, CastsFollowThePublishedFormula) {
  const std::vector<FieldView> fields = {matrix(Type::f32, 10, 10), matrix(Type::f16, 10, 10)};
  EXPECT_EQ(cycles_of(cast_codelet, fields), 12 + 6 * (37 + 9));
}

TEST(TileCosts, MovesFollowThePublishedFormulas) {
  // 13 rows of 10 halves: 3 rows a worker, 3 vectors a row.
  const std::vector<FieldView> gathered = {matrix(Type::u32, 13, 1), matrix(Type::f16, 40, 10),
                                           matrix(Type::f16, 13, 10)};
  EXPECT_EQ(cycles_of(gather_rows_codelet, gathered), 6 * (30 + 3 * (19 + 2 * 3)));
  // 210 bytes, 8 a cycle.
  EXPECT_EQ(cycles_of(copy_codelet, {matrix(Type::f16, 5, 21), matrix(Type::f16, 5, 21)}), 25 + 27);
}

// Two threads that write parts of the same rows fetch a line of each row, and overrun it further if their
// parts are longer.
TEST(HostCosts, ThreadsThatSplitColumnsShareTheLinesOfRows) {
  const machine::HostFigures figures = tessera::testing::avx512_host().figures;
  const uint32_t chunk_begin[] = {0, 100};
  const auto seconds = [&](uint16_t col_parts, uint32_t cols) {
    ElementSlice slice;
    slice.weight = {
        .rows = 100, .cols = 64, .k_block = 64, .chunks = 1, .chunk_begin = chunk_begin, .capacity = 640};
    slice.chunk_end = 1;
    slice.col_end = cols;
    slice.x = {nullptr, 512, 1};
    slice.y = {nullptr, 512, 1};
    slice.schedule.col_parts = col_parts;
    return element_cost(slice, figures).total();
  };
  for (const auto& [cols, cycles] :
       {std::pair(16U, 60), std::pair(64U, 60 + 3 * 10), std::pair(256U, 60 + 15 * 10)})
    EXPECT_NEAR((seconds(2, cols) - seconds(1, cols)) * figures.ghz * 1e9, 100 * cycles, 1e-3) << cols;
}

TEST(HostCosts, WidePanelsHaveWholeRowsThatAreNotStreamed) {
  const machine::HostFigures figures = tessera::testing::avx512_host().figures;
  const uint32_t chunk_begin[] = {0, 100};
  ElementWeight w{
      .rows = 100, .cols = 64, .k_block = 64, .chunks = 1, .chunk_begin = chunk_begin, .capacity = 640};
  const auto is_wide = [](const ElementSchedule& s) { return s.panel_cols > kMaxTaskCols; };
  const auto streams = [](const ElementSchedule& s) { return s.stream_y; };
  const std::vector<ElementSchedule> of_whole_rows = element_candidates(w, 256, 4, figures);
  EXPECT_TRUE(std::ranges::any_of(of_whole_rows, is_wide));
  EXPECT_TRUE(std::ranges::any_of(of_whole_rows, streams));
  EXPECT_TRUE(std::ranges::none_of(of_whole_rows, [&](const auto& s) { return is_wide(s) && streams(s); }));
  w.k_block = 32;
  EXPECT_TRUE(std::ranges::none_of(element_candidates(w, 256, 4, figures), is_wide));
}

TEST(CodeletCosts, AreThoseOfTheFile) {
  std::string lines;
  const std::vector<machine::Machine> machines = {
      bow(), tessera::testing::avx2_host(), tessera::testing::avx512_host(), tessera::testing::amx_host()};
  for (const ListedCodelet& listed : all_codelets())
    for (const NamedSample& named : samples_of(*listed.codelet)) {
      const Sample samples[] = {named.make(2, 1), named.make(9, 1), named.make(24, 1)};
      std::string before;
      for (const machine::Machine& machine : machines) {
        const bool host = machine.kind == machine::Kind::host;
        if (listed.codelet->runs_on == (host ? program::RunsOn::tiles : program::RunsOn::hosts)) continue;
        std::string cycles;
        for (const Sample& sample : samples)
          cycles +=
              fmt::format(" {:.8g}", listed.codelet->cost(SampleVertex(sample).vertex(), machine).total());
        // Few codelets make use of tiles.
        if (machine.figures.isa == Isa::amx && cycles == before) continue;
        lines += fmt::format("{}/{} {}:{}\n", listed.codelet->name, named.name, machine.name, cycles);
        before = cycles;
      }
    }
  tessera::testing::expect_golden(TESSERA_GOLDEN_COSTS, lines);
}

}  // namespace
}  // namespace tessera::kernels
