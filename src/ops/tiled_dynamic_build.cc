#include <algorithm>
#include <numeric>

#include "kernels/bucket/codelet.h"
#include "kernels/element.h"
#include "kernels/reduce/codelet.h"
#include "ops/parted_matrix.h"
#include "ops/tiled_dynamic.h"

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
      : shape_(shape), grid_(grid), cut_(grid.cut), tiles_(machine.tiles), partitions_(cut_.partitions()) {}

  DynamicProgram build() {
    add_operands();
    add_buckets();
    add_partials();
    std::vector<StepId> steps = {program().copy(distribute()), program().execute(multiply("distribution", true))};
    if (partitions_ > 1) steps.push_back(propagation());
    steps.push_back(program().copy(send_partials()));
    if (needs_sum()) steps.push_back(program().execute(reduce()));
    program().set_main(program().sequence(std::move(steps)));
    return std::move(out_);
  }

 private:
  program::Program& program() { return out_.program; }

  VariableId add(std::string name, Type type, uint64_t rows, uint32_t cols, Role role, std::vector<MappedBox> mapping) {
    return program().add({std::move(name), type, static_cast<uint32_t>(rows), cols, role, std::move(mapping), {}});
  }

  /// box_of(part of m, of k, of n) on each tile of the grid.
  template <class BoxOf>
  std::vector<Box> tile_boxes(const BoxOf& box_of) const {
    std::vector<Box> boxes;
    for (uint32_t n = 0; n < cut_.n_parts; ++n)
      for (uint32_t k = 0; k < cut_.k_parts; ++k)
        for (uint32_t m = 0; m < cut_.m_parts; ++m) boxes.push_back(box_of(m, k, n));
    return boxes;
  }
  static std::vector<MappedBox> on_tiles(const std::vector<Box>& boxes) {
    std::vector<MappedBox> mapping;
    for (TileId tile = 0; tile < boxes.size(); ++tile) mapping.push_back({boxes[tile], tile});
    return mapping;
  }

  void add_operands() {
    const Type type = shape_.numbers.operands;
    block_elements_ = shape_.block_size * shape_.block_size;
    out_.values = add("W.values", type, uint64_t{partitions_} * cut_.bucket_blocks, block_elements_, Role::input,
                      homes(cut_.bucket_blocks, 1, [&](uint32_t p, uint32_t begin, uint32_t count) {
                        return Box{p * cut_.bucket_blocks + begin, count, 0, block_elements_};
                      }));
    constexpr uint32_t kWholeWords = 4 / sizeof(uint16_t);  // of the exchange
    out_.metadata = add("W.metadata", Type::u16, partitions_, grid_.bucket_words, Role::input,
                        homes(grid_.bucket_words, kWholeWords, [](uint32_t p, uint32_t begin, uint32_t count) {
                          return Box{p, 1, begin, count};
                        }));
    out_.x = add("X", type, shape_.k, shape_.n, Role::input, program::map_linearly(shape_.k, shape_.n, tiles_));
    y_mapping_ = program::map_linearly(shape_.m, shape_.n, tiles_);
    out_.y = add("Y", type, shape_.m, shape_.n, Role::output, y_mapping_);
  }

  /// What a bucket holds, `units` of it, spread over the tiles of its partition.
  template <class BoxOf>
  std::vector<MappedBox> homes(uint32_t units, uint32_t grain, const BoxOf& box_of) const {
    std::vector<MappedBox> mapping;
    const std::vector<uint32_t> begin = cut_evenly(units, cut_.n_parts, grain);
    for (uint32_t p = 0; p < partitions_; ++p)
      for (uint32_t n = 0; n + 1 < begin.size(); ++n)
        mapping.push_back({box_of(p, begin[n], begin[n + 1] - begin[n]),
                           grid_.tile(grid_.m_part(p), grid_.k_part(p), n)});
    return mapping;
  }

  /// What every tile has of one bucket: in variables that hold all buckets, once for each part of n.
  Box values_box(uint32_t m, uint32_t k, uint32_t n) const {
    return {(n * partitions_ + grid_.partition(m, k)) * cut_.bucket_blocks, cut_.bucket_blocks, 0, block_elements_};
  }
  Box metadata_box(uint32_t m, uint32_t k, uint32_t n) const {
    return {n * partitions_ + grid_.partition(m, k), 1, 0, grid_.bucket_words};
  }

  void add_buckets() {
    value_boxes_ = tile_boxes([&](auto... at) { return values_box(at...); });
    metadata_boxes_ = tile_boxes([&](auto... at) { return metadata_box(at...); });
    const uint64_t copies = uint64_t{cut_.n_parts} * partitions_;
    const auto values = [&](const char* name) {
      return add(name, shape_.numbers.operands, copies * cut_.bucket_blocks, block_elements_, Role::temporary,
                 on_tiles(value_boxes_));
    };
    const auto metadata = [&](const char* name) {
      return add(name, Type::u16, copies, grid_.bucket_words, Role::temporary, on_tiles(metadata_boxes_));
    };
    bucket_ = {values("bucket.values"), metadata("bucket.metadata")};
    if (partitions_ > 1) next_ = {values("next.values"), metadata("next.metadata")};
    out_.bucket_metadata = bucket_.metadata;
  }

  void add_partials() {
    x_boxes_ = tile_boxes([&](uint32_t m, uint32_t k, uint32_t n) {
      return Box{m * shape_.k + grid_.x_begin[k], grid_.x_begin[k + 1] - grid_.x_begin[k], grid_.col_begin[n],
                 grid_.col_begin[n + 1] - grid_.col_begin[n]};
    });
    x_parts_ = add("X.parts", shape_.numbers.operands, uint64_t{cut_.m_parts} * shape_.k, shape_.n, Role::temporary,
                   on_tiles(x_boxes_));
    y_boxes_ = tile_boxes([&](uint32_t m, uint32_t k, uint32_t n) {
      return Box{k * shape_.m + grid_.row_begin[m], grid_.row_begin[m + 1] - grid_.row_begin[m], grid_.col_begin[n],
                 grid_.col_begin[n + 1] - grid_.col_begin[n]};
    });
    partials_ = add("partials", shape_.numbers.partials, uint64_t{cut_.k_parts} * shape_.m, shape_.n, Role::temporary,
                    on_tiles(y_boxes_));
  }

  /// Buckets to all tiles of their partition, and to each tile its part of X.
  CopySet distribute() const {
    CopySet set{"distribute", {}};
    for (const auto& [home, copies] :
         {std::pair{out_.values, bucket_.values}, std::pair{out_.metadata, bucket_.metadata}}) {
      const program::Variable& from = out_.program.variable(home);
      set.groups.push_back(
          {home, copies, cut_.n_parts, BoxSeries::same(from.whole()), BoxSeries::stepped(from.whole(), {from.rows, 0}),
           {}, {}, {}});
    }
    const Box all{0, shape_.k, 0, shape_.n};
    set.groups.push_back({out_.x, x_parts_, cut_.m_parts, BoxSeries::same(all),
                          BoxSeries::stepped(all, {shape_.k, 0}), cut_.gathered ? rows_in_order(shape_.k) : nullptr,
                          {}, {}});
    return set;
  }

  static std::shared_ptr<const std::vector<uint32_t>> rows_in_order(uint32_t rows) {
    auto list = std::make_shared<std::vector<uint32_t>>(rows);
    std::iota(list->begin(), list->end(), 0U);
    return list;
  }

  /// Each tile works through the bucket that it has, and the tiles of the first part of n say whether one
  /// still holds what belongs elsewhere.
  ComputeSet multiply(std::string name, bool is_first) {
    std::vector<int64_t> partition;
    for (const Box& box : metadata_boxes_) partition.push_back(box.row % partitions_);
    program::VertexGroup product{&kernels::bucket_product_codelet, 0, cut_.tiles(), 1, {}, {}};
    product.fields = {{bucket_.values, BoxSeries::table(value_boxes_)},
                      {bucket_.metadata, BoxSeries::table(metadata_boxes_)},
                      {x_parts_, BoxSeries::table(x_boxes_)},
                      {partials_, BoxSeries::table(y_boxes_)}};
    product.params = {int64_t{shape_.block_size}, partition, int64_t{is_first}};
    ComputeSet set{std::move(name), Phase::compute, {std::move(product)}};
    if (partitions_ == 1) return set;
    if (is_first)
      flags_ = add("pending", Type::u32, partitions_, 1, Role::temporary, program::map_rows_to_tiles(partitions_, 1));
    program::VertexGroup pending{&kernels::bucket_pending_codelet, 0, partitions_, 1, {}, {}};
    pending.fields = {{bucket_.metadata, BoxSeries::table({metadata_boxes_.begin(), metadata_boxes_.begin() + partitions_})},
                      {flags_, BoxSeries::stepped({0, 1, 0, 1}, {1, 0})}};
    partition.resize(partitions_);
    pending.params = {std::move(partition), int64_t{partitions_}};
    set.groups.push_back(std::move(pending));
    return set;
  }

  /// While any bucket holds what belongs elsewhere, all move on by one partition.
  StepId propagation() {
    std::vector<StepId> test;
    VariableId flags = flags_;
    for (uint32_t count = partitions_; count > 1;) {
      const uint32_t fan = count <= kMostFlags ? count : std::max(kMostFlags, (count + kMostFlags - 1) / kMostFlags);
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
    const StepId body = program().sequence({program().copy(shift()), program().copy(keep()),
                                            program().execute(multiply("propagation", false))});
    return program().add(program::Step{program::While{program().sequence(std::move(test)), flags, body}});
  }

  /// The bucket of each partition to the one before it.
  CopySet shift() const {
    CopySet set{"shift buckets", {}};
    const auto add_ring = [&](VariableId from, VariableId to, uint32_t bucket_rows) {
      const uint32_t cols = out_.program.variable(from).cols;
      const uint32_t rows = partitions_ * bucket_rows;
      const auto move = [&](uint32_t source, uint32_t target, uint32_t count) {
        set.groups.push_back({from, to, cut_.n_parts, BoxSeries::stepped({source, count, 0, cols}, {rows, 0}),
                              BoxSeries::stepped({target, count, 0, cols}, {rows, 0}), {}, {}, {}});
      };
      move(bucket_rows, 0, rows - bucket_rows);
      move(0, rows - bucket_rows, bucket_rows);
    };
    add_ring(bucket_.values, next_.values, cut_.bucket_blocks);
    add_ring(bucket_.metadata, next_.metadata, 1);
    return set;
  }

  /// What came becomes what the tiles work on: a copy within each tile.
  CopySet keep() const {
    CopySet set{"keep buckets", {}};
    for (const auto& [from, to] :
         {std::pair{next_.values, bucket_.values}, std::pair{next_.metadata, bucket_.metadata}}) {
      const Box all = out_.program.variable(from).whole();
      set.groups.push_back({from, to, 1, BoxSeries::same(all), BoxSeries::same(all), {}, {}, {}});
    }
    return set;
  }

  bool needs_sum() const { return cut_.k_parts > 1 || shape_.numbers.partials != shape_.numbers.operands; }

  /// Partial sums to the tiles that own their rows of Y: there, the rows of each part of k in turn.
  CopySet send_partials() {
    if (!needs_sum()) {
      const Box all{0, shape_.m, 0, shape_.n};
      return {"send", {{partials_, out_.y, 1, BoxSeries::same(all), BoxSeries::same(all),
                        cut_.gathered ? rows_in_order(shape_.m) : nullptr, {}, {}}}};
    }
    auto rows = std::make_shared<std::vector<uint32_t>>(uint64_t{cut_.k_parts} * shape_.m);
    std::vector<MappedBox> mapping;
    std::vector<Box> sources, targets;
    for (const MappedBox& owned : y_mapping_) {
      const uint32_t first = owned.box.row * cut_.k_parts;
      received_boxes_.push_back({first, owned.box.rows * cut_.k_parts, owned.box.col, owned.box.cols});
      mapping.push_back({received_boxes_.back(), owned.tile});
      for (uint32_t k = 0; k < cut_.k_parts; ++k) {
        const Box source{k * shape_.m + owned.box.row, owned.box.rows, owned.box.col, owned.box.cols};
        const Box target{first + k * owned.box.rows, owned.box.rows, owned.box.col, owned.box.cols};
        for (uint32_t r = 0; r < source.rows; ++r) (*rows)[target.row + r] = source.row + r;
        sources.push_back(source);
        targets.push_back(target);
      }
    }
    received_ = add("partials.received", shape_.numbers.partials, rows->size(), shape_.n, Role::temporary,
                    std::move(mapping));
    const Box all{0, static_cast<uint32_t>(rows->size()), 0, shape_.n};
    if (cut_.gathered)
      return {"send partials",
              {{partials_, received_, 1, BoxSeries::same(all), BoxSeries::same(all), std::move(rows), {}, {}}}};
    const auto count = static_cast<uint32_t>(sources.size());
    return {"send partials",
            {{partials_, received_, count, BoxSeries::table(std::move(sources)), BoxSeries::table(std::move(targets)),
              {}, {}, {}}}};
  }

  /// Owners lie on tiles that ascend, with gaps where rows are split unevenly: a group for each run.
  ComputeSet reduce() const {
    ComputeSet set{"reduce", Phase::reduce, {}};
    for (size_t begin = 0; begin < y_mapping_.size();) {
      size_t end = begin + 1;
      while (end < y_mapping_.size() && y_mapping_[end].tile == y_mapping_[end - 1].tile + 1) ++end;
      std::vector<Box> out;
      for (size_t i = begin; i < end; ++i) out.push_back(y_mapping_[i].box);
      program::VertexGroup group{&kernels::reduce_sum_codelet, y_mapping_[begin].tile,
                                 static_cast<uint32_t>(end - begin), 1, {}, {}};
      group.fields = {{received_, BoxSeries::table({received_boxes_.begin() + static_cast<int64_t>(begin),
                                                    received_boxes_.begin() + static_cast<int64_t>(end)})},
                      {out_.y, BoxSeries::table(std::move(out))}};
      group.params = {kernels::param_of(1.0F)};
      set.groups.push_back(std::move(group));
      begin = end;
    }
    return set;
  }

  struct BucketVariables {
    VariableId values = 0;
    VariableId metadata = 0;
  };

  const DynamicShape& shape_;
  const DynamicGrid& grid_;
  const DynamicCut& cut_;
  uint32_t tiles_;
  uint32_t partitions_;
  DynamicProgram out_;
  uint32_t block_elements_ = 1;
  BucketVariables bucket_;
  BucketVariables next_;
  VariableId x_parts_ = 0;
  VariableId partials_ = 0;
  VariableId received_ = 0;
  VariableId flags_ = 0;
  std::vector<MappedBox> y_mapping_;
  std::vector<Box> value_boxes_;
  std::vector<Box> metadata_boxes_;
  std::vector<Box> x_boxes_;
  std::vector<Box> y_boxes_;
  std::vector<Box> received_boxes_;
};

}  // namespace

DynamicProgram build_dynamic(const DynamicShape& shape, const DynamicGrid& grid, const machine::Machine& machine) {
  return Builder(shape, grid, machine).build();
}

Tally tally(const program::Program& program, VariableId bucket_metadata, const DynamicGrid& grid,
            const DynamicEncoding& encoding, const machine::Machine& machine) {
  const uint32_t partitions = grid.cut.partitions();
  const auto contents = [&](VariableId variable, const Box& box, uint32_t round) -> const std::byte* {
    if (variable != bucket_metadata) return nullptr;
    const uint64_t bucket = (box.row % partitions + round) % partitions;
    return reinterpret_cast<const std::byte*>(encoding.metadata.data() + bucket * grid.bucket_words);
  };
  return tally(program, machine, {encoding.steps, contents});
}

}  // namespace tessera::ops
