// Fields and copies of spiking layers on tiles.
#pragma once

#include <string>
#include <vector>

#include "ops/spiking/tiles/tiles.h"

namespace tessera::ops {

class SpikingTileParts {
 public:
  SpikingTileParts(const Builder& builder, const std::vector<SpikingProblem>& problems,
                   const SpikingTilePartition& partition)
      : b_(builder),
        problems_(problems),
        p_(partition),
        nothing_(builder.temporary("none", Type::f32, 1, 1, program::map_to_tile(1, 1, 0))) {}

  const SpikingTileLayer& layer(size_t l) const { return p_.layers[l]; }
  uint32_t batch() const { return problems_[0].batch; }
  uint32_t steps() const { return problems_[0].steps; }

  /// A temporary with columns for each neuron of a layer, on the neuron's tile.
  Operand of_neurons(const std::string& name, size_t l, Type type, uint32_t rows, uint32_t per_neuron,
                     program::Purpose purpose) const {
    return b_.temporary(name + std::to_string(l), type, rows, layer(l).neurons * per_neuron,
                        map_neurons(layer(l), rows, per_neuron), purpose);
  }
  /// A temporary with columns for each sample, on the tile that makes the sample's lists.
  Operand of_samples(const std::string& name, size_t l, Type type, uint32_t rows, uint32_t per_sample,
                     program::Purpose purpose) const {
    return b_.temporary(name + std::to_string(l), type, rows, batch() * per_sample,
                        map_lists(layer(l), rows, per_sample), purpose);
  }

  /// A field of the vertices on a layer's tiles: rows of the columns of each tile's neurons, offset by a row
  /// number that is read at run time.
  program::Field neurons(const Operand& operand, size_t l, uint32_t row, uint32_t rows, uint32_t per_neuron,
                         std::optional<program::VariableId> moved_by = {}) const {
    std::vector<program::Box> boxes;
    for (uint32_t i = 0; i < layer(l).tiles; ++i)
      boxes.push_back(operand.inside(
          {row, rows, layer(l).first_neuron(i) * per_neuron, layer(l).neurons_of(i) * per_neuron}));
    return {operand.variable, program::BoxSeries::table(std::move(boxes)), row_of(moved_by)};
  }
  program::Field neurons(const std::optional<Operand>& operand, size_t l, uint32_t row, uint32_t rows,
                         uint32_t per_neuron, std::optional<program::VariableId> moved_by = {}) const {
    return operand ? neurons(*operand, l, row, rows, per_neuron, moved_by) : none();
  }
  /// A field with all columns of a row.
  program::Field whole_row(const std::optional<Operand>& operand, uint32_t row,
                           std::optional<program::VariableId> moved_by = {}) const {
    if (!operand) return none();
    return {operand->variable, program::BoxSeries::same(operand->inside({row, 1, 0, operand->cols()})),
            row_of(moved_by)};
  }
  /// A field of the vertices that make lists: the columns of each tile's samples.
  program::Field samples(const Operand& operand, size_t l, uint32_t row, uint32_t per_sample,
                         std::optional<program::VariableId> moved_by = {}) const {
    std::vector<program::Box> boxes;
    for (const program::MappedBox& mapped : map_lists(layer(l), 1, per_sample))
      boxes.push_back(operand.inside({row, 1, mapped.box.col, mapped.box.cols}));
    return {operand.variable, program::BoxSeries::table(std::move(boxes)), row_of(moved_by)};
  }
  /// A field with the step number of a pass, for each of a layer's tiles; and for each tile that makes its
  /// lists.
  program::Field time(const Operand& times, size_t l, program::VariableId pass) const {
    return times_from(times, layer(l).first_time, pass);
  }
  program::Field time_of_lists(const Operand& times, size_t l, program::VariableId pass) const {
    return times_from(times, layer(l).first_time + layer(l).tiles, pass);
  }
  /// An empty field.
  program::Field none() const { return {nothing_.variable, program::BoxSeries::same(program::Box{})}; }

  program::VertexGroup on_tiles(size_t l, const program::Codelet& codelet) const {
    return on_tiles(layer(l).first_tile, layer(l).tiles, codelet);
  }
  static program::VertexGroup on_tiles(program::TileId first, uint32_t tiles,
                                       const program::Codelet& codelet) {
    program::VertexGroup group;
    group.codelet = &codelet;
    group.first_tile = first;
    group.tiles = tiles;
    return group;
  }

  /// Copies values of a layer's neurons from the order by tiles to the order by samples, or back.
  program::CopyGroup reordered(size_t l, const Operand& from, const Operand& to, bool from_tiles) const;

  /// Whether an operand has a mapping.
  bool lies(const Operand& operand, const std::vector<program::MappedBox>& mapping) const;

  /// Fills operands with zeros, in one superstep.
  program::StepId clear(const std::vector<Operand>& operands) const;

  /// The parameters of codelets that compute neurons, for each tile of a layer.
  std::vector<program::Param> params(size_t l) const;
  int64_t expected_inputs(size_t l) const;
  int64_t expected_listed(size_t l) const;

 private:
  static program::Field times_from(const Operand& times, uint32_t first, program::VariableId pass) {
    return {times.variable, program::BoxSeries::stepped(times.inside({0, 1, first, 1}), {.col = 1}),
            row_of(pass)};
  }
  static std::optional<program::RuntimeRow> row_of(std::optional<program::VariableId> moved_by) {
    if (!moved_by) return {};
    return program::RuntimeRow{*moved_by, 1};
  }

  const Builder& b_;
  const std::vector<SpikingProblem>& problems_;
  const SpikingTilePartition& p_;
  Operand nothing_;
};

}  // namespace tessera::ops
