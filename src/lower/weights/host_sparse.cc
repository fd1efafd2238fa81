#include "lower/weights/host_sparse.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ops/map/gather.h"
#include "ops/map/map.h"
#include "ops/map/patches.h"
#include "ops/sparse/host/rows.h"
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

program::StepId add_product(const ops::Builder& builder, ops::WeightIndex& index, const LinearCall& call) {
  const ops::PackedWeight& weight = index.weight();
  const ops::ProductProblem problem{.n = call.n,
                                    .type = weight.type(),
                                    .activations = builder.type_of(call.x),
                                    .product = call.product,
                                    .activation = call.activation,
                                    .bias = call.bias.has_value(),
                                    .uses_beta = call.adds};
  const ops::HostPlan plan =
      plan_host_product(weight, problem, builder.machine(), knobs_of(builder, call),
                        {layout_of(builder, call.x), layout_of(builder, call.y), call.window});
  return build_host_product(builder, index, problem, plan,
                            {.values = call.values, .x = call.x, .y = call.y, .bias = call.bias});
}

program::StepId add_copy(const ops::Builder& builder, const ops::Operand& from, const ops::Operand& to) {
  return ops::add(builder, ops::CopyProblem{builder.type_of(from), from.rows(), from.cols()}, {from, to});
}

/// Number of images whose parts are computed together before they are added to the images: as many as the
/// caches hold, but few enough parts that compiling takes no time.
uint32_t images_together(const machine::Machine& machine, uint64_t bytes_of_image, uint32_t images) {
  constexpr uint32_t kMostParts = 16;
  const uint64_t cached = machine.figures.l3_bytes / 2 / std::max<uint64_t>(1, bytes_of_image);
  return static_cast<uint32_t>(std::clamp<uint64_t>(cached, (images - 1) / kMostParts + 1, images));
}

/// The parts of dX: for each image, the parts of all taps of a window, which are added to the image.
struct FoldedParts {
  uint32_t rows = 0;  ///< channels of all taps
  kernels::Window window;
};

/// Adds up dX. compute(first image, count, parts) adds the step that computes the parts of some images.
template <class Compute>
program::StepId add_in_parts(const ops::Builder& builder, const ops::Operand& result,
                             const FoldedParts& parts, const Compute& compute) {
  const uint32_t positions = parts.window.positions(), outs = parts.window.out_positions();
  const uint32_t images = result.cols() / positions;
  const uint32_t together =
      images_together(builder.machine(), uint64_t{parts.rows} * outs * sizeof(float), images);
  const ops::Operand seen = builder.temporary("seen", Type::f32, parts.rows, together * outs);
  const bool lies_otherwise = layout_of(builder, result) == Layout::column_major;
  const ops::Operand dx =
      lies_otherwise ? builder.temporary("images", Type::f32, result.rows(), result.cols()) : result;
  std::vector<program::StepId> steps;
  for (uint32_t first = 0; first < images; first += together) {
    const uint32_t count = std::min(together, images - first);
    const ops::Operand some = seen.part({0, parts.rows, 0, count * outs});
    steps.push_back(compute(first, count, some));
    const ops::FoldProblem fold{{Type::f32, count, dx.rows(), parts.window, true}};
    steps.push_back(
        ops::add(builder, fold, {some, dx.part({0, dx.rows(), first * positions, count * positions})}));
  }
  if (lies_otherwise) steps.push_back(add_copy(builder, dx, result));
  return builder.in_order(std::move(steps));
}

}  // namespace

