#include <algorithm>
#include <optional>

#include "kernels/common/element.h"
#include "kernels/map/reduce/codelet.h"
#include "kernels/tile/tile_product/codelet.h"
#include "ops/dense/dense.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::BoxSeries;
using program::CopyGroup;
using program::MappedBox;
using program::Phase;
using program::Role;
using program::StepId;
using program::TileId;
using program::VariableId;

/// Tiles that hold a broadcast part together, at most: more would take more transfers to send no
/// more.
constexpr uint32_t kMostHolders = 16;

/// Place of a tile in the grid.
struct Place {
  uint32_t m, k, n;
};

class Builder {
 public:
  Builder(const DenseShape& shape, const DensePartition& partition)
      : shape_(shape), partition_(partition), layouts_(dense_layouts(shape, partition)) {}

  DenseProgram build() {
    add_operands();
    add_parts();
    std::vector<StepId> steps;
    if (!input_copies_.groups.empty()) steps.push_back(program().copy(std::move(input_copies_)));
    steps.push_back(program().execute(multiply()));
    if (partition_.k_parts > 1) steps.push_back(program().execute(reduce()));
    if (partition_.slices() > 1) steps.push_back(program().copy(store_slice()));
    const StepId body = program().sequence(std::move(steps));
    program().set_main(partition_.slices() > 1 ? program().repeat(partition_.slices(), body, slice_) : body);
    return std::move(out_);
  }

 private:
  program::Program& program() { return out_.program; }

  TileId tile_of(const Place& p) const {
    return partition_.pairs_share_x ? (p.k * partition_.n_parts + p.n) * partition_.m_parts + p.m
                                    : (p.k * partition_.m_parts + p.m) * partition_.n_parts + p.n;
  }
  Place place_of(TileId tile) const {
    if (partition_.pairs_share_x)
      return {tile % partition_.m_parts, tile / partition_.m_parts / partition_.n_parts,
              tile / partition_.m_parts % partition_.n_parts};
    return {tile / partition_.n_parts % partition_.m_parts, tile / partition_.n_parts / partition_.m_parts,
            tile % partition_.n_parts};
  }

  /// Calls visit(box of the share, its holder's number) for each share of a run of elements.
  template <class Visit>
  static void slice_evenly(uint32_t begin, uint32_t elements, uint32_t holders, const Visit& visit) {
    const std::vector<uint32_t> partition = split_evenly(elements, holders, 1);
    for (uint32_t h = 0; h + 1 < partition.size(); ++h)
      visit(begin + partition[h], partition[h + 1] - partition[h], h);
  }

  /// A variable of a layout whose parts are shared out over the tiles that `tile_of_slice` names.
  template <class TileOfSlice>
  std::vector<MappedBox> slices(const PartedMatrix& layout, uint32_t rows, uint32_t holders,
                                const TileOfSlice& tile_of_slice) const {
    std::vector<MappedBox> mapping;
    for (uint32_t i = 0; i < layout.row_parts(); ++i)
      for (uint32_t j = 0; j < layout.col_parts(); ++j)
        slice_evenly(layout.begin(i, j), layout.elements_of(i, j), holders,
                     [&](uint32_t begin, uint32_t count, uint32_t h) {
                       mapping.push_back({{0, rows, begin, count}, tile_of_slice(i, j, h)});
                     });
    return mapping;
  }

  /// A temporary of `copies` rows of a layout: tile t has the part box_of(place of t).
  template <class BoxOf>
  VariableId temporary(std::string name, Type type, const PartedMatrix& layout, uint32_t copies,
                       const BoxOf& box_of) {
    std::vector<MappedBox> mapping;
    for (TileId tile = 0; tile < partition_.tiles(); ++tile)
      mapping.push_back({box_of(place_of(tile)), tile});
    return program().add(
        {std::move(name), type, copies, layout.slice_elements(), Role::temporary, std::move(mapping), {}});
  }

  VariableId operand(std::string name, Role role, const PartedMatrix& layout,
                     std::vector<MappedBox> mapping) {
    return program().add({std::move(name),
                          shape_.numbers.operands,
                          layout.slices(),
                          layout.slice_elements(),
                          role,
                          std::move(mapping),
                          {}});
  }

  void add_operands() {
    const auto& [w, x, y] = layouts_;
    out_.w = operand(shape_.names.left, Role::input, w,
                     slices(w, w.slices(), std::min(partition_.n_parts, kMostHolders),
                            [&](uint32_t i, uint32_t j, uint32_t h) {
                              return tile_of({i, j, h});
                            }));
    out_.x = operand(shape_.names.right, Role::input, x,
                     slices(x, x.slices(), std::min(partition_.m_parts, kMostHolders),
                            [&](uint32_t i, uint32_t j, uint32_t h) {
                              return tile_of({h, i, j});
                            }));
    out_.y = operand(shape_.names.result, Role::output, y, y_slices(y.slices()));
    if (partition_.slices() > 1)
      slice_ = program().add({"slice", Type::u32, 1, 1, Role::temporary, program::map_to_tile(1, 1, 0), {}});
  }

