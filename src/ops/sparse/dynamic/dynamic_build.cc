#include <algorithm>

#include "kernels/tile/bucket/codelet.h"
#include "ops/owners.h"
#include "ops/sparse/dynamic/dynamic.h"
#include "ops/split.h"
#include "ops/tiles/rounding.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::BoxSeries;
using program::ComputeSet;
using program::CopySet;
using program::MappedBox;
using program::Phase;
using program::StepId;
using program::VariableId;

/// Maximum number of flags that one vertex combines, if two rounds of vertices suffice.
constexpr uint32_t kMostFlags = 64;

class DynamicBuilder {
 public:
  DynamicBuilder(const Builder& builder, const DynamicShape& shape, const DynamicGrid& grid,
                 const ProductOperands& operands)
      : b_(builder),
        shape_(shape),
        grid_(grid),
        operands_(operands),
        tiling_(grid.tiling),
        partitions_(tiling_.partitions()),
        block_elements_(shape.block_size * shape.block_size) {}

  BuiltProduct build() {
    add_buckets();
    distribute();
    std::vector<StepId> steps = {b_.copy(std::move(distribute_)), b_.execute(multiply("distribution", true))};
    if (partitions_ > 1) steps.push_back(propagation());
    if (partitions_ > 1 && is_sddmm()) steps.push_back(return_exchange());
    choose_result();
    steps.push_back(b_.copy(is_sddmm() ? send_buckets() : send_partials()));
    if (needs_sum())
      steps.push_back(b_.execute(sums_of_owners(owners_, {received_, received_boxes_}, result_)));
    b_.send(result_, result_operand(), steps);
    return {b_.sequence(std::move(steps)), bucket_.metadata.variable};
  }

 private:
  Operand temporary(std::string name, Type type, uint64_t rows, uint32_t cols,
                    std::vector<MappedBox> mapping) const {
    return b_.temporary(std::move(name), type, static_cast<uint32_t>(rows), cols, std::move(mapping));
  }

  /// box_of(part of m, of k, of n) on each tile of the grid.
  template <class BoxOf>
  std::vector<Box> tile_boxes(const BoxOf& box_of) const {
    std::vector<Box> boxes;
    for (uint32_t n = 0; n < tiling_.n_parts; ++n)
      for (uint32_t k = 0; k < tiling_.k_parts; ++k)
        for (uint32_t m = 0; m < tiling_.m_parts; ++m) boxes.push_back(box_of(m, k, n));
    return boxes;
  }
  bool is_sddmm() const { return shape_.product == ProductKind::sddmm; }
  bool is_transposed() const { return shape_.product == ProductKind::input_gradient; }

  /// The rows of X and dX (along k), or of Y and dY (along m), in a grid's parts.
  struct Side {
    bool along_m;
    uint32_t rows;
    uint32_t copies;  ///< per part: one for each part of the other side
    const std::vector<uint32_t>& begin;
  };
  Side along_m() const { return {true, shape_.m, tiling_.k_parts, grid_.row_begin}; }
  Side along_k() const { return {false, shape_.k, tiling_.m_parts, grid_.x_begin}; }
  Side result_side() const { return is_transposed() ? along_k() : along_m(); }

  /// Each tile's part of one bucket, in variables that hold all buckets once for each part of n.
  Box values_box(uint32_t m, uint32_t k, uint32_t n) const {
    return {(n * partitions_ + grid_.partition(m, k)) * tiling_.bucket_blocks, tiling_.bucket_blocks, 0,
            block_elements_};
  }
  Box metadata_box(uint32_t m, uint32_t k, uint32_t n) const {
    return {n * partitions_ + grid_.partition(m, k), 1, 0, grid_.bucket_words};
  }

  void add_buckets() {
    value_boxes_ = tile_boxes([&](auto... at) { return values_box(at...); });
    metadata_boxes_ = tile_boxes([&](auto... at) { return metadata_box(at...); });
    const uint64_t copies = uint64_t{tiling_.n_parts} * partitions_;
    const auto values = [&](const char* name) {
      return b_.temporary(name, needs_sum() && is_sddmm() ? shape_.numbers.partials : shape_.numbers.operands,
                          static_cast<uint32_t>(copies * tiling_.bucket_blocks), block_elements_,
                          on_tiles(value_boxes_), b_.purpose_of(operands_.values));
    };
    const auto metadata = [&](const char* name) {
      return temporary(name, Type::u16, copies, grid_.bucket_words, on_tiles(metadata_boxes_));
    };
    bucket_ = {values("bucket.values"), metadata("bucket.metadata")};
    if (partitions_ > 1) next_ = {values("next.values"), metadata("next.metadata")};
  }

