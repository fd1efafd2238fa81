#include "lower/weights/tiled.h"

#include <utility>

#include "sparse/blocks/packed_blocks.h"

namespace tessera::graph {

using ops::LayoutChoices;
using ops::ProductProblem;
using ops::TileProductPlan;

TiledWeight::TiledWeight(const ops::Builder& builder, const TensorType& type, std::string name, uint32_t n,
                         bool forward_only)
    : machine_(builder.machine()),
      type_(type.type),
      name_(std::move(name)),
      dense_(!type.pattern),
      forward_only_(forward_only),
      capacity_(type.capacity),
      n_(n),
      pattern_(dense_ ? sparse::full_pattern(type.shape[0], type.shape[1], sparse::kDenseBlockSize)
                      : *type.pattern) {
  plans_[{ProductKind::forward, n_}] =
      plan_tile_product(pattern_, problem_of(ProductKind::forward, n_), machine_, knobs());
  order_.layouts = forward().layouts;
  order_.dense = dense_;
  order_.block_order = order_.layouts.values.blocks;
  if (!capacity_) return;
  metadata_ = builder.add(name_ + ".metadata", program::Role::input, Type::u16, order_.layouts.metadata,
                          program::Purpose::metadata);
  set_pattern(pattern_);
}

/// Gradients are not planned for serial slices.
ops::ForcedKnobs TiledWeight::knobs() const {
  return dense_ && !forward_only_ ? ops::ForcedKnobs{{"m_slices", 1}, {"n_slices", 1}} : ops::ForcedKnobs{};
}

ProductProblem TiledWeight::problem_of(ProductKind product, uint32_t n) const {
  return {
      .n = n, .type = type_, .partials = type_, .dense = dense_, .product = product, .capacity = capacity_};
}

const TileProductPlan& TiledWeight::plan(ProductKind product, uint32_t n) {
  const auto found = plans_.find({product, n});
  if (found != plans_.end()) return found->second;
  const bool is_forward = product == ProductKind::forward;
  LayoutChoices layouts;
  if (is_forward) layouts.values = {layout()};
  return plans_[{product, n}] = plan_tile_product(
             pattern_, problem_of(product, n), machine_, is_forward ? knobs() : ops::ForcedKnobs{},
             is_forward ? nullptr : &plan(ProductKind::forward, n), layouts);
}

std::optional<PartedActivations> TiledWeight::parted_activations(ProductKind product, uint32_t n) {
  if (!dense_) return {};
  const ops::ProductLayouts& layouts = plan(product, n).layouts;
  return PartedActivations{layouts.x, layouts.y};
}

program::StepId TiledWeight::add(const ops::Builder& builder, const LinearCall& call) {
  ProductProblem problem = problem_of(call.product, call.n);
  problem.activation = call.activation;
  problem.bias = call.bias.has_value();
  return build(builder, pattern_, problem, plan(call.product, call.n),
               {.values = call.values, .x = call.x, .y = call.y, .bias = call.bias, .metadata = metadata_})
      .step;
}

std::vector<float> TiledWeight::store(std::span<const float> values) const {
  if (dense_) return LinearWeight::store(values);
  return order_.stored_weight({pattern_, {values.begin(), values.end()}});
}

std::vector<float> TiledWeight::load(std::span<const float> stored) const {
  if (dense_) return LinearWeight::load(stored);
  SparseMatrix matrix{pattern_, {}};
  order_.load_weight(stored, matrix);
  return matrix.values;
}

std::vector<engine::Binding> TiledWeight::bindings() {
  if (!metadata_) return {};
  return {{metadata_->variable, encoding_->metadata.data(), metadata_->cols(), 1}};
}

ops::DynamicShape TiledWeight::dynamic_shape() const {
  return {pattern_.rows, pattern_.cols, n_, pattern_.block_size, *capacity_, {type_, type_}};
}

void TiledWeight::set_pattern(const Pattern& pattern) {
  if (!capacity_) return LinearWeight::set_pattern(pattern);
  const ops::DynamicGrid grid(dynamic_shape(), std::get<ops::DynamicTiling>(forward().partition), machine_);
  encoding_ = encode(pattern, dynamic_shape(), grid);
  order_.block_order = encoding_->block_order;
  pattern_ = pattern;
}

}  // namespace tessera::graph
