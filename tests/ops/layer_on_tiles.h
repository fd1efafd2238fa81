// A training step of a layer on tiles in one program: its three products and an update in place.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <vector>

#include "compiler/compile.h"
#include "kernels/common/element.h"
#include "kernels/map/elementwise/codelet.h"
#include "ops/owners.h"
#include "ops/run_on_tiles.h"

namespace tessera::ops {

/// Plans of a layer's products: W, its gradient and momentum have the forward product's layout.
struct LayerPlans {
  TileProductPlan forward;
  TileProductPlan dx;
  TileProductPlan dw;
};

inline LayerPlans plan_layer(const Pattern& pattern, ProductProblem problem, const machine::Machine& m,
                             ForcedKnobs force = {}) {
  if (problem.dense) force.insert({{"m_slices", 1}, {"n_slices", 1}});
  LayerPlans plans;
  plans.forward = plan_tile_product(pattern, problem, m, force);
  problem.bias = false;
  problem.activation = Activation::none;
  problem.product = ProductKind::input_gradient;
  plans.dx = plan_tile_product(pattern, problem, m, {}, &plans.forward);
  problem.product = ProductKind::sddmm;
  plans.dw = plan_tile_product(pattern, problem, m, {}, &plans.forward);
  return plans;
}

/// Y = W·X, dX = Wᵀ·dY, dW = dY·Xᵀ; then V = ½·V + dW and W = W − ¼·V, in place.
class LayerStep {
 public:
  LayerStep(const SparseMatrix& matrix, const ProductProblem& problem, const machine::Machine& m,
            const ForcedKnobs& force = {})
      : problem_(problem),
        w_(check::rounded(matrix, problem.type)),
        plans_(plan_layer(matrix.pattern, problem, m, force)) {
    program::Program program;
    add_to(Builder(program, m));
    program.set_main(step_);
    executable_ = compiler::compile(std::move(program), m);
  }

  /// Adds the layer to a program and returns its step.
  program::StepId add_to(const Builder& b) {
    using program::Purpose;
    using program::Role;
    const auto add = [&](const char* name, Role role, const OperandLayout& layout,
                         Purpose purpose = Purpose::activation) {
      return b.add(name, role, problem_.type, layout, purpose);
    };
    values_ = add("W", Role::inout, plans_.forward.layouts.values, Purpose::parameter);
    momentum_ = add("V", Role::inout, plans_.forward.layouts.values, Purpose::optimizer);
    dw_ = add("dW", Role::output, plans_.dw.layouts.values, Purpose::gradient);
    x_ = add("X", Role::input, plans_.forward.layouts.x);
    y_ = add("Y", Role::output, plans_.forward.layouts.y);
    dy_ = add("dY", Role::input, plans_.dx.layouts.y);
    dx_ = add("dX", Role::output, plans_.dx.layouts.x);
    std::optional<Operand> metadata;
    if (problem_.capacity)
      metadata = metadata_ = b.add("metadata", Role::input, Type::u16, plans_.forward.layouts.metadata);
    ProductProblem problem = problem_;
    std::vector<program::StepId> steps;
    steps.push_back(build(b, w_.pattern, problem, plans_.forward,
                          {.values = values_, .x = x_, .y = y_, .metadata = metadata})
                        .step);
    problem.product = ProductKind::input_gradient;
    steps.push_back(build(b, w_.pattern, problem, plans_.dx,
                          {.values = values_, .x = dx_, .y = dy_, .metadata = metadata})
                        .step);
    problem.product = ProductKind::sddmm;
    steps.push_back(
        build(b, w_.pattern, problem, plans_.dw, {.values = dw_, .x = x_, .y = dy_, .metadata = metadata})
            .step);
    const Operand scaled =
        b.add("scaled", Role::temporary, problem_.type, plans_.forward.layouts.values, Purpose::optimizer);
    using kernels::Binary;
    using kernels::Unary;
    const auto update = [&](const program::Codelet& codelet, std::vector<Operand> fields,
                            std::vector<program::Param> params = {}) {
      std::vector<program::MappedBox> owners = b.mapping_of(values_);
      std::ranges::sort(owners, {}, &program::MappedBox::tile);
      std::vector<OwnerField> owned;
      for (const Operand& field : fields) owned.push_back({field, boxes_of(owners)});
      steps.push_back(
          b.execute({"update", program::Phase::compute, groups_of_owners(owners, codelet, owned, params)}));
    };
    update(kernels::codelet_of(Unary::scale), {momentum_, momentum_}, {kernels::param_of(0.5F)});
    update(kernels::codelet_of(Binary::add), {momentum_, dw_, momentum_});
    update(kernels::codelet_of(Unary::scale), {momentum_, scaled}, {kernels::param_of(0.25F)});
    update(kernels::codelet_of(Binary::sub), {values_, scaled, values_});
    step_ = b.sequence(std::move(steps));
    return step_;
  }

  const compiler::Executable& executable() const { return *executable_; }
  const LayerPlans& plans() const { return plans_; }

  /// Runs the executable, and compares all results with float64.
  void expect_right() {
    bind();
    const engine::Engine engine(executable_);
    profile_ = engine.run(bindings_);
    EXPECT_EQ(profile_.cycles.at, engine.run(metadata_binding_, {.dry = true}).cycles.at);
    check();
  }

