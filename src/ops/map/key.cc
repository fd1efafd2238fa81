#include "ops/map/key.h"

#include <algorithm>

namespace tessera::ops {

MapKey key_of(const Builder& builder, const MapOperation& operation, std::span<const Operand> operands) {
  MapKey key{operation, {}, builder.machine(), {}};
  for (const Operand& operand : operands) {
    const program::Variable& variable = builder.program().variable(operand.variable);
    const Operand whole = builder.whole(operand.variable);
    if (!builder.holds(whole)) key.surroundings = {builder.whole_machine(), builder.first_tile()};
    const auto first = std::ranges::find(operands, operand.variable, &Operand::variable);
    key.operands.push_back({static_cast<uint32_t>(first - operands.begin()), operand.box, variable.role,
                            variable.rows, variable.cols, builder.mapping_of(whole)});
  }
  return key;
}

}  // namespace tessera::ops
