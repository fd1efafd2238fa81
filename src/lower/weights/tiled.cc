#include "lower/weights/tiled.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "base/ceil_divide.h"
#include "ops/map/table.h"
#include "sparse/blocks/packed_blocks.h"

namespace tessera::graph {

using ops::LayoutChoices;
using ops::ProductProblem;
using ops::TileProductPlan;

namespace {

/// Bytes that X and Y take on a tile as rows, the layout that a network has before and after a product.
uint64_t bytes_as_rows(uint32_t n, const Pattern& w, Type type, uint32_t tiles) {
  const uint64_t row = (uint64_t{w.rows} + w.cols) * size_of(type);
  return n < tiles ? base::ceil_divide(n * row, uint64_t{tiles}) : base::ceil_divide(n, tiles) * row;
}

}  // namespace

TiledWeight::TiledWeight(const ops::Builder& builder, const TensorType& type, std::string name,
                         const WeightUse& use)
    : machine_(builder.machine()),
      type_(type.type),
      partials_(use.partial_sums.type.value_or(type_) == type_ ? type_ : Type::f32),
      rounding_(use.partial_sums.rounding == Rounding::stochastic ? std::optional(use.partial_sums.seed)
                                                                  : std::nullopt),
      name_(std::move(name)),
      dense_(!type.pattern),
      forward_only_(use.is_forward_only),
      capacity_(type.capacity),
      n_(std::max(use.rows, 1U)),
      pattern_(dense_ ? sparse::full_pattern(type.shape[0], type.shape[1], sparse::kDenseBlockSize)
                      : *type.pattern) {
  plans_[{ProductKind::forward, n_}] = plan_forward(use);
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

/// A product in slices may fill the tiles, unless it leaves space for X and Y as rows.
TileProductPlan TiledWeight::plan_beside_rows(const ProductProblem& problem) const {
  TileProductPlan plan = plan_tile_product(pattern_, problem, machine_, knobs());
  constexpr uint64_t kCode = 4096;  // of bringing them to the product and back
  const uint64_t rows = bytes_as_rows(n_, pattern_, type_, machine_.tiles) + kCode;
  const bool fits = plan.chosen.max_tile_bytes + rows <= machine_.tile_bytes;
  if (!dense_ || !forward_only_ || fits || rows >= machine_.tile_bytes) return plan;
  machine::Machine smaller = machine_;
  smaller.tile_bytes -= rows;
  TileProductPlan beside = plan_tile_product(pattern_, problem, smaller, knobs());
  return beside.chosen.rejected.empty() ? beside : plan;
}

/// The partition of the forward product, in which gradients are computed too.
TileProductPlan TiledWeight::plan_forward(const WeightUse& use) const {
  TileProductPlan fastest = plan_beside_rows(problem_of(ProductKind::forward, n_));
  if (dense_ && use.rows_taken > 0) return plan_table(use, std::move(fastest));
  if (dense_ && use.has_gradients) return plan_with_gradients(std::move(fastest));
  return fastest;
}

TiledWeight::Products TiledWeight::products_in(const TileProductPlan& forward, bool has_gradients) const {
  Products all{!forward.chosen.rejected.empty(), forward.chosen.total(), forward.chosen.max_tile_bytes};
  for (const ProductKind product : {ProductKind::input_gradient, ProductKind::sddmm}) {
    if (!has_gradients) continue;
    const ops::PlanCandidate gradient =
        plan_tile_product(pattern_, problem_of(product, n_), machine_, {}, &forward).chosen;
    all.misfit = all.misfit || !gradient.rejected.empty();
    all.seconds += gradient.total();
    all.bytes = std::max(all.bytes, gradient.max_tile_bytes);
  }
  return all;
}

/// Of the plans in which all three products together take hardly longer than in the fastest, the one with the
/// fewest bytes: the rest of a network lies on the tiles too.
TileProductPlan TiledWeight::plan_with_gradients(TileProductPlan forward) const {
  constexpr double kHardlyLonger = 1.05;
  const ProductProblem problem = problem_of(ProductKind::forward, n_);
  std::vector<TileProductPlan> plans = {std::move(forward)};
  for (const ops::ForcedKnobs& forced : knobs_with_gradients(pattern_, problem, machine_))
    plans.push_back(plan_tile_product(pattern_, problem, machine_, forced));
  std::vector<Products> products;
  for (const TileProductPlan& plan : plans) products.push_back(products_in(plan, true));
  const Products fastest = *std::ranges::min_element(
      products, {}, [](const Products& each) { return std::pair(each.misfit, each.seconds); });
  const auto rank = [&](const Products& each) {
    const bool is_slow = each.seconds > kHardlyLonger * fastest.seconds;
    return std::tuple(each.misfit, is_slow, each.bytes, each.seconds);
  };
  const auto best = std::ranges::min_element(products, {}, rank) - products.begin();
  return std::move(plans[static_cast<size_t>(best)]);
}

/// The plan with which all uses of a table together take the least time: all have the weight in the same
/// parts.
TileProductPlan TiledWeight::plan_table(const WeightUse& use, TileProductPlan best) const {
  constexpr uint64_t kShareOfProduct = 3;  // a product should take one in this many parts of a tile's memory
  struct Cost {
    bool misfit = false;
    double seconds = 0;
    auto operator<=>(const Cost&) const = default;
  };
  const auto cost_of = [&](const TileProductPlan& forward, const Cost* least) {
    const Products products = products_in(forward, use.has_gradients);
    const Cost cost{products.misfit, products.seconds};
    // Rows on many tiles take long to count.
    if (least != nullptr && cost >= *least) return cost;
    return Cost{cost.misfit, cost.seconds + seconds_of_rows(forward, use)};
  };
  Cost least = cost_of(best, nullptr);
  const uint32_t most = std::min(pattern_.cols / ops::dense_inner_grain(type_), machine_.tiles);
  for (uint32_t parts = 1; parts <= most; parts *= 2) {
    ops::ForcedKnobs forced = knobs();
    forced["m_parts"] = machine_.tiles / parts;
    forced["k_parts"] = parts;
    forced["n_parts"] = 1;
    TileProductPlan plan =
        plan_tile_product(pattern_, problem_of(ProductKind::forward, n_), machine_, forced);
    if (plan.chosen.max_tile_bytes >
        std::max(best.chosen.max_tile_bytes, machine_.tile_bytes / kShareOfProduct))
      continue;
    if (const Cost cost = cost_of(plan, &least); cost < least) best = std::move(plan), least = cost;
  }
  return best;
}

/// Seconds for taking rows from where the forward product has the weight, and adding to rows of its gradient.
double TiledWeight::seconds_of_rows(const TileProductPlan& forward, const WeightUse& use) const {
  const ops::OperandLayout& layout = forward.layouts.values;
  const std::tuple key(type_, layout, use.rows_taken, use.has_gradients, pattern_.cols);
  return seconds_alone(machine_, key, [&](const ops::Builder& builder) {
    const auto add = [&](const char* name, Type type, uint32_t cols) {
      return builder.add(name, program::Role::input, type, ops::matrix_layout(use.rows_taken, cols, {}));
    };
    const ops::Operand ids = add("ids", Type::u32, 1);
    std::vector<program::StepId> steps = {
        ops::add(builder, ops::TableLookupProblem{type_, *layout.parts, use.rows_taken},
                 {ids, builder.add("weight", program::Role::state, type_, layout),
                  add("taken", type_, pattern_.cols)})};
    if (use.has_gradients)
      steps.push_back(ops::add(builder, ops::TableAddProblem{*layout.parts, use.rows_taken, {}, type_},
                               {ids, add("added", type_, pattern_.cols),
                                builder.add("gradient", program::Role::state, Type::f32, layout)}));
    return builder.sequence(std::move(steps));
  });
}

ProductProblem TiledWeight::problem_of(ProductKind product, uint32_t n) const {
  return {.n = n,
          .type = type_,
          .partials = partials_,
          .rounding = rounding_,
          .dense = dense_,
          .product = product,
          .capacity = capacity_};
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
  return {pattern_.rows, pattern_.cols, n_, pattern_.block_size, *capacity_, {type_, partials_}};
}

void TiledWeight::set_pattern(const Pattern& pattern) {
  if (!capacity_) return LinearWeight::set_pattern(pattern);
  const ops::DynamicGrid grid(dynamic_shape(), std::get<ops::DynamicTiling>(forward().partition), machine_);
  encoding_ = encode(pattern, dynamic_shape(), grid);
  order_.block_order = encoding_->block_order;
  pattern_ = pattern;
}

}  // namespace tessera::graph