  /// Sets the inputs, and the outputs to NaN.
  const std::vector<engine::Binding>& bind() {
    const uint32_t n = problem_.n;
    const Type type = problem_.type;
    const Pattern& p = w_.pattern;
    x_values_ = random_elements(uint64_t{p.cols} * n, type, 3);
    dy_values_ = random_elements(uint64_t{p.rows} * n, type, 4);
    stored_.layouts = plans_.forward.layouts;
    stored_.dense = problem_.dense;
    stored_.block_order = stored_.layouts.values.blocks;
    bindings_.clear();
    metadata_binding_.clear();
    if (problem_.capacity) {
      const DynamicShape shape{p.rows, p.cols, n, p.block_size, *problem_.capacity, problem_.numbers()};
      const DynamicGrid grid(shape, std::get<DynamicTiling>(plans_.forward.partition), executable_->machine);
      encoding_ = encode(p, shape, grid);
      stored_.block_order = encoding_->block_order;
      metadata_binding_ = {{metadata_.variable, encoding_->metadata.data(), metadata_.cols(), 1}};
      bindings_ = metadata_binding_;
    }
    const std::vector<float> w = stored_.stored_weight(w_);
    set(values_, w);
    set(momentum_, std::vector<float>(w.size(), 0.0F));
    set(dw_, std::vector<float>(w.size(), NAN));
    set(x_, plans_.forward.layouts.x.store(x_values_));
    set(y_, std::vector<float>(y_.box.elements(), NAN));
    set(dy_, plans_.dx.layouts.y.store(dy_values_));
    set(dx_, std::vector<float>(dx_.box.elements(), NAN));
    return bindings_;
  }

  void check() {
    const uint32_t n = problem_.n;
    const Type type = problem_.type;
    const Pattern& p = w_.pattern;
    const auto view = [n](const std::vector<float>& m) { return MatrixView<const float>{m.data(), n, 1}; };
    const uint32_t roundings = encoding_ ? encoding_->roundings : 1;
    std::vector<float> found(uint64_t{p.rows} * n);
    plans_.forward.layouts.y.load(found_in(y_), found);
    EXPECT_TRUE(check::verify_product(
                    {w_, view(x_values_), view(found), n, type, Type::f32, problem_.partials, roundings},
                    check::Extent::full, 1, 1)
                    .verified)
        << "Y";
    found.assign(uint64_t{p.cols} * n, NAN);
    plans_.dx.layouts.x.load(found_in(dx_), found);
    EXPECT_TRUE(check::verify_product({sparse::transpose(w_), view(dy_values_), view(found), n, type,
                                       Type::f32, problem_.partials, roundings},
                                      check::Extent::full, 1, 1)
                    .verified)
        << "dX";
    const SparseMatrix gradient = weight_in(dw_);
    EXPECT_TRUE(check::verify_sddmm(
                    {gradient, view(x_values_), view(dy_values_), n, type, Type::f32, problem_.partials},
                    check::Extent::full, 1, 1)
                    .verified)
        << "dW";
    EXPECT_EQ(weight_in(momentum_).values, gradient.values);
    const std::vector<float> before = sparse::to_dense(w_);
    const std::vector<float> change = sparse::to_dense(gradient);
    const std::vector<float> after = sparse::to_dense(weight_in(values_));
    for (size_t i = 0; i < after.size(); ++i)
      ASSERT_NEAR(after[i], before[i] - 0.25F * change[i],
                  2 * epsilon_of(type) * (std::abs(before[i]) + std::abs(change[i])))
          << "W, element " << i;
  }

  const engine::Profile& profile() const { return profile_; }

  /// Cycles of the update, from the executable's costs.
  program::PhaseTimes update_cycles() const {
    program::PhaseTimes cycles;
    for (size_t s = 0; s < executable_->set_cycles.size(); ++s)
      if (executable_->program->compute_sets()[s].name == "update") cycles += executable_->set_cycles[s];
    return cycles;
  }

 private:
  void set(const Operand& operand, const std::vector<float>& elements) {
    std::vector<std::byte>& bytes = bytes_[operand.variable];
    bytes = kernels::as_type(elements, problem_.type);
    bindings_.push_back({operand.variable, bytes.data(), operand.cols(), 1});
  }
  std::vector<float> found_in(const Operand& operand) const {
    return kernels::as_floats(bytes_.at(operand.variable), problem_.type);
  }
  SparseMatrix weight_in(const Operand& operand) const {
    SparseMatrix matrix{w_.pattern, {}};
    stored_.load_weight(found_in(operand), matrix);
    return matrix;
  }

  ProductProblem problem_;
  SparseMatrix w_;
  LayerPlans plans_;
  Operand values_, momentum_, dw_, x_, y_, dy_, dx_, metadata_;
  program::StepId step_ = program::kNoStep;
  std::shared_ptr<const compiler::Executable> executable_;
  TileProductProgram stored_;  ///< storage order of the values
  std::optional<DynamicEncoding> encoding_;
  std::vector<float> x_values_;
  std::vector<float> dy_values_;
  std::map<program::VariableId, std::vector<std::byte>> bytes_;
  std::vector<engine::Binding> bindings_;
  std::vector<engine::Binding> metadata_binding_;
  engine::Profile profile_;
};

/// Expects the cycles of a layer's step to equal the sum of its plans' and its update's.
inline void expect_promised(const LayerStep& layer, const machine::Machine& m) {
  program::PhaseTimes promised = layer.update_cycles();
  for (const TileProductPlan* plan : {&layer.plans().forward, &layer.plans().dx, &layer.plans().dw})
    promised += plan->chosen.seconds.scaled(m.clock_hz);
  const program::PhaseTimes& cycles = layer.profile().cycles;
  for (size_t phase = 0; phase < program::kPhases; ++phase)
    EXPECT_NEAR(cycles.at[phase], promised.at[phase], 1e-9 * cycles.total())
        << name_of(static_cast<program::Phase>(phase));
}

}  // namespace tessera::ops