  /// Each tile's part of a side, in a variable that holds the side once for each part of the other.
  std::vector<Box> side_boxes(const Side& side) const {
    return tile_boxes([&](uint32_t m, uint32_t k, uint32_t n) {
      const uint32_t own = side.along_m ? m : k;
      const uint32_t other = side.along_m ? k : m;
      return Box{other * side.rows + side.begin[own], side.begin[own + 1] - side.begin[own],
                 grid_.col_begin[n], grid_.col_begin[n + 1] - grid_.col_begin[n]};
    });
  }

  /// Tiles' parts of a side.
  struct Parts {
    Operand operand;
    std::vector<Box> boxes;

    program::Field field() const { return {operand.variable, BoxSeries::table(boxes)}; }
  };
  Parts add_parts(const char* name, Type type, const Side& side) {
    std::vector<Box> boxes = side_boxes(side);
    const Operand parts = temporary(name, type, uint64_t{side.copies} * side.rows, shape_.n, on_tiles(boxes));
    return {parts, std::move(boxes)};
  }

  /// Copies buckets to all tiles of their partition, and to each tile its parts of the factors.
  void distribute() {
    if (!is_sddmm()) distribute(operands_.values, bucket_.values, tiling_.n_parts);
    distribute(*operands_.metadata, bucket_.metadata, tiling_.n_parts);
    if (!is_transposed()) x_parts_ = copy_side("X.parts", operands_.x, along_k());
    if (shape_.product != ProductKind::forward) y_parts_ = copy_side("dY.parts", operands_.y, along_m());
    if (shape_.product == ProductKind::forward)
      y_parts_ = add_parts("partials", shape_.numbers.partials, along_m());
    if (is_transposed()) x_parts_ = add_parts("partials", shape_.numbers.partials, along_k());
  }

  Parts copy_side(const char* name, const Operand& from, const Side& side) {
    Parts parts = add_parts(name, shape_.numbers.operands, side);
    distribute(from, parts.operand, side.copies);
    return parts;
  }

  /// Copies an operand `copies` times, one below the other.
  void distribute(const Operand& from, const Operand& to, uint32_t copies) {
    distribute_.groups.push_back(copy_to_all(from, to, copies, {.row = from.rows()}));
  }

  /// Each tile processes the bucket that it has, and the tiles of the first part of n report whether one
  /// still holds blocks that belong elsewhere.
  ComputeSet multiply(std::string name, bool is_first) {
    std::vector<int64_t> partition;
    for (const Box& box : metadata_boxes_) partition.push_back(box.row % partitions_);
    program::VertexGroup product{
        is_sddmm() ? &kernels::bucket_sddmm_codelet : &kernels::bucket_product_codelet,
        0,
        tiling_.tiles(),
        1,
        {},
        {}};
    product.fields = {{bucket_.values.variable, BoxSeries::table(value_boxes_)},
                      {bucket_.metadata.variable, BoxSeries::table(metadata_boxes_)},
                      (is_transposed() ? y_parts_ : x_parts_).field(),
                      (is_transposed() ? x_parts_ : y_parts_).field()};
    product.params = {int64_t{shape_.block_size}, partition, int64_t{is_first}};
    if (!is_sddmm()) product.params.emplace_back(int64_t{is_transposed()});
    ComputeSet set{std::move(name), Phase::compute, {std::move(product)}};
    if (needs_sum() || !is_sddmm()) round_partials(shape_.numbers, set);
    if (partitions_ == 1) return set;
    if (is_first)
      flags_ = temporary("pending", Type::u32, partitions_, 1, program::map_rows_to_tiles(partitions_, 1))
                   .variable;
    program::VertexGroup pending{&kernels::bucket_pending_codelet, 0, partitions_, 1, {}, {}};
    pending.fields = {{bucket_.metadata.variable,
                       BoxSeries::table({metadata_boxes_.begin(), metadata_boxes_.begin() + partitions_})},
                      {flags_, BoxSeries::stepped({0, 1, 0, 1}, {1, 0})}};
    partition.resize(partitions_);
    pending.params = {std::move(partition), int64_t{partitions_}};
    set.groups.push_back(std::move(pending));
    if (is_sddmm()) set.groups.push_back(count_steps(is_first ? 0 : 1, is_first));
    return set;
  }

  /// Number of steps that buckets have moved, on tile 0: they return by as many.
  program::VertexGroup count_steps(int64_t by, bool is_first) {
    if (is_first) steps_ = temporary("steps", Type::u32, 1, 1, program::map_to_tile(1, 1, 0)).variable;
    program::VertexGroup count{&kernels::count_codelet, 0, 1, 1, {}, {}};
    count.fields = {{steps_, BoxSeries::same({0, 1, 0, 1})}};
    count.params = {by, int64_t{is_first}};
    return count;
  }

