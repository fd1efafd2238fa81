#include "ops/owners.h"

#include <algorithm>
#include <utility>

#include "kernels/common/element.h"
#include "kernels/map/reduce/codelet.h"

namespace tessera::ops {

using program::Box;
using program::BoxSeries;
using program::MappedBox;
using program::TileId;

std::vector<MappedBox> on_tiles(const std::vector<Box>& boxes) {
  std::vector<MappedBox> mapping;
  for (TileId tile = 0; tile < boxes.size(); ++tile) mapping.push_back({boxes[tile], tile});
  return mapping;
}

std::vector<Box> boxes_of(const std::vector<MappedBox>& mapping) {
  std::vector<Box> boxes;
  for (const MappedBox& mapped : mapping) boxes.push_back(mapped.box);
  return boxes;
}

std::vector<program::VertexGroup> groups_of_owners(const std::vector<MappedBox>& owners,
                                                   const program::Codelet& codelet,
                                                   const std::vector<OwnerField>& fields,
                                                   const std::vector<program::Param>& params) {
  std::vector<program::VertexGroup> groups;
  for (size_t begin = 0; begin < owners.size();) {
    size_t end = begin + 1;
    while (end < owners.size() && owners[end].tile == owners[end - 1].tile + 1) ++end;
    program::VertexGroup group{&codelet, owners[begin].tile, static_cast<uint32_t>(end - begin), 1, {}, {}};
    for (const program::Param& param : params)
      group.params.push_back(param.table.empty() ? param
                                                 : program::Param(std::vector<int64_t>(
                                                       param.table.begin() + static_cast<int64_t>(begin),
                                                       param.table.begin() + static_cast<int64_t>(end))));
    for (const OwnerField& field : fields) {
      std::vector<Box> boxes;
      for (size_t i = begin; i < end; ++i) boxes.push_back(field.operand.inside(field.boxes[i]));
      group.fields.push_back({field.operand.variable, BoxSeries::table(std::move(boxes))});
    }
    groups.push_back(std::move(group));
    begin = end;
  }
  return groups;
}

program::ComputeSet sums_of_owners(const std::vector<MappedBox>& owners, const OwnerField& received,
                                   const Operand& result) {
  return {"reduce", program::Phase::reduce,
          groups_of_owners(owners, kernels::reduce_sum_codelet, {received, {result, boxes_of(owners)}},
                           {kernels::param_of(1.0F)})};
}

program::ComputeSet sums_of_rows(std::vector<MappedBox> owners, const Operand& partials,
                                 const Operand& result) {
  std::ranges::sort(owners, {}, &MappedBox::tile);
  std::vector<Box> boxes;
  for (const MappedBox& owned : owners) boxes.push_back({0, partials.rows(), owned.box.col, owned.box.cols});
  return sums_of_owners(owners, {partials, std::move(boxes)}, result);
}

}  // namespace tessera::ops
