#include "ops/tiles/expected.h"

#include <array>
#include <cmath>

#include "base/ceil_divide.h"
#include "kernels/common/element.h"
#include "kernels/map/reduce/codelet.h"
#include "program/cycles.h"

namespace tessera::ops {

using base::ceil_divide;

void add_exchange(const machine::Machine& machine, double traffic, program::PhaseTimes& cycles) {
  cycles[program::Phase::exchange] += traffic + program::exchange_overhead_cycles(machine);
  cycles[program::Phase::sync] += program::exchange_sync_cycles(machine);
}

std::vector<uint32_t> part_counts(uint32_t units, uint32_t most) {
  std::vector<uint32_t> counts;
  for (uint32_t parts = 1, size = 0; parts <= std::min(units, most); ++parts)
    if (ceil_divide(units, parts) != size) {
      size = ceil_divide(units, parts);
      counts.push_back(parts);
    }
  return counts;
}

double reduce_cycles(const machine::Machine& m, TiledNumbers numbers, double partials, double elements) {
  const auto rows = static_cast<uint32_t>(std::ceil(partials));
  const auto cols = static_cast<uint32_t>(std::ceil(elements));
  const std::array<program::FieldView, 2> fields = {
      {{nullptr, numbers.partials, rows, cols, cols}, {nullptr, numbers.operands, 1, cols, cols}}};
  const std::array<int64_t, 1> params = {kernels::param_of(1.0F)};
  return kernels::reduce_sum_codelet.cost({fields, params}, m).total();
}

}  // namespace tessera::ops