HostSparseWeight::HostSparseWeight(const TensorType& type, const std::string& name)
    : name_(name),
      weight_(
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

HostSparseWeight::Adjoint& HostSparseWeight::adjoint_with(const sparse::AdjointPlaces& places) {
  const auto found = std::ranges::find(adjoints_, places, &Adjoint::places);
  if (found != adjoints_.end()) return *found;
  const auto weight = std::make_shared<ops::AdjointWeight>(ops::adjoint_of(*weight_, places));
  return adjoints_.emplace_back(
      Adjoint{places, weight, ops::WeightIndex({weight, &weight->weight}, name_ + ".adjoint")});
}

/// Computes dX as the adjoint of a convolution, which is a convolution of dY; with strides, one for each
/// phase of the images.
program::StepId HostSparseWeight::add_adjoint(const ops::Builder& builder, const LinearCall& call,
                                              const ops::AdjointTaps& taps) {
  Adjoint& adjoint = adjoint_with(taps.places);
  std::vector<program::StepId> steps;
  const ops::Operand values = gather_adjoint(builder, adjoint.index, *adjoint.weight, call.values, steps);
  ops::Operand dy = call.y;
  if (layout_of(builder, call.y) == Layout::column_major) {  // taps would read it element by element
    dy = builder.temporary("images", Type::f32, call.y.rows(), call.y.cols());
    steps.push_back(add_copy(builder, call.y, dy));
  }
  const auto add_convolution = [&](const ops::Operand& images, const ops::Operand& results) {
    return add_product(builder, adjoint.index,
                       {.product = ProductKind::forward,
                        .values = values,
                        .x = images,
                        .y = results,
                        .n = results.cols(),
                        .window = taps.window});
  };
  if (taps.gives_images()) {
    steps.push_back(add_convolution(dy, call.x));
    return builder.in_order(std::move(steps));
  }
  const FoldedParts parts{adjoint.weight->weight.rows(), taps.fold};
  const uint32_t outs = taps.window.positions();
  steps.push_back(add_in_parts(
      builder, call.x, parts, [&](uint32_t first, uint32_t count, const ops::Operand& of_phases) {
        return add_convolution(dy.part({0, dy.rows(), first * outs, count * outs}), of_phases);
      }));
  return builder.in_order(std::move(steps));
}

/// Computes parts of dX for some images at a time, and adds them to the images.
program::StepId HostSparseWeight::add_folded(const ops::Builder& builder, const LinearCall& call) {
  const kernels::Window& window = *call.window;
  const uint32_t outs = window.out_positions();
  return add_in_parts(builder, call.x, {weight_->cols(), window},
                      [&](uint32_t first, uint32_t count, const ops::Operand& seen) {
                        return add(builder, {.product = call.product,
                                             .values = call.values,
                                             .x = seen,
                                             .y = call.y.part({0, call.y.rows(), first * outs, count * outs}),
                                             .n = count * outs});
                      });
}

program::StepId HostSparseWeight::add(const ops::Builder& builder, const LinearCall& call) {
  if (call.window && call.product == ProductKind::input_gradient) {
    const ops::AdjointTaps taps = ops::adjoint_taps(*call.window);
    const bool is_convolution =
        (taps.adds_taps() || taps.gives_images()) && ops::has_adjoint(*weight_, taps.places);
    return is_convolution ? add_adjoint(builder, call, taps) : add_folded(builder, call);
  }
  if (std::ranges::find(products_, call.product) == products_.end()) products_.push_back(call.product);
  return add_product(builder, index_, call);
}

program::StepId HostSparseWeight::add_taking(const ops::Builder& builder, const RowsCall& call) {
  return ops::take_rows(builder, index_, {call.list, call.values, call.rows});
}

program::StepId HostSparseWeight::add_summing(const ops::Builder& builder, const RowsCall& call) {
  return ops::sum_rows(builder, index_, {call.list, call.values, call.rows}, call.skipped);
}

std::vector<engine::Binding> HostSparseWeight::bindings() {
  for (ProductKind product : products_) update_index(*weight_, product);
  std::vector<engine::Binding> bindings;
  const auto add = [&](const ops::WeightIndex& index) {
    for (const ops::WeightIndex::Binding& b : index.bindings())
      bindings.push_back({b.variable, const_cast<void*>(b.data), b.row_stride, 1});
  };
  add(index_);
  for (const Adjoint& adjoint : adjoints_) add(adjoint.index);
  return bindings;
}

void HostSparseWeight::set_pattern(const Pattern& pattern) {
  if (!weight_->is_dynamic()) return LinearWeight::set_pattern(pattern);
  ops::set_pattern(*weight_, pattern);
  for (const Adjoint& adjoint : adjoints_) ops::follow_pattern(*adjoint.weight, *weight_, adjoint.places);
}

}  // namespace tessera::graph