  /// While any bucket holds blocks that belong elsewhere, all move on by one partition.
  StepId propagation() {
    std::vector<StepId> test;
    VariableId flags = flags_;
    for (uint32_t count = partitions_; count > 1;) {
      const uint32_t fan =
          count <= kMostFlags ? count : std::max(kMostFlags, (count + kMostFlags - 1) / kMostFlags);
      const uint32_t groups = (count + fan - 1) / fan;
      const VariableId any =
          temporary("any pending", Type::u32, groups, 1, program::map_rows_to_tiles(groups, 1)).variable;
      program::VertexGroup group{&kernels::any_flag_codelet, 0, groups, 1, {}, {}};
      group.fields = {{flags, BoxSeries::stepped({0, fan, 0, 1}, {fan, 0})},
                      {any, BoxSeries::stepped({0, 1, 0, 1}, {1, 0})}};
      test.push_back(b_.execute({"any pending", Phase::control, {std::move(group)}}));
      flags = any;
      count = groups;
    }
    const StepId body =
        b_.sequence({b_.copy(shift()), b_.copy(keep()), b_.execute(multiply("propagation", false))});
    return b_.loop_while(b_.sequence(std::move(test)), flags, body);
  }

  /// Moves the bucket of each partition to the preceding one.
  CopySet shift() const {
    CopySet set{"shift buckets", {}};
    add_ring(bucket_.values, next_.values, tiling_.bucket_blocks, false, set);
    add_ring(bucket_.metadata, next_.metadata, 1, false, set);
    return set;
  }

  /// Moves buckets, of this many rows each, by one partition: to the preceding or the following one.
  void add_ring(const Operand& from, const Operand& to, uint32_t bucket_rows, bool back, CopySet& set) const {
    const uint32_t cols = from.cols();
    const uint32_t rows = partitions_ * bucket_rows;
    const auto move = [&](uint32_t source, uint32_t target, uint32_t count) {
      if (back) std::swap(source, target);
      set.groups.push_back({from.variable,
                            to.variable,
                            tiling_.n_parts,
                            BoxSeries::stepped({source, count, 0, cols}, {rows, 0}),
                            BoxSeries::stepped({target, count, 0, cols}, {rows, 0}),
                            {},
                            {},
                            {}});
    };
    move(bucket_rows, 0, rows - bucket_rows);
    move(0, rows - bucket_rows, bucket_rows);
  }

  /// The received buckets become the ones that tiles process: a copy within each tile.
  CopySet keep() const {
    CopySet set{"keep buckets", {}};
    add_kept(next_.values, bucket_.values, set);
    add_kept(next_.metadata, bucket_.metadata, set);
    return set;
  }
  static void add_kept(const Operand& from, const Operand& to, CopySet& set) {
    set.groups.push_back(
        {from.variable, to.variable, 1, BoxSeries::same(from.box), BoxSeries::same(to.box), {}, {}, {}});
  }

  /// Returns values to the origins of their buckets.
  StepId return_exchange() {
    CopySet back{"shift back", {}};
    add_ring(bucket_.values, next_.values, tiling_.bucket_blocks, true, back);
    CopySet kept{"keep values", {}};
    add_kept(next_.values, bucket_.values, kept);
    const StepId body = b_.sequence({b_.copy(std::move(back)), b_.copy(std::move(kept)),
                                     b_.execute({"count back", Phase::control, {count_steps(-1, false)}})});
    return b_.loop_while(b_.sequence({}), steps_, body);
  }

  bool needs_sum() const {
    if (is_sddmm()) return tiling_.n_parts > 1;
    return result_side().copies > 1 || shape_.numbers.partials != shape_.numbers.operands;
  }

  const Operand& result_operand() const {
    return is_sddmm() ? operands_.values : is_transposed() ? operands_.x : operands_.y;
  }

  /// Sums are added where the result lies, or otherwise in even ranges of rows, from which they are sent.
  void choose_result() {
    result_ = result_operand();
    if (needs_sum() && !b_.holds(result_))
      result_ = temporary("result", shape_.numbers.operands, result_.rows(), result_.cols(), {});
    owners_ = b_.mapping_of(result_);
    std::ranges::sort(owners_, {}, &MappedBox::tile);
  }

  /// Sends partial sums to the tiles that own their rows of the result: there, the rows of each summand one
  /// after another.
  CopySet send_partials() {
    const Side side = result_side();
    return send((is_transposed() ? x_parts_ : y_parts_).operand, side.rows, side.copies);
  }

