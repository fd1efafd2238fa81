#include <algorithm>

#include "kernels/common/element.h"
#include "kernels/map/reduce/codelet.h"
#include "kernels/tile/bucket/codelet.h"
#include "ops/dense/parted_matrix.h"
#include "ops/sparse/dynamic/dynamic.h"
#include "ops/sparse/static/static_layout.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::BoxSeries;
using program::ComputeSet;
using program::CopyGroup;
using program::CopySet;
using program::MappedBox;
using program::Phase;
using program::Role;
using program::StepId;
using program::TileId;
using program::VariableId;

/// Flags that one vertex combines, at most, where that needs no more than two rounds of vertices.
constexpr uint32_t kMostFlags = 64;

class Builder {
 public:
  Builder(const DynamicShape& shape, const DynamicGrid& grid, const machine::Machine& machine)
      : shape_(shape),
        grid_(grid),
        tiling_(grid.tiling),
        tiles_(machine.tiles),
        partitions_(tiling_.partitions()) {}

  DynamicProgram build() {
    add_operands();
    add_buckets();
    distribute();
    std::vector<StepId> steps = {program().copy(std::move(distribute_)),
                                 program().execute(multiply("distribution", true))};
    if (partitions_ > 1) steps.push_back(propagation());
    if (partitions_ > 1 && is_sddmm()) steps.push_back(return_exchange());
    steps.push_back(program().copy(is_sddmm() ? send_buckets() : send_partials()));
    if (needs_sum()) steps.push_back(program().execute(reduce()));
    program().set_main(program().sequence(std::move(steps)));
    return std::move(out_);
  }

 private:
  program::Program& program() { return out_.program; }

