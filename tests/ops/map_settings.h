// Machines and shapes for tests of map operations.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "machine/model/machine.h"
#include "ops/run_operation.h"
#include "support/toy_machine.h"

namespace tessera::ops {

struct MapSetting {
  std::string name;
  machine::Machine machine;
  uint32_t rows;
  uint32_t cols;
  bool column_major;
  bool results_column_major = column_major;
};

inline void PrintTo(const MapSetting& setting, std::ostream* out) { *out << setting.name; }

/// Small shapes on hosts, on tiles and on another machine.
inline std::vector<MapSetting> map_settings(const std::string& other, const machine::Machine& other_machine) {
  const std::pair<std::string, machine::Machine> machines[] = {{"host_1", machine::host(1)},
                                                               {"host_3", machine::host(3)},
                                                               {"tiles_7", tessera::testing::toy_machine(7)},
                                                               {other, other_machine}};
  constexpr std::pair<uint32_t, uint32_t> kShapes[] = {{0, 0}, {0, 5}, {4, 0},  {1, 1},   {1, 37},
                                                       {9, 1}, {3, 5}, {7, 64}, {33, 129}};
  std::vector<MapSetting> settings;
  for (const auto& [name, machine] : machines)
    for (const auto& [rows, cols] : kShapes)
      for (const bool column_major : {false, true})
        settings.push_back({fmt::format("{}_{}x{}_{}", name, rows, cols, column_major ? "col" : "row"),
                            machine, rows, cols, column_major});
  return settings;
}

inline std::vector<MapSetting> map_settings() { return map_settings("bow", machine::find("bow")); }

/// A test that is run for each of them.
class MapTest : public ::testing::TestWithParam<MapSetting> {
 protected:
  const machine::Machine& machine() const { return GetParam().machine; }
  uint32_t rows() const { return GetParam().rows; }
  uint32_t cols() const { return GetParam().cols; }
  Array random(Type type, uint64_t seed) const { return random(type, rows(), cols(), seed); }
  Array random(Type type, uint32_t rows, uint32_t cols, uint64_t seed) const {
    return Array::random(type, rows, cols, GetParam().column_major, seed);
  }
  Array unset(Type type) const { return unset(type, rows(), cols()); }
  Array unset(Type type, uint32_t rows, uint32_t cols) const {
    return {type, rows, cols, GetParam().results_column_major};
  }
};

inline std::string name_of_setting(const ::testing::TestParamInfo<MapSetting>& info) {
  return info.param.name;
}

}  // namespace tessera::ops
