// docs/machine-constants.md against the code: each value, its status, and completeness.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/types.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/common/element.h"
#include "kernels/list.h"
#include "kernels/map/cast/codelet.h"
#include "kernels/map/elementwise/codelet.h"
#include "kernels/map/gather/codelet.h"
#include "kernels/map/reduce/codelet.h"
#include "kernels/tile/bucket/codelet.h"
#include "kernels/tile/bucket/cost.h"
#include "kernels/tile/row_epilogue/codelet.h"
#include "kernels/tile/tile_product/cost.h"
#include "machine/model/machine.h"
#include "ops/tiles/vendor_limits.h"
#include "program/codelet.h"
#include "program/sizes.h"

namespace tessera::kernels {
namespace {

struct ConstantRow {
  double value = 0;
  std::string status;
};

std::vector<std::string> cells_of_line(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, '|');) {
    const size_t begin = cell.find_first_not_of(' '), end = cell.find_last_not_of(' ');
    cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
  }
  return cells;
}

/// The page: constants by name, and the lines of other tables.
struct ConstantsPage {
  std::map<std::string, ConstantRow> rows;
  std::string others;
  std::set<std::string> statuses;

  ConstantsPage() {
    std::ifstream file(TESSERA_MACHINE_CONSTANTS);
    EXPECT_TRUE(file) << TESSERA_MACHINE_CONSTANTS;
    for (std::string line; std::getline(file, line);) {
      const std::vector<std::string> cells = cells_of_line(line);
      if (cells.size() < 4 || !cells[1].starts_with('`')) continue;
      const bool is_constant =
          cells.size() >= 5 && cells[2].find_first_not_of("0123456789.") == std::string::npos;
      if (!is_constant) {
        others += line + "\n";
        statuses.insert(cells[2]);
        continue;
      }
      const std::string name = cells[1].substr(1, cells[1].size() - 2);
      EXPECT_TRUE(rows.emplace(name, ConstantRow{std::stod(cells[2]), cells[3]}).second) << name << " twice";
      statuses.insert(cells[3]);
    }
  }
};

const ConstantsPage& constants_page() {
  static const ConstantsPage page;
  return page;
}

const machine::Machine& constants_machine() {
  static const machine::Machine machine = machine::find("bow");
  return machine;
}

program::FieldView constants_field(Type type, uint32_t rows, uint32_t cols) {
  return {nullptr, type, rows, cols, cols, 1};
}

double cycles_of_codelet(const program::Codelet& codelet, const std::vector<program::FieldView>& fields,
                         const std::vector<int64_t>& params = {}) {
  return codelet.cost({fields, params}, constants_machine()).total();
}

/// 10 block rows and 40 blocks, or for one worker 10 rows of 20 elements.
double example_of(const BlockRates& rates) { return rates.start + 10 * rates.per_row + 40 * rates.per_block; }
double example_of(const ElementRates& rates) {
  return 6 * (rates.start + 10 * (rates.per_row + 19 * rates.per_further));
}
double static_blocks(Type type, uint32_t b) {
  return example_of(block_rates(constants_machine(), type, b, 96));
}
double dynamic_blocks(Type type, Type partials, uint32_t b) {
  return bucket_cycles(constants_machine(), type, partials, b, 96, {1, 1, 10, 40});
}
double dynamic_elements(Type type, uint32_t n) {
  return bucket_cycles(constants_machine(), type, type, 1, n, {1, 1, 10, 200});
}

void add_products(std::map<std::string, double>& all) {
  const machine::Machine& m = constants_machine();
  for (const Type type : {Type::f16, Type::f32})
    for (const uint32_t b : {4U, 8U, 16U}) {
      all[fmt::format("static.{}.b{}", name_of(type), b)] = static_blocks(type, b);
      all[fmt::format("dynamic.{}.b{}", name_of(type), b)] = dynamic_blocks(type, type, b);
    }
  for (const uint32_t b : {4U, 8U, 16U})
    all[fmt::format("dynamic.f16-f32.b{}", b)] = dynamic_blocks(Type::f16, Type::f32, b);
  all["static.f16.b32"] = static_blocks(Type::f16, 32);
  all["static.f16.b16.transposed"] = example_of(block_rates(m, Type::f16, 16, 96, true));
  for (const uint32_t n : {4U, 8U, 96U}) {
    all[fmt::format("static.f16.n{}", n)] = example_of(element_rates(Type::f16, n));
    all[fmt::format("dynamic.f16.n{}", n)] = dynamic_elements(Type::f16, n);
  }
  for (const uint32_t n : {2U, 4U, 96U})
    all[fmt::format("static.f32.n{}", n)] = example_of(element_rates(Type::f32, n));
  all["dynamic.f32.n96"] = dynamic_elements(Type::f32, 96);
  all["sddmm.f16.b16"] = example_of(sddmm_block_rates(m, Type::f16, 16, 96));
  all["sddmm.f16.element"] = sddmm_element_rates(Type::f16, 20).per_further;
  all["dense.f16"] = dense_cycles(m, Type::f16, 32, 48, 60);
  all["dense.f32"] = dense_cycles(m, Type::f32, 32, 48, 60);
  all["dense.f16.transpose"] = transpose_cycles(m, Type::f16, 1536);
}

