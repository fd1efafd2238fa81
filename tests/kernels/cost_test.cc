// What the costs of codelets come to: by hand where a formula is published, and in a file for every sample,
// so that no constant changes unnoticed.
#include "kernels/tile/tile_product/cost.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/list.h"
#include "kernels/map/cast/codelet.h"
#include "kernels/map/elementwise/codelet.h"
#include "kernels/map/gather/codelet.h"
#include "kernels/map/reduce/codelet.h"
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

double cycles_of(const program::Codelet& codelet, const std::vector<FieldView>& fields,
                 const std::vector<int64_t>& params = {}) {
  return codelet.cost({fields, params}, bow()).total();
}

FieldView matrix(Type type, uint32_t rows, uint32_t cols) { return {nullptr, type, rows, cols, cols, 1}; }

// Elements that 6 workers do not share out evenly: ⌈100 / 6⌉ = 17.
TEST(TileCosts, MapCodeletsFollowThePublishedFormulas) {
  const FieldView half = matrix(Type::f16, 10, 10);
  const FieldView single = matrix(Type::f32, 10, 10);
  EXPECT_EQ(cycles_of(cast_codelet, {single, half}), 12 + 6 * (37 + 9));
  EXPECT_EQ(cycles_of(codelet_of(Binary::add), {half, half, half}), 11 + 6 * (26 + 3 * 5));
  EXPECT_EQ(cycles_of(codelet_of(Binary::mul), {single, single, single}), 11 + 6 * (29 + 3 * 9));
  EXPECT_EQ(cycles_of(codelet_of(Unary::relu), {half, half}), 11 + 6 * (26 + 3 * 5));
  EXPECT_EQ(cycles_of(codelet_of(Unary::gelu), {half, half}), 11 + 6 * (26 + 24 * 5));
}

TEST(TileCosts, MovesFollowThePublishedFormulas) {
  // 13 rows of 10 halves: 3 rows a worker, 3 vectors a row.
  const std::vector<FieldView> gathered = {matrix(Type::u32, 13, 1), matrix(Type::f16, 40, 10),
                                           matrix(Type::f16, 13, 10)};
  EXPECT_EQ(cycles_of(gather_rows_codelet, gathered), 6 * (30 + 3 * (19 + 2 * 3)));
  // 210 bytes, 8 a cycle.
  EXPECT_EQ(cycles_of(copy_codelet, {matrix(Type::f16, 5, 21), matrix(Type::f16, 5, 21)}), 25 + 27);
}

// 5 partials of 100 elements: 17 a worker, in accumulators of 8 halves or 4 floats.
TEST(TileCosts, ReductionsFollowThePublishedFormula) {
  const std::vector<int64_t> one = {0};
  const auto reduce = [&](Type from, Type to) {
    return cycles_of(reduce_sum_codelet, {matrix(from, 5, 100), matrix(to, 1, 100)}, one);
  };
  EXPECT_EQ(reduce(Type::f16, Type::f16), 6 * (16 + 3 * (8 + 6 + 5 - 1)));
  EXPECT_EQ(reduce(Type::f16, Type::f32), 6 * (16 + 3 * (7 + 6 + 5 - 1)));
  EXPECT_EQ(reduce(Type::f32, Type::f32), 6 * (16 + 5 * (5 + 6 + 5 - 1)));
}

// 3 block rows of 2 blocks each, n = 24: 4 columns a worker. 30 + 6h + m(6x + 17 + k(16 + b² · size / 8 +
// 6y)).
TEST(TileCosts, BlockProductsFollowThePublishedFormula) {
  const auto product = [](Type type, uint32_t b) {
    return cycles_of(
        sparse_product_codelet,
        {matrix(type, 6, b * b), matrix(Type::u16, 9, 1), matrix(type, 4 * b, 24), matrix(type, 3 * b, 24)},
        {b, 0});
  };
  EXPECT_EQ(product(Type::f16, 4), 30 + 6 * 17 + 3 * (6 * 1 + 17 + 2 * (16 + 4 + 6 * (13 + 4))));
  EXPECT_EQ(product(Type::f16, 8), 30 + 6 * 13 + 3 * (6 * 1 + 17 + 2 * (16 + 16 + 6 * (14 + 2 * 3))));
  EXPECT_EQ(product(Type::f16, 16), 30 + 6 * 13 + 3 * (6 * 1 + 17 + 2 * (16 + 64 + 6 * (19 + 4 * 3))));
  EXPECT_EQ(product(Type::f32, 4), 30 + 6 * 13 + 3 * (6 * 1 + 17 + 2 * (16 + 8 + 6 * (12 + 4 * 3))));
  EXPECT_EQ(product(Type::f32, 8), 30 + 6 * 13 + 3 * (6 * 4 + 17 + 2 * (16 + 32 + 6 * (19 + 8 * 3))));
  EXPECT_EQ(product(Type::f32, 16), 30 + 6 * 16 + 3 * (6 * 4 + 17 + 2 * (16 + 128 + 6 * 2 * (37 + 8 * 3))));
}

