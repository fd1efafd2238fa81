#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "base/ceil_divide.h"
#include "kernels/tile/tile_product/codelet.h"
#include "ops/dense/dense.h"
#include "ops/owners.h"
#include "ops/split.h"
#include "ops/tiles/rounding.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::BoxSeries;
using program::CopyGroup;
using program::MappedBox;
using program::Phase;
using program::StepId;
using program::TileId;
using program::VariableId;

/// Maximum number of tiles that hold a broadcast part together: with more there would be more transfers for
/// the same data.
constexpr uint32_t kMostHolders = 16;

/// If a tile is relieved of at least this many bytes of partial sums, the complete sums are sent on in a
/// superstep of their own.
constexpr uint64_t kWorthSending = 8192;

enum GridAxis : size_t { kAlongM, kAlongK, kAlongN };
/// Place of a tile in the grid, along each axis.
using GridPosition = std::array<uint32_t, 3>;

/// The grid of a partition on tiles numbered from 0.
class DenseGrid {
 public:
  explicit DenseGrid(const DensePartition& partition) : p_(partition) {}

  TileId tile_of(const GridPosition& at) const {
    const auto [m, k, n] = at;
    return p_.pairs_share_x ? (k * p_.n_parts + n) * p_.m_parts + m : (k * p_.m_parts + m) * p_.n_parts + n;
  }
  GridPosition place_of(TileId tile) const {
    if (p_.pairs_share_x)
      return {tile % p_.m_parts, tile / p_.m_parts / p_.n_parts, tile / p_.m_parts % p_.n_parts};
    return {tile / p_.n_parts % p_.m_parts, tile / p_.n_parts / p_.m_parts, tile % p_.n_parts};
  }

 private:
  const DensePartition& p_;
};

/// The axes along which the copies of a matrix lie, and the rows and columns of its parts.
struct MatrixAxes {
  GridAxis copies, rows, cols;

  /// The tile with this copy of part (i, j).
  GridPosition place_of(uint32_t copy, uint32_t i, uint32_t j) const {
    GridPosition at{};
    at[copies] = copy, at[rows] = i, at[cols] = j;
    return at;
  }
};
constexpr MatrixAxes kAxesOfW{kAlongN, kAlongM, kAlongK}, kAxesOfX{kAlongM, kAlongK, kAlongN},
    kAxesOfY{kAlongK, kAlongM, kAlongN};

/// A mapping of `rows` rows of a matrix in parts: the elements of each part are distributed over the tiles
/// with its first `holders` copies.
std::vector<MappedBox> share_out(const PartedMatrix& parts, uint32_t rows, uint32_t holders,
                                 const DenseGrid& grid, const MatrixAxes& axes) {
  std::vector<MappedBox> mapping;
  for (uint32_t i = 0; i < parts.row_parts(); ++i)
    for (uint32_t j = 0; j < parts.col_parts(); ++j) {
      const std::vector<uint32_t> begin = split_evenly(parts.elements_of(i, j), holders);
      for (uint32_t h = 0; h + 1 < begin.size(); ++h)
        mapping.push_back({{0, rows, parts.begin(i, j) + begin[h], begin[h + 1] - begin[h]},
                           grid.tile_of(axes.place_of(h, i, j))});
    }
  return mapping;
}

std::vector<MappedBox> without_empty(std::vector<MappedBox> mapping) {
  std::erase_if(mapping, [](const MappedBox& mapped) { return mapped.box.empty(); });
  return mapping;
}

class DenseBuilder {
 public:
  DenseBuilder(const Builder& builder, const DenseShape& shape, const DensePartition& partition,
               const ProductOperands& operands)
      : b_(builder),
        shape_(shape),
        partition_(partition),
        layouts_(dense_layouts(shape, partition)),
        grid_(partition),
        w_{*layouts_.values.parts, operands.values, partition.n_parts, partition.m_slices > 1, kAxesOfW},
        x_{*layouts_.x.parts, operands.x, partition.m_parts, partition.n_slices > 1, kAxesOfX},
        y_{*layouts_.y.parts, operands.y, partition.k_parts, partition.slices() > 1, kAxesOfY} {}

