// Machines and shapes for tests of map operations, and expected results.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/integer_types.h"
#include "base/random.h"
#include "machine/model/machine.h"
#include "ops/run_operation.h"
#include "support/number_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {

struct MapSetting {
  std::string name;
  machine::Machine machine;
  uint32_t rows;
  uint32_t cols;
  bool column_major;
  bool results_column_major;
};

inline void PrintTo(const MapSetting& setting, std::ostream* out) { *out << setting.name; }

/// Small shapes on hosts and on tiles, with results also in another layout than operands: in the short run
/// each shape on each machine in half of the layouts, and in the others on the next machine.
inline std::vector<MapSetting> map_settings() {
  const std::pair<std::string, machine::Machine> machines[] = {
      {"host_1", machine::host(1)},
      {"host_3", machine::host(3)},
      {"tiles_1", tessera::testing::toy_machine(1, 1 << 20)},
      {"tiles_7", tessera::testing::toy_machine(7)},
      {"bow", machine::find("bow")}};
  constexpr std::pair<uint32_t, uint32_t> kShapes[] = {{0, 0}, {0, 5}, {4, 0},  {1, 1},    {1, 37},
                                                       {9, 1}, {3, 5}, {7, 64}, {33, 129}, {130, 33}};
  const auto order = [](bool column_major) { return column_major ? "col" : "row"; };
  std::vector<MapSetting> settings;
  uint32_t number = 0;
  for (const auto& [name, machine] : machines)
    for (const auto& [rows, cols] : kShapes) {
      ++number;
      for (const bool column_major : {false, true})
        for (const bool results : {false, true}) {
          // Plans for many tiles take long.
          if (name == "bow" && (rows < 3 || column_major || results)) continue;
          const bool is_taken = (number + uint32_t{column_major} + uint32_t{results}) % 2 == 0;
          if (name != "bow" && !is_taken && !test::is_full()) continue;
          settings.push_back(
              {fmt::format("{}_{}x{}_{}_{}", name, rows, cols, order(column_major), order(results)), machine,
               rows, cols, column_major, results});
        }
    }
  return settings;
}

/// A test that runs for each setting.
class MapTest : public ::testing::TestWithParam<MapSetting> {
 protected:
  const machine::Machine& machine() const { return GetParam().machine; }
  uint32_t rows() const { return GetParam().rows; }
  uint32_t cols() const { return GetParam().cols; }
  Array unset(Type type, uint32_t rows, uint32_t cols) const {
    return {type, rows, cols, GetParam().results_column_major};
  }

  /// Expects the operation, run as planned, to give the result of its codelet's reference on whole operands,
  /// within one rounding and `error`. Operands hold zeros and numbers from `low` to 4.
  void expect_like_reference(const MapOperation& operation, double error = 0, double low = -4) const {
    SCOPED_TRACE(
        fmt::format("{} of {}, seeds from 1", operation.codelet->name, name_of(operation.operands[0].type)));
    std::vector<Array> planned;
    for (const MapOperand& operand : operation.operands)
      if (!operand.is_own()) planned.push_back(array_of(operand, planned.size() + 1, low));
    std::vector<Array> whole = planned;
    std::vector<Array*> arrays;
    for (Array& array : planned) arrays.push_back(&array);
    run_operation(operation, machine(), arrays);
    std::vector<program::FieldView> fields;
    size_t next = 0;
    for (const MapOperand& o : operation.operands)
      fields.push_back(o.is_own() ? program::FieldView{const_cast<std::byte*>(o.contents.get()), o.type,
                                                       o.rows, o.cols, o.cols, 1}
                                  : whole[next++].view());
    std::vector<int64_t> params = operation.params;
    if (operation.takes_origin) params.insert(params.end(), {0, 0});
    operation.codelet->reference({fields, params});
    for (size_t i = 0; i < planned.size(); ++i) expect_near(planned[i], whole[i], error);
  }

 private:
  Array array_of(const MapOperand& operand, uint64_t seed, double low) const {
    if (operand.role == program::Role::output) return unset(operand.type, operand.rows, operand.cols);
    Array array(operand.type, operand.rows, operand.cols, GetParam().column_major);
    const base::RandomStream stream(seed);
    for (uint32_t r = 0; r < operand.rows; ++r)
      for (uint32_t c = 0; c < operand.cols; ++c) {
        const double x = stream.uniform(uint64_t{r} * operand.cols + c);
        const bool is_zero = (r + c) % 5 == 4;
        array.set(r, c, is_integer(operand.type) ? 1 + std::floor(6 * x) : is_zero ? 0 : low + (4 - low) * x);
      }
    return array;
  }

  static void expect_near(const Array& found, const Array& expected, double error) {
    for (uint32_t r = 0; r < found.rows(); ++r)
      for (uint32_t c = 0; c < found.cols(); ++c) {
        const double x = found.at(r, c), y = expected.at(r, c);
        if (std::isfinite(y))
          ASSERT_NEAR(x, y, epsilon_of(found.type()) * std::abs(y) + error) << r << ", " << c;
        else
          ASSERT_TRUE(x == y || (std::isnan(x) && std::isnan(y)))
              << x << " at (" << r << ", " << c << "), not " << y;
      }
  }
};

inline std::string name_of_setting(const ::testing::TestParamInfo<MapSetting>& info) {
  return info.param.name;
}

}  // namespace tessera::ops