TEST(TileCosts, FewColumnsHaveFormulasOfTheirOwn) {
  const machine::Machine m = bow();
  const auto block = [&](Type type, uint32_t b, uint32_t n) { return block_rates(m, type, b, n).per_block; };
  EXPECT_EQ(block(Type::f16, 4, 6), 16 + 4 + 6 * (7 + 1));   // one column a worker
  EXPECT_EQ(block(Type::f16, 4, 12), 16 + 4 + 6 * (7 + 2));  // two
  EXPECT_EQ(block(Type::f16, 4, 18), 16 + 4 + 6 * (13 + 3));
  EXPECT_EQ(block(Type::f32, 16, 6), 16 + 128 + 6 * 58);
  EXPECT_EQ(block(Type::f32, 16, 7), 16 + 128 + 6 * 2 * (37 + 8));
}

// One row of k = 5 elements: 33 + 11 + ⌊n / 8⌋(14 + 3(k − 1)) + [n mod 8 ≠ 0](9 + 2(k − 1)) in half, and so
// on.
TEST(TileCosts, RowsOfElementsFollowThePublishedFormulas) {
  const auto row = [](Type type, uint32_t n) {
    const ElementRates rates = element_rates(type, n);
    return rates.start + rates.per_row + 4 * rates.per_further;
  };
  EXPECT_EQ(row(Type::f16, 4), 31 + 7 + 2 * 4);
  EXPECT_EQ(row(Type::f16, 8), 31 + 8 + 3 * 4);
  EXPECT_EQ(row(Type::f16, 20), 33 + 11 + 2 * (14 + 3 * 4) + (9 + 2 * 4));
  EXPECT_EQ(row(Type::f16, 16), 33 + 11 + 2 * (14 + 3 * 4));
  EXPECT_EQ(row(Type::f32, 2), 29 + 5 + 2 * 4);
  EXPECT_EQ(row(Type::f32, 4), 30 + 6 + 3 * 4);
  EXPECT_EQ(row(Type::f32, 11), 31 + 12 + 2 * (10 + 3 * 4) + (10 + 2 * 4));
}

// 40 × 33, 20 columns: 3 × 3 passes of 16 × 16 in half, 3 × 5 of 8 × 16 in float; 4 columns a worker.
TEST(TileCosts, DenseProductsFollowThePublishedFormula) {
  const auto dense = [](Type type) {
    return cycles_of(dense_product_codelet,
                     {matrix(type, 1, 40 * 33), matrix(type, 1, 33 * 20), matrix(type, 1, 40 * 20)},
                     {40, 33, 20});
  };
  EXPECT_EQ(dense(Type::f16), 50 + 7 + 19 * 3 + 9 * (64 + 6 * (38 + 4 * (4 - 3))));
  EXPECT_EQ(dense(Type::f32), 50 + 7 + 19 * 3 + 15 * (64 + 6 * (46 + 8 * (4 - 3))));
}

TEST(CodeletCosts, AreThoseOfTheFile) {
  std::string lines;
  const std::vector<machine::Machine> machines = {bow(), tessera::testing::avx2_host(),
                                                  tessera::testing::avx512_host()};
  for (const ListedCodelet& listed : all_codelets())
    for (const NamedSample& named : samples_of(*listed.codelet))
      for (const machine::Machine& machine : machines) {
        const bool host = machine.kind == machine::Kind::host;
        if (listed.codelet->runs_on == (host ? program::RunsOn::tiles : program::RunsOn::hosts)) continue;
        lines += fmt::format("{}/{} {}:", listed.codelet->name, named.name, machine.name);
        for (uint32_t scale : {2U, 9U, 40U}) {
          const Sample sample = named.make(scale, 1);
          lines +=
              fmt::format(" {:.8g}", listed.codelet->cost(SampleVertex(sample).vertex(), machine).total());
        }
        lines += "\n";
      }
  tessera::testing::expect_golden(TESSERA_GOLDEN_COSTS, lines);
}

}  // namespace
}  // namespace tessera::kernels