  StepId build() {
    if (partition_.slices() > 1)
      slice_ = b_.temporary("slice", Type::u32, 1, 1, program::map_to_tile(1, 1, 0)).variable;
    bring(left());
    bring(right());
    choose_result();
    std::vector<StepId> steps;
    b_.copy(std::move(input_copies_), steps);
    steps.push_back(b_.execute(multiply()));
    if (result().copies > 1) {
      Operand partials = b_.whole(result().local);
      if (partition_.staged_sums)
        for (uint32_t depth : vendor_sum_depths(result().copies))
          partials = add_in_stage(partials, depth, steps);
      steps.push_back(b_.execute(sums_of_rows(b_.mapping_of(sum_), partials, sum_)));
    }
    if (partition_.slices() > 1) steps.push_back(b_.copy(store_slice()));
    const bool is_sent = partition_.slices() == 1;
    if (is_sent) b_.send(sum_, result().operand, steps);
    const StepId body = b_.sequence(std::move(steps));
    return partition_.slices() > 1 ? b_.repeat(partition_.slices(), body, slice_) : body;
  }

 private:
  /// One of the three matrices in the grid: each part on as many tiles as there are copies.
  struct Side {
    const PartedMatrix& parts;
    const Operand& operand;
    uint32_t copies;
    bool is_sliced;
    MatrixAxes axes;
    VariableId local = 0;  ///< what the tiles process
    bool is_local_copy = false;

    /// A tile's box of the local variable, which has a row for each copy.
    Box box(const GridPosition& at, bool has_copies) const {
      return parts.part(has_copies ? at[axes.copies] : 0, at[axes.rows], at[axes.cols]);
    }
  };

  Side& left() { return shape_.product == ProductKind::sddmm ? y_ : w_; }
  Side& right() { return shape_.product == ProductKind::input_gradient ? y_ : x_; }
  Side& result() {
    return shape_.product == ProductKind::forward ? y_ : shape_.product == ProductKind::sddmm ? w_ : x_;
  }

  /// A temporary with a row for each copy, in which each tile has its part.
  Operand add_parts(const std::string& name, Type type, const Side& side) const {
    std::vector<MappedBox> mapping;
    for (TileId tile = 0; tile < partition_.tiles(); ++tile)
      mapping.push_back({side.box(grid_.place_of(tile), true), tile});
    return b_.temporary(name, type, side.copies, side.parts.slice_elements(), std::move(mapping),
                        b_.purpose_of(side.operand));
  }

  /// Brings each tile the part that it multiplies, unless the tile already has it.
  void bring(Side& side) {
    side.local = side.operand.variable;
    if (side.copies == 1 && !side.is_sliced) return;
    const Operand parts = add_parts(b_.variable_name(side.operand) + ".part", shape_.numbers.operands, side);
    side.local = parts.variable;
    side.is_local_copy = true;
    const uint32_t cols = side.parts.slice_elements();
    CopyGroup group{side.operand.variable,
                    parts.variable,
                    side.copies,
                    BoxSeries::same({side.operand.box.row, 1, side.operand.box.col, cols}),
                    BoxSeries::stepped({0, 1, 0, cols}, {1, 0}),
                    {},
                    {},
                    {}};
    if (side.is_sliced) group.source_offset = program::RuntimeRow{*slice_, 1};
    input_copies_.groups.push_back(std::move(group));
  }