void add_other_codelets(std::map<std::string, double>& all) {
  const auto half = constants_field(Type::f16, 4, 25), single = constants_field(Type::f32, 4, 25);
  const std::vector<int64_t> one = {param_of(1.0F)};
  all["dynamic.pending"] = cycles_of_codelet(
      bucket_pending_codelet, {constants_field(Type::u16, 1, 100), constants_field(Type::u32, 1, 1)}, {0, 4});
  all["dynamic.flags"] = cycles_of_codelet(
      any_flag_codelet, {constants_field(Type::u32, 10, 1), constants_field(Type::u32, 1, 1)});
  all["reduce.f16"] = cycles_of_codelet(
      reduce_sum_codelet, {constants_field(Type::f16, 4, 100), constants_field(Type::f16, 1, 100)}, one);
  all["reduce.f32.f16"] = cycles_of_codelet(
      reduce_sum_codelet, {constants_field(Type::f32, 2, 100), constants_field(Type::f16, 1, 100)}, one);
  all["reduce.f16.f32"] = cycles_of_codelet(
      reduce_sum_codelet, {constants_field(Type::f16, 1, 96), constants_field(Type::f32, 1, 96)}, one);
  all["elementwise.f16"] = cycles_of_codelet(codelet_of(Binary::add), {half, half, half});
  all["elementwise.f32"] = cycles_of_codelet(codelet_of(Binary::add), {single, single, single});
  all["gelu.f16"] = cycles_of_codelet(codelet_of(Unary::gelu), {half, half});
  all["epilogue.f16"] = cycles_of_codelet(row_epilogue_codelet, {constants_field(Type::f32, 7, 1), half},
                                          {static_cast<int64_t>(Activation::relu), 25, 0});
  all["cast"] = cycles_of_codelet(cast_codelet,
                                  {constants_field(Type::f32, 10, 10), constants_field(Type::f16, 10, 10)});
  all["gather"] = cycles_of_codelet(gather_rows_codelet,
                                    {constants_field(Type::u32, 13, 1), constants_field(Type::f16, 40, 10),
                                     constants_field(Type::f16, 13, 10)});
  all["copy"] =
      cycles_of_codelet(copy_codelet, {constants_field(Type::f16, 5, 21), constants_field(Type::f16, 5, 21)});
  all["fill"] = fill_cycles(constants_machine(), 1000);
}

void add_bytes_and_limits(std::map<std::string, double>& all) {
  all["exchange_code_bytes"] = static_cast<double>(program::kExchangeCodeBytes);
  all["transfer_code_bytes"] = static_cast<double>(program::kTransferCodeBytes);
  all["most_transfer_bytes"] = static_cast<double>(program::kMostTransferBytes);
  all["stack_bytes"] = static_cast<double>(program::kStackBytes);
  all["data_alignment"] = static_cast<double>(program::kDataAlignment);
  all["vertex_state_bytes"] = static_cast<double>(program::vertex_state_bytes(codelet_of(Binary::add)));
  all["control_code_bytes"] = static_cast<double>(program::control_code_bytes(2));
  all["vendor.memory_fraction"] = ops::kVendorMemoryFraction;
  all["vendor.static_col_parts"] = ops::kVendorMostColParts;
  all["vendor.static_bands"] = ops::kVendorMostBands;
  all["vendor.static_run"] = static_cast<double>(ops::kVendorMostRun);
  all["vendor.static_least_share"] = ops::kVendorLeastShare;
  all["vendor.dynamic_head_room"] = ops::kVendorHeadRoom;
}

/// The figures of a machine that its file gives.
std::vector<machine::Figure> given_figures(const std::string& name) {
  const machine::Machine machine = machine::find(name);
  std::vector<machine::Figure> given;
  for (const machine::Figure& figure : machine.sources)
    if (figure.source != "default") given.push_back(figure);
  return given;
}

TEST(MachineConstants, AreThoseOfTheCode) {
  std::map<std::string, double> all;
  for (const machine::Figure& figure : given_figures("bow")) all[figure.name] = figure.value;
  for (const machine::Figure& figure : given_figures("gc200"))
    if (const auto same = all.find(figure.name); same == all.end() || same->second != figure.value)
      all["gc200." + figure.name] = figure.value;
  add_products(all);
  add_other_codelets(all);
  add_bytes_and_limits(all);
  for (const auto& [name, value] : all) {
    const auto row = constants_page().rows.find(name);
    ASSERT_NE(row, constants_page().rows.end()) << name << " = " << value << " is not in the page";
    EXPECT_DOUBLE_EQ(row->second.value, value) << name;
  }
  for (const auto& [name, row] : constants_page().rows) EXPECT_TRUE(all.contains(name)) << name;
}

TEST(MachineConstants, SayWhereTheyAreFrom) {
  EXPECT_EQ(constants_page().statuses, (std::set<std::string>{"published", "derived", "fitted", "assumed"}));
  for (const machine::Figure& figure : given_figures("bow")) {
    std::string status = "published";
    for (const char* other : {"fitted", "derived", "assumed"})
      if (figure.source.starts_with(other)) status = other;
    const auto row = constants_page().rows.find(figure.name);
    ASSERT_NE(row, constants_page().rows.end()) << figure.name;
    EXPECT_EQ(row->second.status, status) << figure.name << ": " << figure.source;
  }
}

TEST(MachineConstants, CoverEveryCodeletOfTiles) {
  for (const ListedCodelet& listed : all_codelets())
    if (listed.codelet->runs_on != program::RunsOn::hosts) {
      EXPECT_NE(constants_page().others.find(fmt::format("`{}`", listed.codelet->name)), std::string::npos)
          << listed.codelet->name;
    }
}

}  // namespace
}  // namespace tessera::kernels
