#include "ops/tiles/build_between.h"

#include <algorithm>

#include "kernels/tile/row_epilogue/codelet.h"
#include "ops/owners.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::MappedBox;
using program::Role;

/// The operand that a product writes.
template <class Operands>
auto& result_of(ProductKind product, Operands& operands) {
  switch (product) {
    case ProductKind::input_gradient: return operands.x;
    case ProductKind::sddmm: return operands.values;
    default: return operands.y;
  }
}

/// Bias and activation of a result on the tiles of its owners: a vertex for each run of whole or partial
/// rows.
class Epilogue {
 public:
  Epilogue(const Builder& builder, const OperandLayout& layout, const Operand& result,
           const ProductProblem& problem, const std::optional<Operand>& bias)
      : b_(builder), layout_(layout), result_(result), problem_(problem), bias_(bias) {}

  program::StepId build() {
    std::vector<MappedBox> mapping = b_.mapping_of(result_);
    std::ranges::sort(mapping, {}, &MappedBox::tile);
    for (const MappedBox& owned : mapping)
      layout_.parts ? add_runs(*layout_.parts, owned)
                    : add(owned, owned.box.row, owned.box.rows, owned.box.cols, 0);
    std::vector<OwnerField> fields = {{bias_ ? *bias_ : result_, std::move(bias_boxes_)},
                                      {result_, boxes_of(owners_)}};
    return b_.execute({"epilogue", program::Phase::compute,
                       groups_of_owners(owners_, kernels::row_epilogue_codelet, fields,
                                        {static_cast<int64_t>(problem_.activation), std::move(row_elements_),
                                         std::move(first_)})});
  }

 private:
  /// `rows` rows of the matrix from `row` on lie in the box; its first element is element `first` of its row.
  void add(const MappedBox& owned, uint32_t row, uint32_t rows, int64_t row_elements, int64_t first) {
    owners_.push_back(owned);
    const uint32_t all = bias_ ? bias_->rows() : 0;
    bias_boxes_.push_back({std::min(row, all), std::min(rows, all - std::min(row, all)), 0, bias_ ? 1U : 0U});
    row_elements_.push_back(row_elements);
    first_.push_back(first);
  }

  /// A run of stored elements, split at part boundaries.
  void add_runs(const PartedMatrix& parts, const MappedBox& owned) {
    for (uint32_t slice = owned.box.row; slice < owned.box.row_end(); ++slice)
      for (uint32_t i = 0; i < parts.row_parts(); ++i)
        for (uint32_t j = 0; j < parts.col_parts(); ++j) {
          const Box part = parts.part(slice, i, j);
          const Box run = intersection(part, {slice, 1, owned.box.col, owned.box.cols});
          if (run.empty()) continue;
          const uint32_t cols = parts.cols_of(j);
          const uint32_t before = run.col - part.col;
          const uint32_t row = before / cols;
          const uint32_t end = (before + run.cols - 1) / cols + 1;
          add({run, owned.tile}, parts.first_row(slice, i) + row, end - row, cols, before % cols);
        }
  }

  const Builder& b_;
  const OperandLayout& layout_;
  const Operand& result_;
  const ProductProblem& problem_;
  const std::optional<Operand>& bias_;
  std::vector<MappedBox> owners_;
  std::vector<Box> bias_boxes_;
  std::vector<int64_t> row_elements_;
  std::vector<int64_t> first_;
};

}  // namespace

BuiltProduct build_between(const Builder& builder, const ProductProblem& problem, const ProductLayouts& given,
                           const ProductLayouts& native, const ProductOperands& operands,
                           const BuildNative& build_native) {
  std::vector<program::StepId> steps;
  ProductOperands local = operands;
  const ProductKind product = problem.product;
  if (product != ProductKind::sddmm)
    local.values = builder.bring(operands.values, given.values, native.values, steps);
  if (product != ProductKind::input_gradient) local.x = builder.bring(operands.x, given.x, native.x, steps);
  if (product != ProductKind::forward) local.y = builder.bring(operands.y, given.y, native.y, steps);
  const OperandLayout& given_result = result_of(product, given);
  const OperandLayout& native_result = result_of(product, native);
  const bool has_epilogue = problem.bias || problem.activation != Activation::none;
  const bool is_converted = !given_result.has_order_of(native_result);
  Operand& result = result_of(product, local);
  if (is_converted || (has_epilogue && !builder.holds(result)))
    result = builder.add("result", Role::temporary, builder.type_of(result), native_result,
                         builder.purpose_of(result));
  BuiltProduct built = build_native(builder, local);
  steps.push_back(built.step);
  if (has_epilogue && !result.box.empty())
    steps.push_back(Epilogue(builder, native_result, result, problem, operands.bias).build());
  if (is_converted)
    builder.convert(result, native_result, result_of(product, operands), given_result, steps);
  else
    builder.send(result, result_of(product, operands), steps);
  built.step = builder.in_order(std::move(steps));
  return built;
}

ProductOperands add_external(const Builder& builder, const ProductProblem& problem,
                             const ProductLayouts& layouts) {
  const bool is_sddmm = problem.product == ProductKind::sddmm;
  const bool is_dx = problem.product == ProductKind::input_gradient;
  const bool is_forward = problem.product == ProductKind::forward;
  const auto role = [](bool is_result) { return is_result ? Role::output : Role::input; };
  ProductOperands operands;
  using program::Purpose;
  operands.values = builder.add(is_sddmm ? "dW" : "W.values", role(is_sddmm), problem.type, layouts.values,
                                is_sddmm ? Purpose::gradient : Purpose::parameter);
  operands.x = builder.add(is_dx ? "dX" : "X", role(is_dx), problem.type, layouts.x);
  operands.y = builder.add(is_forward ? "Y" : "dY", role(is_forward), problem.type, layouts.y);
  if (problem.bias)
    operands.bias = builder.add("bias", Role::input, Type::f32, layouts.bias, Purpose::parameter);
  if (problem.capacity)
    operands.metadata = builder.add("W.metadata", Role::input, Type::u16, layouts.metadata);
  return operands;
}

ClosedProduct close_product(const machine::Machine& machine, const ProductProblem& problem,
                            const ProductLayouts& given, const ProductLayouts& native,
                            const BuildNative& build_native) {
  ClosedProduct closed;
  const Builder builder(closed.program, machine);
  closed.operands = add_external(builder, problem, given);
  const BuiltProduct built = build_between(builder, problem, given, native, closed.operands, build_native);
  closed.program.set_main(built.step);
  closed.bucket_metadata = built.bucket_metadata;
  return closed;
}

}  // namespace tessera::ops
