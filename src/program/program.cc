#include "program/program.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "base/integer_types.h"

namespace tessera::program {

namespace {
template <class T>
uint32_t append(std::vector<T>& list, T item) {
  list.push_back(std::move(item));
  return static_cast<uint32_t>(list.size() - 1);
}
}  // namespace

VariableId Program::add(Variable variable) { return append(variables_, std::move(variable)); }
ComputeSetId Program::add(ComputeSet set) { return append(compute_sets_, std::move(set)); }
CopySetId Program::add(CopySet set) { return append(copy_sets_, std::move(set)); }
CollectiveId Program::add(Collective collective) { return append(collectives_, std::move(collective)); }
FunctionId Program::add(Function function) { return append(functions_, std::move(function)); }
StepId Program::add(Step step) {
  parts_of_steps_.push_back(part_);
  if (part_ != kEveryPart) parts_ = std::max(parts_, part_ + 1);
  return append(steps_, std::move(step));
}

VariableId Program::find(std::string_view name) const {
  for (VariableId id = 0; id < variables_.size(); ++id)
    if (variables_[id].name == name) return id;
  throw Error(fmt::format("the program has no variable '{}'", name));
}

Purpose purpose_of(const Variable& variable) {
  if (variable.purpose) return *variable.purpose;
  if (is_integer(variable.type)) return Purpose::metadata;
  const bool is_kept = variable.role == Role::constant || variable.role == Role::state;
  return is_kept ? Purpose::parameter : Purpose::activation;
}

Box field_box(const Program& program, const Field& field, uint32_t vertex) {
  return intersection(field.boxes.at(vertex), program.variable(field.variable).whole());
}

std::vector<MappedBox> map_shared(uint32_t rows, uint32_t cols) { return {{{0, rows, 0, cols}, kShared}}; }

std::vector<MappedBox> map_to_tile(uint32_t rows, uint32_t cols, TileId tile) {
  return {{{0, rows, 0, cols}, tile}};
}

std::vector<MappedBox> map_rows_to_tiles(uint32_t rows, uint32_t cols, TileId first) {
  std::vector<MappedBox> mapping(rows);
  for (uint32_t r = 0; r < rows; ++r) mapping[r] = {{r, 1, 0, cols}, first + r};
  return mapping;
}

std::vector<MappedBox> map_linearly(uint32_t rows, uint32_t cols, uint32_t tiles) {
  std::vector<MappedBox> mapping;
  const auto boundary = [](uint64_t total, uint64_t part, uint64_t parts) {
    return static_cast<uint32_t>(total * part / parts);
  };
  if (rows >= tiles || cols <= 1) {
    const uint32_t parts = std::max<uint32_t>(1, std::min(rows, tiles));
    for (uint32_t t = 0; t < parts; ++t) {
      const uint32_t begin = boundary(rows, t, parts);
      mapping.push_back({{begin, boundary(rows, t + 1, parts) - begin, 0, cols}, t});
    }
    return mapping;
  }
  for (uint32_t r = 0; r < rows; ++r) {
    const TileId first = boundary(tiles, r, rows);
    const uint32_t parts = std::min(cols, boundary(tiles, r + 1, rows) - first);
    for (uint32_t p = 0; p < parts; ++p) {
      const uint32_t begin = boundary(cols, p, parts);
      mapping.push_back({{r, 1, begin, boundary(cols, p + 1, parts) - begin}, first + p});
    }
  }
  return mapping;
}

}  // namespace tessera::program
