#include <tessera/error.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "ops/sparse/host/families.h"
#include "ops/window.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::BoxSeries;
using program::Field;
using program::Param;
using program::Purpose;
using program::Role;
using program::StepId;
using program::VertexGroup;
using sparse::kRowGroupLanes;

/// alpha and beta if the caller passes none.
Operand default_scalars(const Builder& builder, const ProductProblem& problem) {
  auto scalars = std::make_shared<const std::array<float, 2>>(
      std::array<float, 2>{1.0F, problem.uses_beta ? 1.0F : 0.0F});
  return builder.constant("scalars", Type::f32, 1, 2,
                          {scalars, reinterpret_cast<const std::byte*>(scalars->data())});
}

/// Common parts of the products' builders: fields of the weight's index and of the operands, by parts.
template <class Family>
class ProductBuilder {
 public:
  ProductBuilder(const Builder& builder, const Family& family, WeightIndex& index,
                 const ProductProblem& problem, const HostPlan& plan, const ProductOperands& operands)
      : builder_(builder),
        family_(family),
        index_(index),
        problem_(problem, plan.layouts),
        partition_(plan.partition),
        operands_(operands),
        scalars_(operands.scalars ? *operands.scalars : default_scalars(builder, problem)) {}

  const HostPartition& partition() const { return partition_; }
  const HostProblem& problem() const { return problem_; }
  const ProductOperands& operands() const { return operands_; }
  const Builder& builder() const { return builder_; }

  Operand index_operand(const char* name, Type type, const void* data, uint64_t rows, uint32_t cols,
                        bool changes) const {
    return builder_.whole(index_.array(builder_, name, type, data, rows, cols, changes));
  }
  Field index(const char* name, Type type, const void* data, uint64_t rows, uint32_t cols,
              bool changes) const {
    return whole(index_operand(name, type, data, rows, cols, changes));
  }

  static Field whole(const Operand& operand) { return {operand.variable, BoxSeries::same(operand.box)}; }
  Field scalars() const { return whole(scalars_); }

  /// A field whose box depends on the row part and the column part.
  template <class MakeBox>
  Field parts(const Operand& operand, const MakeBox& make) const {
    std::vector<Box> boxes;
    for (size_t r = 0; r < partition_.row_parts(); ++r)
      for (size_t c = 0; c < partition_.col_parts(); ++c) boxes.push_back(operand.inside(make(r, c)));
    return {operand.variable, BoxSeries::table(std::move(boxes))};
  }

  /// An array of the index with an entry for each row unit, and the end: the piece for each part.
  Field unit_index(const char* name, const std::vector<uint32_t>& data, bool changes) const {
    const auto entries = static_cast<uint32_t>(data.size());
    const Operand array =
        builder_.whole(index_.array(builder_, name, Type::u32, data.data(), 1, entries, changes));
    return parts(array, [&](size_t r, size_t) {
      return Box{0, 1, first_unit(r), first_unit(r + 1) - first_unit(r) + 1};
    });
  }

  uint32_t first_unit(size_t part) const { return partition_.row_begin[part]; }
  uint32_t first_row(size_t part) const { return family_.first_row(first_unit(part)); }
  uint32_t rows_of(size_t part) const { return first_row(part + 1) - first_row(part); }
  uint32_t first_col(size_t part) const { return partition_.col_begin[part]; }
  uint32_t cols_of(size_t part) const { return first_col(part + 1) - first_col(part); }

  Field scratch() const {
    const auto& schedule = std::get<typename Family::Schedule>(partition_.schedule);
    size_t floats = 0;
    for (size_t r = 0; r < partition_.row_parts(); ++r)
      for (size_t c = 0; c < partition_.col_parts(); ++c)
        floats = std::max(floats, family_.scratch_floats(schedule, problem_,
                                                         {first_unit(r), first_unit(r + 1) - first_unit(r),
                                                          first_col(c), cols_of(c)}));
    const auto cols = static_cast<uint32_t>((floats + 15) / 16 * 16);
    const Operand scratch = builder_.temporary("scratch", Type::f32, partition_.tiles_used(), cols);
    return {scratch.variable, BoxSeries::stepped({0, 1, 0, cols}, {.row = 1})};
  }