  /// Where the complete sums of a slice are stored: at the result's place, if its tiles can add or compute
  /// them there; otherwise in the plan's layout, to be copied from there.
  void choose_result() {
    Side& side = result();
    sum_ = side.operand;
    const bool in_place = side.copies > 1 ? b_.holds(sum_) && !adds_on_few_tiles(side)
                                          : lies_as(sum_, layout_of_result().mapping);
    if (partition_.slices() > 1 || !in_place) {
      std::vector<MappedBox> mapping = share_out(side.parts, 1, side.copies, grid_, side.axes);
      sum_ = b_.temporary(b_.variable_name(side.operand) + ".slice", shape_.numbers.operands, 1,
                          side.parts.slice_elements(), std::move(mapping), b_.purpose_of(side.operand));
    }
    side.local = sum_.variable;
    side.is_local_copy = side.copies > 1;
    if (side.copies > 1) side.local = add_parts("partials", shape_.numbers.partials, side).variable;
  }

  /// Whether a tile that adds partial sums where the result lies receives many more of them than if the sums
  /// were spread over all tiles.
  bool adds_on_few_tiles(const Side& side) const {
    std::map<TileId, uint64_t> elements;
    for (const MappedBox& mapped : b_.mapping_of(side.operand))
      elements[mapped.tile] += mapped.box.elements();
    uint64_t most = 0;
    for (const auto& [tile, of_tile] : elements) most = std::max(most, of_tile);
    const uint64_t even =
        base::ceil_divide(uint64_t{side.parts.slice_elements()}, uint64_t{partition_.tiles()});
    return most > even && (most - even) * side.copies * size_of(shape_.numbers.partials) > kWorthSending;
  }

  const OperandLayout& layout_of_result() {
    return shape_.product == ProductKind::forward ? layouts_.y
           : shape_.product == ProductKind::sddmm ? layouts_.values
                                                  : layouts_.x;
  }

  bool lies_as(const Operand& operand, const std::vector<MappedBox>& mapping) const {
    const auto sorted = [](std::vector<MappedBox> boxes) {
      std::ranges::sort(boxes, {}, [](const MappedBox& m) { return std::pair(m.tile, m.box.col); });
      return boxes;
    };
    return sorted(b_.mapping_of(operand)) == sorted(without_empty(mapping));
  }

  /// Adds partial sums in `depth` sections of rows, and returns the results as `depth` rows. The tiles of a
  /// section, which have its rows, each add a slice of a part.
  Operand add_in_stage(const Operand& partials, uint32_t depth, std::vector<StepId>& steps) {
    const Side& side = result();
    const uint32_t rows = partials.rows();
    std::vector<std::pair<MappedBox, Box>> owned;  // with the sums that its owner receives
    for (uint32_t section = 0; section < depth; ++section) {
      const auto first = [&](uint64_t total, uint32_t of) {
        return static_cast<uint32_t>(total * of / depth);
      };
      const uint32_t row = first(rows, section), count = first(rows, section + 1) - row;
      const uint32_t copy = first(side.copies, section);
      const uint32_t holders = std::max(1U, first(side.copies, section + 1) - copy);
      for (uint32_t i = 0; i < side.parts.row_parts(); ++i)
        for (uint32_t j = 0; j < side.parts.col_parts(); ++j) {
          const std::vector<uint32_t> begin = split_evenly(side.parts.elements_of(i, j), holders);
          for (uint32_t h = 0; h + 1 < begin.size(); ++h) {
            const uint32_t col = side.parts.begin(i, j) + begin[h], cols = begin[h + 1] - begin[h];
            if (cols == 0) continue;
            const TileId owner = grid_.tile_of(side.axes.place_of(copy + h, i, j));
            owned.emplace_back(MappedBox{{section, 1, col, cols}, owner}, Box{row, count, col, cols});
          }
        }
    }
    std::ranges::sort(owned, {}, [](const auto& entry) { return entry.first.tile; });
    std::vector<MappedBox> mapping;
    std::vector<Box> received;
    for (const auto& [owner, from] : owned) mapping.push_back(owner), received.push_back(from);
    const Operand sums = b_.temporary("partials.stage", shape_.numbers.partials, depth, partials.cols(),
                                      mapping, b_.purpose_of(side.operand));
    steps.push_back(b_.execute(sums_of_owners(mapping, {partials, std::move(received)}, sums)));
    return sums;
  }