  /// Sends blocks to the tiles that own their buckets: there, the results of each part of n one after
  /// another.
  CopySet send_buckets() {
    return send(bucket_.values, partitions_ * tiling_.bucket_blocks, tiling_.n_parts);
  }

  /// Sends `summands` stacked matrices of this many rows to the owners of their sum.
  CopySet send(const Operand& from, uint32_t rows, uint32_t summands) {
    if (!needs_sum()) {
      CopySet set{"send", {}};
      add_kept(from, result_, set);
      return set;
    }
    std::vector<MappedBox> mapping;
    std::vector<Box> sources, targets;
    for (const MappedBox& owned : owners_) {
      const uint32_t first = owned.box.row * summands;
      received_boxes_.push_back({first, owned.box.rows * summands, owned.box.col, owned.box.cols});
      mapping.push_back({received_boxes_.back(), owned.tile});
      for (uint32_t i = 0; i < summands; ++i) {
        sources.push_back({i * rows + owned.box.row, owned.box.rows, owned.box.col, owned.box.cols});
        targets.push_back({first + i * owned.box.rows, owned.box.rows, owned.box.col, owned.box.cols});
      }
    }
    received_ = temporary("partials.received", shape_.numbers.partials, uint64_t{summands} * rows,
                          result_.cols(), std::move(mapping));
    return {"send partials", {copy_boxes(from, std::move(sources), received_, std::move(targets))}};
  }

  struct Bucket {
    Operand values;
    Operand metadata;
  };

  const Builder& b_;
  const DynamicShape& shape_;
  const DynamicGrid& grid_;
  const ProductOperands& operands_;
  const DynamicTiling& tiling_;
  uint32_t partitions_;
  uint32_t block_elements_;
  Bucket bucket_;
  Bucket next_;
  CopySet distribute_{"distribute", {}};
  Parts x_parts_;
  Parts y_parts_;
  Operand result_;
  Operand received_;
  VariableId flags_ = 0;
  VariableId steps_ = 0;
  std::vector<MappedBox> owners_;
  std::vector<Box> value_boxes_;
  std::vector<Box> metadata_boxes_;
  std::vector<Box> received_boxes_;
};

/// A mapping of the contents of a bucket, `units` of it, distributed over the tiles of its partition.
template <class BoxOf>
std::vector<MappedBox> spread_buckets(const DynamicGrid& grid, uint32_t units, uint32_t grain,
                                      const BoxOf& box_of) {
  std::vector<MappedBox> mapping;
  const std::vector<uint32_t> begin = split_evenly(units, grid.tiling.n_parts, grain);
  for (uint32_t p = 0; p < grid.tiling.partitions(); ++p)
    for (uint32_t n = 0; n + 1 < begin.size(); ++n)
      mapping.push_back(
          {box_of(p, begin[n], begin[n + 1] - begin[n]), grid.tile(grid.m_part(p), grid.k_part(p), n)});
  return mapping;
}

}  // namespace

BuiltProduct build_dynamic(const Builder& builder, const DynamicShape& shape, const DynamicGrid& grid,
                           const ProductOperands& operands) {
  return DynamicBuilder(builder, shape, grid, operands).build();
}

std::vector<MappedBox> bucket_value_mapping(const DynamicGrid& grid) {
  const uint32_t blocks = grid.tiling.bucket_blocks;
  return spread_buckets(grid, blocks, 1, [&](uint32_t p, uint32_t begin, uint32_t count) {
    return Box{p * blocks + begin, count, 0, grid.block_size * grid.block_size};
  });
}

std::vector<MappedBox> bucket_metadata_mapping(const DynamicGrid& grid) {
  constexpr uint32_t kWholeWords = 4 / sizeof(uint16_t);  // of the exchange
  return spread_buckets(grid, grid.bucket_words, kWholeWords, [](uint32_t p, uint32_t begin, uint32_t count) {
    return Box{p, 1, begin, count};
  });
}

compiler::Estimate estimate(const program::Program& program, VariableId bucket_metadata,
                            const DynamicGrid& grid, const DynamicEncoding& encoding,
                            const machine::Machine& machine) {
  const uint32_t partitions = grid.tiling.partitions();
  const auto contents = [&](VariableId variable, const Box& box, uint32_t round) -> const std::byte* {
    if (variable != bucket_metadata) return nullptr;
    const uint64_t bucket = (box.row % partitions + round) % partitions;
    return reinterpret_cast<const std::byte*>(encoding.metadata.data() + bucket * grid.bucket_words);
  };
  return compiler::estimate(program, machine, {encoding.steps, contents});
}

}  // namespace tessera::ops