  std::vector<MappedBox> y_slices(uint32_t rows) const {
    return slices(layouts_.y, rows, partition_.k_parts, [&](uint32_t i, uint32_t j, uint32_t h) {
      return tile_of({i, h, j});
    });
  }

  /// What each tile multiplies, where it is not at home there already.
  void add_parts() {
    const auto& [w, x, y] = layouts_;
    w_part_ = out_.w;
    x_part_ = out_.x;
    if (partition_.n_parts > 1 || partition_.m_slices > 1) {
      w_part_ = temporary("W.part", shape_.numbers.operands, w, partition_.n_parts,
                          [&](const Place& p) { return w.part(p.n, p.m, p.k); });
      broadcast(out_.w, w_part_, partition_.n_parts, partition_.m_slices > 1);
    }
    if (partition_.m_parts > 1 || partition_.n_slices > 1) {
      x_part_ = temporary("X.part", shape_.numbers.operands, x, partition_.m_parts,
                          [&](const Place& p) { return x.part(p.m, p.k, p.n); });
      broadcast(out_.x, x_part_, partition_.m_parts, partition_.n_slices > 1);
    }
    y_slice_ = out_.y;
    if (partition_.slices() > 1)
      y_slice_ = program().add(
          {"Y.slice", shape_.numbers.operands, 1, y.slice_elements(), Role::temporary, y_slices(1), {}});
    partials_ = y_slice_;
    if (partition_.k_parts > 1)
      partials_ = temporary("partials", shape_.numbers.partials, y, partition_.k_parts,
                            [&](const Place& p) { return y.part(p.k, p.m, p.n); });
  }

  /// Copies a slice of an operand to each row of its parts.
  void broadcast(VariableId from, VariableId to, uint32_t copies, bool sliced) {
    const uint32_t cols = program().variable(from).cols;
    CopyGroup group{
        from, to, copies, BoxSeries::same({0, 1, 0, cols}), BoxSeries::stepped({0, 1, 0, cols}, {1, 0}),
        {},   {}, {}};
    if (sliced) group.source_offset = CopyGroup::RuntimeRow{*slice_, 1};
    input_copies_.groups.push_back(std::move(group));
  }

  program::ComputeSet multiply() const {
    const auto& [w, x, y] = layouts_;
    std::vector<Box> w_boxes, x_boxes, y_boxes;
    std::vector<int64_t> m, k, n;
    for (TileId tile = 0; tile < partition_.tiles(); ++tile) {
      const Place p = place_of(tile);
      w_boxes.push_back(w.part(w_part_ == out_.w ? 0 : p.n, p.m, p.k));
      x_boxes.push_back(x.part(x_part_ == out_.x ? 0 : p.m, p.k, p.n));
      y_boxes.push_back(y.part(partition_.k_parts > 1 ? p.k : 0, p.m, p.n));
      m.push_back(w.rows_of(p.m));
      k.push_back(w.cols_of(p.k));
      n.push_back(x.cols_of(p.n));
    }
    program::VertexGroup group{&kernels::dense_product_codelet, 0, partition_.tiles(), 1, {}, {}};
    group.fields = {{w_part_, BoxSeries::table(std::move(w_boxes))},
                    {x_part_, BoxSeries::table(std::move(x_boxes))},
                    {partials_, BoxSeries::table(std::move(y_boxes))}};
    group.params = {std::move(m), std::move(k), std::move(n)};
    return {"multiply", Phase::compute, {std::move(group)}};
  }

  program::ComputeSet reduce() const {
    // Vertices in the order of tiles, as groups have them; a tile without a share has an empty one.
    std::vector<Box> out(partition_.tiles());
    for (const MappedBox& slice : y_slices(1)) out[slice.tile] = slice.box;
    std::vector<Box> in;
    for (const Box& box : out) in.push_back({0, box.empty() ? 0 : partition_.k_parts, box.col, box.cols});
    program::VertexGroup group{&kernels::reduce_sum_codelet, 0, partition_.tiles(), 1, {}, {}};
    group.fields = {{partials_, BoxSeries::table(std::move(in))},
                    {y_slice_, BoxSeries::table(std::move(out))}};
    group.params = {kernels::param_of(1.0F)};
    return {"reduce", Phase::reduce, {std::move(group)}};
  }

  program::CopySet store_slice() const {
    const Box slice{0, 1, 0, layouts_.y.slice_elements()};
    CopyGroup group{y_slice_, out_.y, 1, BoxSeries::same(slice), BoxSeries::same(slice), {}, {}, {}};
    group.target_offset = CopyGroup::RuntimeRow{*slice_, 1};
    return {"store slice", {std::move(group)}};
  }

  const DenseShape& shape_;
  const DensePartition& partition_;
  DenseLayouts layouts_;
  DenseProgram out_;
  program::CopySet input_copies_{"broadcast", {}};
  std::optional<VariableId> slice_;
  VariableId w_part_ = 0;
  VariableId x_part_ = 0;
  VariableId y_slice_ = 0;
  VariableId partials_ = 0;
};

}  // namespace

DenseProgram build_dense(const DenseShape& shape, const DensePartition& partition) {
  return Builder(shape, partition).build();
}

}  // namespace tessera::ops