  program::ComputeSet multiply() {
    std::vector<int64_t> m, k, n;
    for (TileId tile = 0; tile < partition_.tiles(); ++tile) {
      const auto [i, j, l] = grid_.place_of(tile);
      m.push_back(w_.parts.rows_of(i));
      k.push_back(w_.parts.cols_of(j));
      n.push_back(x_.parts.cols_of(l));
    }
    program::VertexGroup group{&codelet(), 0, partition_.tiles(), 1, {}, {}};
    for (const Side* side : {&left(), &right(), &result()}) group.fields.push_back(field_of(*side));
    group.params = {std::move(m), std::move(k), std::move(n)};
    program::ComputeSet set{"multiply", Phase::compute, {std::move(group)}};
    if (result().copies > 1) round_partials(shape_.numbers, set);
    return set;
  }

  program::Field field_of(const Side& side) const {
    const Operand whole = b_.whole(side.local);
    const bool is_operand = side.local == side.operand.variable;
    std::vector<Box> boxes;
    for (TileId tile = 0; tile < partition_.tiles(); ++tile)
      boxes.push_back(
          (is_operand ? side.operand : whole).inside(side.box(grid_.place_of(tile), side.is_local_copy)));
    return {side.local, BoxSeries::table(std::move(boxes))};
  }

  const program::Codelet& codelet() const {
    switch (shape_.product) {
      case ProductKind::input_gradient: return kernels::dense_input_gradient_codelet;
      case ProductKind::sddmm: return kernels::dense_weight_gradient_codelet;
      default: return kernels::dense_product_codelet;
    }
  }

  program::CopySet store_slice() {
    CopyGroup group{sum_.variable,
                    result().operand.variable,
                    1,
                    BoxSeries::same(sum_.box),
                    BoxSeries::same({result().operand.box.row, 1, result().operand.box.col, sum_.cols()}),
                    {},
                    {},
                    {}};
    group.target_offset = program::RuntimeRow{*slice_, 1};
    return {"store slice", {std::move(group)}};
  }

  const Builder& b_;
  const DenseShape& shape_;
  const DensePartition& partition_;
  ProductLayouts layouts_;
  DenseGrid grid_;
  Side w_, x_, y_;
  program::CopySet input_copies_{"broadcast", {}};
  std::optional<VariableId> slice_;
  Operand sum_;
};

}  // namespace

ProductLayouts dense_layouts(const DenseShape& s, const DensePartition& p) {
  const uint32_t grain = dense_inner_grain(s.numbers.operands);
  const DenseGrid grid(p);
  PartedMatrix w(s.m, s.k, p.m_slices, 1, p.m_parts, kDenseRowGrain, p.k_parts, grain);
  PartedMatrix x(s.k, s.n, 1, p.n_slices, p.k_parts, grain, p.n_parts, 1);
  PartedMatrix y(s.m, s.n, p.m_slices, p.n_slices, p.m_parts, kDenseRowGrain, p.n_parts, 1);
  auto w_mapping = share_out(w, w.slices(), std::min(p.n_parts, kMostHolders), grid, kAxesOfW);
  auto x_mapping = share_out(x, x.slices(), std::min(p.m_parts, kMostHolders), grid, kAxesOfX);
  auto y_mapping = share_out(y, y.slices(), p.k_parts, grid, kAxesOfY);
  return {parted_layout(std::move(w), std::move(w_mapping)),
          parted_layout(std::move(x), std::move(x_mapping)),
          parted_layout(std::move(y), std::move(y_mapping))};
}

StepId build_dense(const Builder& builder, const DenseShape& shape, const DensePartition& partition,
                   const ProductOperands& operands) {
  return DenseBuilder(builder, shape, partition, operands).build();
}

}  // namespace tessera::ops