  VariableId add(std::string name, Type type, uint64_t rows, uint32_t cols, Role role,
                 std::vector<MappedBox> mapping) {
    return program().add(
        {std::move(name), type, static_cast<uint32_t>(rows), cols, role, std::move(mapping), {}});
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
  bool is_sddmm() const { return shape_.product == Product::sddmm; }
  bool is_transposed() const { return shape_.product == Product::input_gradient; }

  /// The rows of X and dX (along k), or of Y and dY (along m), as a grid's parts have them.
  struct Side {
    bool along_m;
    uint32_t rows;
    uint32_t copies;  ///< of each part: one for each part of the other side
    const std::vector<uint32_t>& begin;
  };
  Side along_m() const { return {true, shape_.m, tiling_.k_parts, grid_.row_begin}; }
  Side along_k() const { return {false, shape_.k, tiling_.m_parts, grid_.x_begin}; }
  Side result_side() const { return is_transposed() ? along_k() : along_m(); }

  void add_operands() {
    const Type type = shape_.numbers.operands;
    block_elements_ = shape_.block_size * shape_.block_size;
    std::vector<MappedBox> value_homes =
        homes(tiling_.bucket_blocks, 1, [&](uint32_t p, uint32_t begin, uint32_t count) {
          return Box{p * tiling_.bucket_blocks + begin, count, 0, block_elements_};
        });
    out_.values = add(is_sddmm() ? "dW" : "W.values", type, uint64_t{partitions_} * tiling_.bucket_blocks,
                      block_elements_, is_sddmm() ? Role::output : Role::input, std::move(value_homes));
    constexpr uint32_t kWholeWords = 4 / sizeof(uint16_t);  // of the exchange
    out_.metadata =
        add("W.metadata", Type::u16, partitions_, grid_.bucket_words, Role::input,
            homes(grid_.bucket_words, kWholeWords, [](uint32_t p, uint32_t begin, uint32_t count) {
              return Box{p, 1, begin, count};
            }));
    const auto matrix = [&](const char* name, uint32_t rows, Role role) {
      return add(name, type, rows, shape_.n, role, program::map_linearly(rows, shape_.n, tiles_));
    };
    const bool forward = shape_.product == Product::forward;
    out_.x = matrix(is_transposed() ? "dX" : "X", shape_.k, is_transposed() ? Role::output : Role::input);
    out_.y = matrix(forward ? "Y" : "dY", shape_.m, forward ? Role::output : Role::input);
  }

  /// What a bucket holds, `units` of it, spread over the tiles of its partition.
  template <class BoxOf>
  std::vector<MappedBox> homes(uint32_t units, uint32_t grain, const BoxOf& box_of) const {
    std::vector<MappedBox> mapping;
    const std::vector<uint32_t> begin = split_evenly(units, tiling_.n_parts, grain);
    for (uint32_t p = 0; p < partitions_; ++p)
      for (uint32_t n = 0; n + 1 < begin.size(); ++n)
        mapping.push_back(
            {box_of(p, begin[n], begin[n + 1] - begin[n]), grid_.tile(grid_.m_part(p), grid_.k_part(p), n)});
    return mapping;
  }

  /// What every tile has of one bucket: in variables that hold all buckets, once for each part of
  /// n.
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
      return add(name, needs_sum() && is_sddmm() ? shape_.numbers.partials : shape_.numbers.operands,
                 copies * tiling_.bucket_blocks, block_elements_, Role::temporary, on_tiles(value_boxes_));
    };
    const auto metadata = [&](const char* name) {
      return add(name, Type::u16, copies, grid_.bucket_words, Role::temporary, on_tiles(metadata_boxes_));
    };
    bucket_ = {values("bucket.values"), metadata("bucket.metadata")};
    if (partitions_ > 1) next_ = {values("next.values"), metadata("next.metadata")};
    out_.bucket_metadata = bucket_.metadata;
  }

  /// A side's part on each tile, in a variable that holds the side once for each part of the other.
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
    VariableId variable = 0;
    std::vector<Box> boxes;

    program::Field field() const { return {variable, BoxSeries::table(boxes)}; }
  };
  Parts add_parts(const char* name, Type type, const Side& side) {
    std::vector<Box> boxes = side_boxes(side);
    const VariableId variable =
        add(name, type, uint64_t{side.copies} * side.rows, shape_.n, Role::temporary, on_tiles(boxes));
    return {variable, std::move(boxes)};
  }

  /// Buckets to all tiles of their partition, and to each tile its parts of what is multiplied.
  void distribute() {
    const auto copy_buckets = [&](VariableId home, VariableId copies) {
      const program::Variable& from = program().variable(home);
      distribute_.groups.push_back({home,
                                    copies,
                                    tiling_.n_parts,
                                    BoxSeries::same(from.whole()),
                                    BoxSeries::stepped(from.whole(), {from.rows, 0}),
                                    {},
                                    {},
                                    {}});
    };
    if (!is_sddmm()) copy_buckets(out_.values, bucket_.values);
    copy_buckets(out_.metadata, bucket_.metadata);
    if (!is_transposed()) x_parts_ = copy_side("X.parts", out_.x, along_k());
    if (shape_.product != Product::forward) y_parts_ = copy_side("dY.parts", out_.y, along_m());
    if (shape_.product == Product::forward)
      y_parts_ = add_parts("partials", shape_.numbers.partials, along_m());
    if (is_transposed()) x_parts_ = add_parts("partials", shape_.numbers.partials, along_k());
  }

  Parts copy_side(const char* name, VariableId from, const Side& side) {
    Parts parts = add_parts(name, shape_.numbers.operands, side);
    const Box all{0, side.rows, 0, shape_.n};
    distribute_.groups.push_back({from,
                                  parts.variable,
                                  side.copies,
                                  BoxSeries::same(all),
                                  BoxSeries::stepped(all, {side.rows, 0}),
                                  {},
                                  {},
                                  {}});
    return parts;
  }

  /// Each tile works through the bucket that it has, and the tiles of the first part of n say
  /// whether one still holds what belongs elsewhere.
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
    product.fields = {{bucket_.values, BoxSeries::table(value_boxes_)},
                      {bucket_.metadata, BoxSeries::table(metadata_boxes_)},
                      (is_transposed() ? y_parts_ : x_parts_).field(),
                      (is_transposed() ? x_parts_ : y_parts_).field()};
    product.params = {int64_t{shape_.block_size}, partition, int64_t{is_first}};
    if (!is_sddmm()) product.params.emplace_back(int64_t{is_transposed()});
    ComputeSet set{std::move(name), Phase::compute, {std::move(product)}};
    if (partitions_ == 1) return set;
    if (is_first)
      flags_ = add("pending", Type::u32, partitions_, 1, Role::temporary,
                   program::map_rows_to_tiles(partitions_, 1));
    program::VertexGroup pending{&kernels::bucket_pending_codelet, 0, partitions_, 1, {}, {}};
    pending.fields = {{bucket_.metadata,
                       BoxSeries::table({metadata_boxes_.begin(), metadata_boxes_.begin() + partitions_})},
                      {flags_, BoxSeries::stepped({0, 1, 0, 1}, {1, 0})}};
    partition.resize(partitions_);
    pending.params = {std::move(partition), int64_t{partitions_}};
    set.groups.push_back(std::move(pending));
    if (is_sddmm()) set.groups.push_back(count_steps(is_first ? 0 : 1, is_first));
    return set;
  }

  /// Steps that buckets have come, on tile 0: by as many they go back.
  program::VertexGroup count_steps(int64_t by, bool is_first) {
    if (is_first) steps_ = add("steps", Type::u32, 1, 1, Role::temporary, program::map_to_tile(1, 1, 0));
    program::VertexGroup count{&kernels::count_codelet, 0, 1, 1, {}, {}};
    count.fields = {{steps_, BoxSeries::same({0, 1, 0, 1})}};
    count.params = {by, int64_t{is_first}};
    return count;
  }

  /// While any bucket holds what belongs elsewhere, all move on by one partition.
  StepId propagation() {
    std::vector<StepId> test;
    VariableId flags = flags_;
    for (uint32_t count = partitions_; count > 1;) {
      const uint32_t fan =
          count <= kMostFlags ? count : std::max(kMostFlags, (count + kMostFlags - 1) / kMostFlags);
      const uint32_t groups = (count + fan - 1) / fan;
      const VariableId any =
          add("any pending", Type::u32, groups, 1, Role::temporary, program::map_rows_to_tiles(groups, 1));
      program::VertexGroup group{&kernels::any_flag_codelet, 0, groups, 1, {}, {}};
      group.fields = {{flags, BoxSeries::stepped({0, fan, 0, 1}, {fan, 0})},
                      {any, BoxSeries::stepped({0, 1, 0, 1}, {1, 0})}};
      test.push_back(program().execute({"any pending", Phase::control, {std::move(group)}}));
      flags = any;
      count = groups;
    }
    const StepId body = program().sequence(
        {program().copy(shift()), program().copy(keep()), program().execute(multiply("propagation", false))});
    return program().add(program::Step{program::While{program().sequence(std::move(test)), flags, body}});
  }

  /// The bucket of each partition to the one before it.
  CopySet shift() const {
    CopySet set{"shift buckets", {}};
    add_ring(bucket_.values, next_.values, tiling_.bucket_blocks, false, set);
    add_ring(bucket_.metadata, next_.metadata, 1, false, set);
    return set;
  }

  /// Moves buckets, of so many rows each, by one partition: to the one before, or the one behind.
  void add_ring(VariableId from, VariableId to, uint32_t bucket_rows, bool back, CopySet& set) const {
    const uint32_t cols = out_.program.variable(from).cols;
    const uint32_t rows = partitions_ * bucket_rows;
    const auto move = [&](uint32_t source, uint32_t target, uint32_t count) {
      if (back) std::swap(source, target);
      set.groups.push_back({from,
                            to,
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

  /// What came becomes what the tiles work on: a copy within each tile.
  CopySet keep() const {
    CopySet set{"keep buckets", {}};
    add_kept(next_.values, bucket_.values, set);
    add_kept(next_.metadata, bucket_.metadata, set);
    return set;
  }
  void add_kept(VariableId from, VariableId to, CopySet& set) const {
    const Box all = out_.program.variable(from).whole();
    set.groups.push_back({from, to, 1, BoxSeries::same(all), BoxSeries::same(all), {}, {}, {}});
  }

  /// Values go back to where their buckets set out.
  StepId return_exchange() {
    CopySet back{"shift back", {}};
    add_ring(bucket_.values, next_.values, tiling_.bucket_blocks, true, back);
    CopySet kept{"keep values", {}};
    add_kept(next_.values, bucket_.values, kept);
    const StepId body =
        program().sequence({program().copy(std::move(back)), program().copy(std::move(kept)),
                            program().execute({"homeward", Phase::control, {count_steps(-1, false)}})});
    return program().add(program::Step{program::While{program().sequence({}), steps_, body}});
  }

  bool needs_sum() const {
    if (is_sddmm()) return tiling_.n_parts > 1;
    return result_side().copies > 1 || shape_.numbers.partials != shape_.numbers.operands;
  }

  /// Partial sums to the tiles that own their rows of the result: there, the rows of each summand
  /// in turn.
  CopySet send_partials() {
    const Side side = result_side();
    result_ = is_transposed() ? out_.x : out_.y;
    return send((is_transposed() ? x_parts_ : y_parts_).variable, side.rows, side.copies);
  }

  /// Blocks to the tiles that own their buckets: there, what each part of n has found in turn.
  CopySet send_buckets() {
    result_ = out_.values;
    return send(bucket_.values, partitions_ * tiling_.bucket_blocks, tiling_.n_parts);
  }

  /// `summands` matrices of so many rows, one below the other, to the owners of their sum.
  CopySet send(VariableId from, uint32_t rows, uint32_t summands) {
    owners_ = program().variable(result_).mapping;
    std::sort(owners_.begin(), owners_.end(),
              [](const MappedBox& a, const MappedBox& b) { return a.tile < b.tile; });
    const uint32_t cols = program().variable(result_).cols;
    if (!needs_sum()) {
      const Box all{0, rows, 0, cols};
      return {"send", {{from, result_, 1, BoxSeries::same(all), BoxSeries::same(all), {}, {}, {}}}};
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
    received_ = add("partials.received", shape_.numbers.partials, uint64_t{summands} * rows, cols,
                    Role::temporary, std::move(mapping));
    const auto count = static_cast<uint32_t>(sources.size());
    return {"send partials",
            {{from,
              received_,
              count,
              BoxSeries::table(std::move(sources)),
              BoxSeries::table(std::move(targets)),
              {},
              {},
              {}}}};
  }

  ComputeSet reduce() const {
    return {"reduce", Phase::reduce,
            groups_of_owners(owners_, kernels::reduce_sum_codelet,
                             {{received_, received_boxes_}, {result_, boxes_of(owners_)}},
                             {kernels::param_of(1.0F)})};
  }

  struct BucketVariables {
    VariableId values = 0;
    VariableId metadata = 0;
  };

  const DynamicShape& shape_;
  const DynamicGrid& grid_;
  const DynamicTiling& tiling_;
  uint32_t tiles_;
  uint32_t partitions_;
  DynamicProgram out_;
  uint32_t block_elements_ = 1;
  BucketVariables bucket_;
  BucketVariables next_;
  CopySet distribute_{"distribute", {}};
  Parts x_parts_;
  Parts y_parts_;
  VariableId result_ = 0;
  VariableId received_ = 0;
  VariableId flags_ = 0;
  VariableId steps_ = 0;
  std::vector<MappedBox> owners_;
  std::vector<Box> value_boxes_;
  std::vector<Box> metadata_boxes_;
  std::vector<Box> received_boxes_;
};

}  // namespace

DynamicProgram build_dynamic(const DynamicShape& shape, const DynamicGrid& grid,
                             const machine::Machine& machine) {
  return Builder(shape, grid, machine).build();
}

Tally tally(const program::Program& program, VariableId bucket_metadata, const DynamicGrid& grid,
            const DynamicEncoding& encoding, const machine::Machine& machine) {
  const uint32_t partitions = grid.tiling.partitions();
  const auto contents = [&](VariableId variable, const Box& box, uint32_t round) -> const std::byte* {
    if (variable != bucket_metadata) return nullptr;
    const uint64_t bucket = (box.row % partitions + round) % partitions;
    return reinterpret_cast<const std::byte*>(encoding.metadata.data() + bucket * grid.bucket_words);
  };
  return tally(program, machine, {encoding.steps, contents});
}

}  // namespace tessera::ops
