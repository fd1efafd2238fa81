#include "lower/weights/host_sparse.h"

#include <algorithm>
#include <utility>

#include "ops/sparse/host/spmm.h"

namespace tessera::graph {
namespace {

/// The layout of an operand: an array that the caller binds may have any strides, and is bound as its own
/// transpose; a call may pass it on.
Layout layout_of(const ops::Builder& builder, const ops::Operand& operand) {
  const program::Variable& variable = builder.program().variable(operand.variable);
  return variable.is_external() || variable.is_argument() ? Layout::column_major : Layout::row_major;
}

/// A result that the next operation reads should stay in the caches.
ops::ForcedKnobs knobs_of(const ops::Builder& builder, const LinearCall& call) {
  if (call.product == ProductKind::sddmm) return {};
  const ops::Operand& result = call.product == ProductKind::forward ? call.y : call.x;
  const uint64_t bytes = uint64_t{result.rows()} * result.cols() * size_of(builder.type_of(result));
  const bool is_read_here = layout_of(builder, result) == Layout::row_major;
  if (!is_read_here || bytes > builder.machine().figures.l3_bytes) return {};
  return {{"stream_y", 0}};
}

}  // namespace

HostSparseWeight::HostSparseWeight(const TensorType& type, const std::string& name)
    : weight_(
          std::make_shared<ops::PackedWeight>(ops::prepack_index(*type.pattern, type.type, type.capacity))),
      index_(weight_, name) {}

ops::OperandLayout HostSparseWeight::layout() const {
  const ops::PackedShape shape = packed_shape(*weight_);
  return {.rows = shape.rows, .cols = shape.cols};
}

Type HostSparseWeight::activation_type_of(const ops::Builder& builder, const LinearCall& call) const {
  const bool are_bf16 = builder.type_of(call.x) == Type::bf16 && builder.type_of(call.y) == Type::bf16;
  const ops::HostLayouts layouts{.window = call.window};
  return are_bf16 && call.product == ProductKind::forward && takes_bf16(*weight_, layouts, builder.machine())
             ? Type::bf16
             : Type::f32;
}

program::StepId HostSparseWeight::add(const ops::Builder& builder, const LinearCall& call) {
  if (std::ranges::find(products_, call.product) == products_.end()) products_.push_back(call.product);
  const ops::ProductProblem problem{.n = call.n,
                                    .type = weight_->type(),
                                    .activations = builder.type_of(call.x),
                                    .product = call.product,
                                    .activation = call.activation,
                                    .bias = call.bias.has_value(),
                                    .uses_beta = call.adds};
  const ops::HostPlan plan =
      plan_host_product(*weight_, problem, builder.machine(), knobs_of(builder, call),
                        {layout_of(builder, call.x), layout_of(builder, call.y), call.window});
  return build_host_product(builder, index_, problem, plan,
                            {.values = call.values, .x = call.x, .y = call.y, .bias = call.bias});
}

std::vector<engine::Binding> HostSparseWeight::bindings() {
  for (ProductKind product : products_) update_index(*weight_, product);
  std::vector<engine::Binding> bindings;
  for (const ops::WeightIndex::Binding& b : index_.bindings())
    bindings.push_back({b.variable, const_cast<void*>(b.data), b.row_stride, 1});
  return bindings;
}

void HostSparseWeight::set_pattern(const Pattern& pattern) {
  if (!weight_->is_dynamic()) return LinearWeight::set_pattern(pattern);
  if (auto* blocks = std::get_if<sparse::PackedBlocks>(&weight_->form))
    blocks->arrange(pattern);
  else
    std::get<sparse::PackedElements>(weight_->form).set_pattern(pattern);
}

}  // namespace tessera::graph
