// Ordered compute sets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tessera::program {

/// The variables through which groups of an ordered set pass results: one group writes them and another
/// touches them. These must lie on the tile, so that no exchange before or after the set is needed.
inline std::vector<VariableId> handed_on(const ComputeSet& set) {
  std::vector<VariableId> found;
  for (size_t writer = 0; writer < set.groups.size(); ++writer)
    for (size_t f = 0; f < set.groups[writer].fields.size(); ++f) {
      const VariableId v = set.groups[writer].fields[f].variable;
      const auto touches = [&](const VertexGroup& group) {
        return &group != &set.groups[writer] &&
               std::ranges::find(group.fields, v, &Field::variable) != group.fields.end();
      };
      if (writes(set.groups[writer].codelet->fields[f].access) && std::ranges::any_of(set.groups, touches))
        found.push_back(v);
    }
  return found;
}

/// How much of field `f` of vertex `index` of a group was written by the same vertex of an earlier group of
/// the set.
struct WrittenBefore {
  bool all = false;
  bool some = false;
};
inline WrittenBefore written_before(const Program& program, const ComputeSet& set, uint32_t group, size_t f,
                                    uint32_t index) {
  WrittenBefore before;
  if (!set.ordered) return before;
  const Field& field = set.groups[group].fields[f];
  const Box box = field_box(program, field, index);
  for (uint32_t g = 0; g < group; ++g)
    for (size_t w = 0; w < set.groups[g].fields.size(); ++w) {
      const Field& written = set.groups[g].fields[w];
      const FieldSpec& spec = set.groups[g].codelet->fields[w];
      if (written.variable != field.variable || !writes(spec.access)) continue;
      const Box common = intersection(field_box(program, written, index), box);
      before.some |= !common.empty() || written.row != field.row;
      before.all |= common == box && written.row == field.row && !spec.scattered && !spec.scratch;
    }
  return before;
}

}  // namespace tessera::program