  /// The product's vertices; the knobs are their last parameters.
  VertexGroup vertices(std::vector<Field> fields, std::vector<Param> params) const {
    typename Family::Schedule schedule = std::get<typename Family::Schedule>(partition_.schedule);
    Family::visit_knobs(
        schedule, [&](std::string_view, auto& knob) { params.emplace_back(static_cast<int64_t>(knob)); });
    VertexGroup group;
    group.codelet = &family_.codelet(problem_);
    group.tiles = partition_.tiles_used();
    group.fields = std::move(fields);
    group.params = std::move(params);
    return group;
  }

  StepId execute(const char* name, std::vector<VertexGroup> groups) const {
    return builder_.execute({name, program::Phase::compute, std::move(groups)});
  }

  /// The product's compute set.
  StepId multiply(const char* name, std::vector<Field> fields, std::vector<Param> params) const {
    return execute(name, {vertices(std::move(fields), std::move(params))});
  }

 private:
  const Builder& builder_;
  const Family& family_;
  WeightIndex& index_;
  HostProblem problem_;
  const HostPartition& partition_;
  const ProductOperands& operands_;
  Operand scalars_;
};

/// The window, or nothing.
template <class Family>
Field window_field(const ProductBuilder<Family>& b) {
  const std::optional<kernels::Window>& window = b.problem().layouts.window;
  return window ? b.whole(window_constant(b.builder(), *window))
                : Field{b.scalars().variable, BoxSeries::same(Box{})};
}

/// Fields x, y, scalars, bias, window, scratch: the last ones of the products with W and its transpose.
template <class Family>
void add_activations(const ProductBuilder<Family>& b, std::vector<Field>& fields) {
  const bool transpose = b.problem().product == ProductKind::input_gradient;
  const Operand& read = transpose ? b.operands().y : b.operands().x;
  const Operand& written = transpose ? b.operands().x : b.operands().y;
  const std::optional<kernels::Window>& window = b.problem().layouts.window;
  if (window)
    fields.push_back(b.whole(read));
  else
    fields.push_back(b.parts(read, [&](size_t, size_t c) {
      return Box{0, read.rows(), b.first_col(c), b.cols_of(c)};
    }));
  fields.push_back(b.parts(written, [&](size_t r, size_t c) {
    return Box{b.first_row(r), b.rows_of(r), b.first_col(c), b.cols_of(c)};
  }));
  fields.push_back(b.scalars());
  if (b.operands().bias)
    fields.push_back(b.parts(*b.operands().bias, [&](size_t r, size_t) {
      return Box{0, 1, b.first_row(r), b.rows_of(r)};
    }));
  else
    fields.push_back({fields.back().variable, BoxSeries::same(Box{})});
  fields.push_back(window_field(b));
  fields.push_back(b.scratch());
}

/// The first column of each part.
template <class Family>
Param first_columns(const ProductBuilder<Family>& b) {
  std::vector<int64_t> first;
  for (size_t r = 0; r < b.partition().row_parts(); ++r)
    for (size_t c = 0; c < b.partition().col_parts(); ++c) first.push_back(b.first_col(c));
  return {std::move(first)};
}

StepId build(const ProductBuilder<Blocks>& b, const Blocks& family) {
  const sparse::PackedBlocks& w = family.weight;
  const sparse::BlockIndex& index = family.transpose ? w.transposed_index() : w.index();
  const auto blocks = static_cast<uint32_t>(w.capacity());
  const bool changes = w.is_dynamic();
  std::vector<Field> fields = {
      b.whole(b.operands().values), b.unit_index("row_begin", index.row_begin, changes),
      b.index("columns", index.column_type, index.columns.data(), 1, blocks, changes),
      b.index("slots", Type::u32, index.slots.data(), 1, static_cast<uint32_t>(index.slots.size()), changes)};
  add_activations(b, fields);
  return b.multiply("multiply", std::move(fields),
                    {Param(w.block_size()), Param(family.transpose),
                     Param(static_cast<int64_t>(b.problem().activation)), first_columns(b)});
}

/// Some vertices of a group that has one vertex per tile.
VertexGroup some_of(const VertexGroup& all, uint32_t first, uint32_t count) {
  VertexGroup some{all.codelet, all.first_tile + first, count, 1, {}, {}};
  for (const Field& field : all.fields) {
    std::vector<Box> boxes;
    for (uint32_t i = 0; i < count; ++i) boxes.push_back(field.boxes.at(first + i));
    some.fields.push_back({field.variable, BoxSeries::table(std::move(boxes))});
  }
  for (const Param& param : all.params) {
    std::vector<int64_t> values;
    for (uint32_t i = 0; i < count; ++i) values.push_back(param.at(first + i));
    some.params.emplace_back(std::move(values));
  }
  return some;
}

