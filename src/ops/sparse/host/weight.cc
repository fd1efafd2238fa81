#include "ops/sparse/host/weight.h"

#include <algorithm>
#include <utility>

#include "kernels/map/gather/codelet.h"
#include "ops/split.h"
#include "sparse/pattern.h"

namespace tessera::ops {

using sparse::PackedBlocks;
using sparse::PackedElements;
using sparse::PackedPanels;

const std::byte* PackedWeight::values() const {
  if (const auto* blocks = std::get_if<PackedBlocks>(&form)) return blocks->values().data();
  if (const auto* panels = std::get_if<PackedPanels>(&form)) return panels->values().data();
  return std::get<PackedElements>(form).values();
}

uint32_t PackedWeight::rows() const {
  return std::visit([](const auto& w) { return w.rows(); }, form);
}
uint32_t PackedWeight::cols() const {
  return std::visit([](const auto& w) { return w.cols(); }, form);
}
Type PackedWeight::type() const {
  return std::visit([](const auto& w) { return w.type(); }, form);
}
Pattern PackedWeight::pattern() const {
  return std::visit([](const auto& w) { return w.pattern(); }, form);
}
bool PackedWeight::is_dynamic() const {
  return std::visit([](const auto& w) { return w.is_dynamic(); }, form);
}
std::optional<uint64_t> PackedWeight::capacity() const {
  if (!is_dynamic()) return {};
  if (const auto* blocks = std::get_if<PackedBlocks>(&form)) return blocks->capacity();
  return std::get<PackedElements>(form).capacity();
}

PackedWeight prepack_weight(const SparseMatrix& matrix, Type type) {
  if (matrix.pattern.block_size > 1) return {PackedBlocks(matrix, type)};
  sparse::validate(matrix);
  return {PackedElements(matrix, type)};
}

PackedWeight prepack_dense(const SparseMatrix& matrix, Type type) {
  sparse::validate(matrix);
  PackedPanels panels(matrix.pattern.rows, matrix.pattern.cols, type);
  const std::vector<float> dense = sparse::to_dense(matrix);
  panels.set_values(row_major(dense.data(), matrix.pattern.cols));
  return {std::move(panels)};
}

PackedWeight prepack_index(const Pattern& pattern, Type type, std::optional<uint64_t> capacity,
                           const base::ParallelFor& parallel) {
  if (pattern.block_size != 1) return {PackedBlocks::without_values(pattern, type, capacity)};
  sparse::validate(pattern);
  return {PackedElements::without_values(pattern, type, capacity, parallel)};
}

void set_pattern(PackedWeight& weight, const Pattern& pattern) {
  if (auto* blocks = std::get_if<PackedBlocks>(&weight.form))
    blocks->arrange(pattern);
  else
    std::get<PackedElements>(weight.form).set_pattern(pattern);
}

std::vector<float> pack(const PackedWeight& weight, std::span<const float> values) {
  std::vector<float> packed(packed_shape(weight).elements());
  std::visit([&](const auto& form) { form.pack(values, packed); }, weight.form);
  return packed;
}

std::vector<float> unpack(const PackedWeight& weight, std::span<const float> packed) {
  const Pattern pattern = weight.is_dense() ? Pattern() : weight.pattern();
  std::vector<float> values(weight.is_dense() ? uint64_t{weight.rows()} * weight.cols()
                                              : sparse::stored_values(pattern));
  std::visit([&](const auto& form) { form.unpack(packed, values); }, weight.form);
  return values;
}

PackedShape packed_shape(const PackedWeight& weight) {
  if (const auto* blocks = std::get_if<PackedBlocks>(&weight.form))
    return {static_cast<uint32_t>(blocks->capacity()), blocks->order().block_values()};
  if (const auto* panels = std::get_if<PackedPanels>(&weight.form))
    return {panels->layout().rows(), panels->layout().cols()};
  return {static_cast<uint32_t>(std::get<PackedElements>(weight.form).places() / sparse::kRowGroupLanes),
          sparse::kRowGroupLanes};
}

void clear_free_places(const PackedWeight& weight, float* packed) {
  const auto* blocks = std::get_if<PackedBlocks>(&weight.form);
  if (blocks == nullptr) return;
  const size_t values = blocks->order().block_values();
  for (uint32_t slot : blocks->free_slots()) std::fill_n(packed + slot * values, values, 0.0F);
}

void update_index(const PackedWeight& weight, ProductKind product, const base::ParallelFor& parallel) {
  if (product != ProductKind::input_gradient) return;
  if (const auto* blocks = std::get_if<PackedBlocks>(&weight.form)) blocks->transposed_index();
  if (const auto* elements = std::get_if<PackedElements>(&weight.form)) elements->transposed(parallel);
}

program::StepId add_gather(const Builder& builder, const Operand& from, const Operand& places,
                           const Operand& to, uint32_t tiles) {
  const std::vector<uint32_t> begin = split_evenly(to.rows(), tiles);
  std::vector<program::Box> boxes;
  for (size_t p = 0; p + 1 < begin.size(); ++p)
    boxes.push_back({begin[p], begin[p + 1] - begin[p], 0, to.cols()});
  program::VertexGroup group;
  group.codelet = &kernels::gather_elements_codelet;
  group.tiles = static_cast<uint32_t>(boxes.size());
  group.fields = {{from.variable, program::BoxSeries::same(from.box)},
                  {places.variable, program::BoxSeries::table(places.inside(boxes))},
                  {to.variable, program::BoxSeries::table(to.inside(boxes))}};
  program::ComputeSet set{"gather", program::Phase::rearrange, {}};
  set.groups.push_back(std::move(group));
  return builder.execute(std::move(set));
}

WeightIndex::WeightIndex(std::shared_ptr<const PackedWeight> weight, std::string name)
    : weight_(std::move(weight)), name_(std::move(name)) {}

program::VariableId WeightIndex::array(const Builder& builder, const char* name, Type type, const void* data,
                                       uint64_t rows, uint32_t cols, bool changes) {
  const std::string full_name = name_ + "." + name;
  const auto found = added_.find({full_name, data});
  if (found != added_.end()) return found->second;
  const auto r = static_cast<uint32_t>(rows);
  program::VariableId id = 0;
  if (changes) {
    id = builder.external(full_name, program::Role::input, type, r, cols).variable;
    bindings_.push_back({id, data, cols});
  } else {
    id = builder.constant(full_name, type, r, cols, {weight_, static_cast<const std::byte*>(data)}).variable;
  }
  added_.emplace(std::pair(full_name, data), id);
  return id;
}

}  // namespace tessera::ops