/// The vertices of an SDDMM, whose field `dw` is dW. With several column parts, each writes its own partial
/// dW (or the first one dW itself, if it adds to it); then the parts are added in order.
template <class Family>
StepId sample(const ProductBuilder<Family>& b, const Family& family, const VertexGroup& all, size_t dw) {
  if (b.partition().col_parts() == 1) return b.execute("sample", {all});
  const Operand& sum = b.operands().values;
  const uint32_t rows = sum.rows(), cols = sum.cols();
  const SddmmParts of(std::get<typename Family::Schedule>(b.partition().schedule), all.tiles, rows, cols);
  const Operand parts = b.builder().temporary("parts", Type::f32, all.tiles * rows, cols);
  const auto part_of = [&](uint32_t vertex) { return parts.part({vertex * rows, rows, 0, cols}); };
  const bool adds = b.problem().uses_beta;
  VertexGroup first = some_of(all, 0, 1), others = some_of(all, 1, all.tiles - 1);
  if (!adds) first.fields[dw] = b.whole(part_of(0));
  others.codelet = &family.part_codelet();
  others.fields[dw] = {parts.variable, BoxSeries::stepped({rows, rows, 0, cols}, {.row = rows})};
  std::vector<StepId> steps;
  if (others.codelet->fields[dw].access == program::Access::inout)  // the vertices do not write all of it
    steps.push_back(ops::add(b.builder(), of.clearing(), {parts}));
  steps.push_back(b.execute("sample", {std::move(first), std::move(others)}));
  const Operand total = adds ? sum : part_of(0);
  for (uint32_t i = 1; i < all.tiles; ++i)
    steps.push_back(
        ops::add(b.builder(), of.addition(), {total, part_of(i), i + 1 == all.tiles ? sum : total}));
  return b.builder().in_order(std::move(steps));
}

/// Columns of X of each part; for images, all columns.
template <class Family>
Field sampled_columns(const ProductBuilder<Family>& b) {
  const Operand& x = b.operands().x;
  if (b.problem().layouts.window) return b.whole(x);
  return b.parts(x, [&](size_t, size_t c) { return Box{0, x.rows(), b.first_col(c), b.cols_of(c)}; });
}

/// A part's rows and columns of dY.
template <class Family>
Field gradient_part(const ProductBuilder<Family>& b) {
  return b.parts(b.operands().y, [&](size_t r, size_t c) {
    return Box{b.first_row(r), b.rows_of(r), b.first_col(c), b.cols_of(c)};
  });
}

StepId build(const ProductBuilder<BlockSddmm>& b, const BlockSddmm& family) {
  const sparse::PackedBlocks& w = family.weight;
  const sparse::BlockIndex& index = w.index();
  const auto blocks = static_cast<uint32_t>(w.capacity());
  const bool changes = w.is_dynamic();
  const ProductOperands& o = b.operands();
  std::vector<int64_t> first_block;
  for (size_t r = 0; r < b.partition().row_parts(); ++r)
    first_block.insert(first_block.end(), b.partition().col_parts(),
                       changes ? 0 : index.row_begin[b.first_unit(r)]);
  Field dw = b.whole(o.values);
  if (!changes)
    dw = b.parts(o.values, [&](size_t r, size_t) {
      const uint32_t first = index.row_begin[b.first_unit(r)];
      return Box{first, index.row_begin[b.first_unit(r + 1)] - first, 0, o.values.cols()};
    });
  return sample(b, family,
                b.vertices({b.unit_index("row_begin", index.row_begin, changes),
                            b.index("columns", index.column_type, index.columns.data(), 1, blocks, changes),
                            b.index("slots", Type::u32, index.slots.data(), 1,
                                    static_cast<uint32_t>(index.slots.size()), changes),
                            gradient_part(b), sampled_columns(b), std::move(dw), b.scalars(), window_field(b),
                            b.scratch()},
                           {Param(w.block_size()), Param(std::move(first_block)), first_columns(b)}),
                kernels::block_sddmm_field::dw);
}

/// Fields chunk_begin, blocks, row groups and indices of a single-element index.
template <class Family>
void add_index(const ProductBuilder<Family>& b, const sparse::ElementIndex& index, bool changes,
               std::vector<Field>& fields) {
  fields.push_back(b.unit_index("chunk_begin", index.chunk_begin, false));
  fields.push_back(b.index("blocks", Type::u8, index.blocks.data(), index.blocks.size(),
                           sizeof(sparse::ElementBlock), changes));
  fields.push_back(b.index("row_groups", Type::u8, index.row_groups.data(), index.row_groups.size(),
                           sizeof(sparse::RowGroup), changes));
  fields.push_back(b.index("indices", Type::u32, index.words.data(), index.words.size() / kRowGroupLanes,
                           kRowGroupLanes, changes));
}

/// Gathers the values of a weight in the order of its transpose, on the tiles of the product.
std::pair<Operand, StepId> gather_values(const ProductBuilder<Elements>& b, const Elements& family) {
  const sparse::PackedElements& w = family.weight;
  const uint32_t rows = family.value_rows();
  const Operand places = b.index_operand("places", Type::u32, w.transposed().source.data(), rows,
                                         kRowGroupLanes, w.is_dynamic());
  const Operand gathered =
      b.builder().temporary("gathered", w.type(), rows, kRowGroupLanes, {}, Purpose::parameter);
  return {gathered,
          add_gather(b.builder(), b.operands().values, places, gathered, b.partition().tiles_used())};
}

StepId build(const ProductBuilder<Elements>& b, const Elements& family) {
  const HostPartition& partition = b.partition();
  std::vector<StepId> steps;
  Operand values = b.operands().values;
  if (family.transpose) {
    const auto [gathered, step] = gather_values(b, family);
    values = gathered;
    steps.push_back(step);
  }
  std::vector<Field> fields = {b.whole(values)};
  add_index(b, family.index(), family.weight.is_dynamic(), fields);
  add_activations(b, fields);
  std::vector<int64_t> first_chunk, capacity;
  for (size_t r = 0; r < partition.row_parts(); ++r) {
    first_chunk.insert(first_chunk.end(), partition.col_parts(), b.first_unit(r));
    capacity.insert(capacity.end(), partition.col_parts(),
                    static_cast<int64_t>(family.capacity_of(b.first_unit(r), b.first_unit(r + 1))));
  }
  steps.push_back(
      b.multiply("multiply", std::move(fields),
                 {Param(family.index().k_block), Param(std::move(first_chunk)), Param(std::move(capacity)),
                  Param(static_cast<int64_t>(b.problem().activation)), first_columns(b)}));
  return b.builder().in_order(std::move(steps));
}

StepId build(const ProductBuilder<ElementSddmm>& b, const ElementSddmm& family) {
  const sparse::PackedElements& w = family.weight;
  const sparse::ElementIndex& index = w.index();
  const ProductOperands& o = b.operands();
  const size_t row_parts = b.partition().row_parts(), col_parts = b.partition().col_parts();
  const auto first_step_of = [&](uint32_t chunk) {
    return static_cast<uint32_t>(index.blocks[uint64_t{chunk} * w.k_blocks()].value / kRowGroupLanes);
  };
  // The last part also clears the places outside all row groups.
  std::vector<int64_t> first_chunk, first_step, end_step, capacity;
  for (size_t r = 0; r < row_parts; ++r) {
    const bool is_last = r + 1 == row_parts;
    first_chunk.insert(first_chunk.end(), col_parts, b.first_unit(r));
    first_step.insert(first_step.end(), col_parts, w.is_dynamic() ? 0 : first_step_of(b.first_unit(r)));
    end_step.insert(end_step.end(), col_parts, is_last ? o.values.rows() : 0);
    capacity.insert(capacity.end(), col_parts,
                    static_cast<int64_t>(family.capacity_of(b.first_unit(r), b.first_unit(r + 1))));
  }
  Field dw = b.whole(o.values);
  if (!w.is_dynamic())
    dw = b.parts(o.values, [&](size_t r, size_t) {
      const uint32_t first = first_step_of(b.first_unit(r));
      const uint32_t end = r + 1 < row_parts ? first_step_of(b.first_unit(r + 1)) : o.values.rows();
      return Box{first, end - first, 0, o.values.cols()};
    });
  std::vector<Field> fields;
  add_index(b, index, w.is_dynamic(), fields);
  fields.insert(fields.end(), {gradient_part(b), sampled_columns(b), std::move(dw), b.scalars(),
                               window_field(b), b.scratch()});
  return sample(b, family,
                b.vertices(std::move(fields),
                           {Param(w.k_block()), Param(std::move(first_chunk)), Param(std::move(first_step)),
                            Param(std::move(end_step)), Param(std::move(capacity)), first_columns(b)}),
                kernels::element_sddmm_field::dw);
}

/// Throws UsageError for operands that do not match the problem.
void check_operands(const Builder& builder, const PackedWeight& weight, const ProductProblem& problem,
                    const HostLayouts& layouts, const ProductOperands& operands) {
  const bool is_sddmm = problem.product == ProductKind::sddmm;
  const bool is_forward = problem.product == ProductKind::forward;
  const PackedShape packed = packed_shape(weight);
  builder.require(operands.values, is_sddmm ? "dW" : "W", is_sddmm ? Type::f32 : weight.type(), packed.rows,
                  packed.cols);
  const Type type = problem.activations;
  if (const kernels::Seen seen = seen_of(HostProblem(problem, layouts), weight.cols()))
    builder.require(operands.x, "images", type, seen.channels, seen.positions);
  else
    builder.require(operands.x, problem.product == ProductKind::input_gradient ? "dX" : "X", type,
                    weight.cols(), problem.n);
  builder.require(operands.y, is_forward ? "Y" : "dY", type, weight.rows(), problem.n);
  if (operands.scalars) builder.require(*operands.scalars, "alpha and beta", Type::f32, 1, 2);
  if (problem.bias != operands.bias.has_value())
    throw UsageError(problem.bias ? "the product has a bias; pass its operand"
                                  : "the product has no bias, so it takes no operand for one");
  if (operands.bias)
    builder.require(*operands.bias, "the bias", Type::f32, 1, is_forward ? weight.rows() : weight.cols());
}

}  // namespace

StepId build_host_product(const Builder& builder, WeightIndex& weight, const ProductProblem& problem,
                          const HostPlan& plan, const ProductOperands& operands) {
  if (const auto* panels = std::get_if<sparse::PackedPanels>(&weight.weight().form))
    return build_host_dense(builder, dense_problem(*panels, problem, plan.layouts),
                            {{plan.partition.row_begin, plan.partition.col_begin}, plan.chosen, {}},
                            {.w = operands.values,
                             .x = operands.x,
                             .y = operands.y,
                             .bias = operands.bias,
                             .scalars = operands.scalars});
  check_operands(builder, weight.weight(), problem, plan.layouts, operands);
  return with_family(weight.weight(), problem.product, [&](const auto& family) {
    return build(ProductBuilder(builder, family, weight, problem, plan, operands), family);
  });
}

HostProgram build_host_program(const std::shared_ptr<const PackedWeight>& weight,
                               const ProductProblem& problem, const HostPlan& plan,
                               const machine::Machine& machine) {
  HostProgram out;
  const Builder builder(out.program, machine);
  const bool is_sddmm = problem.product == ProductKind::sddmm;
  const bool is_forward = problem.product == ProductKind::forward;
  const bool is_input_gradient = problem.product == ProductKind::input_gradient;
  const Role result = problem.uses_beta ? Role::inout : Role::output;
  const PackedShape packed = packed_shape(*weight);
  ProductOperands& o = out.operands;
  o.values = builder.external(is_sddmm ? "dW" : "W.values",
                              !is_sddmm                                      ? Role::input
                              : weight->is_dynamic() && weight->has_blocks() ? Role::inout
                                                                             : result,
                              is_sddmm ? Type::f32 : weight->type(), packed.rows, packed.cols, {},
                              is_sddmm ? Purpose::gradient : Purpose::parameter);
  const auto add_matrix = [&](const char* name, bool is_result, uint32_t rows) {
    const bool by_rows = weight->is_dense();
    return builder.external(name, is_result ? result : Role::input, problem.activations,
                            by_rows ? problem.n : rows, by_rows ? rows : problem.n);
  };
  o.x = add_matrix(is_input_gradient ? "dX" : "X", is_input_gradient, weight->cols());
  o.y = add_matrix(is_forward ? "Y" : "dY", is_forward, weight->rows());
  o.scalars = builder.external("scalars", Role::input, Type::f32, 1, 2);
  if (problem.bias)
    o.bias = builder.external("bias", Role::input, Type::f32, 1, is_forward ? weight->rows() : weight->cols(),
                              {}, Purpose::parameter);
  WeightIndex index(weight);
  out.program.set_main(build_host_product(builder, index, problem, plan, o));
  out.index = index.bindings();
  return out;
}

}  // namespace tessera::ops
