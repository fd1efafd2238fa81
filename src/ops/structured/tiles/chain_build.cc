#include <fmt/format.h>

#include <algorithm>

#include "ops/map/reduce.h"
#include "ops/structured/tiles/chain_weights.h"
#include "ops/structured/tiles/samples.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::StepId;

class ChainBuilder {
 public:
  ChainBuilder(const Builder& builder, const StructuredProblem& problem, const TileChainPartition& partition,
               const StructuredOperands& operands)
      : b_(builder), p_(problem), passes_(partition.passes), o_(operands) {}

  StepId build() {
    x_ = samples_.as_features(o_.x, inputs_, true);
    y_ = samples_.as_features(o_.y, outputs_, p_.gradients);
    if (o_.dx) dx_ = samples_.as_features(*o_.dx, inputs_, false);
    p_.gradients ? gradients() : forward();
    if (!p_.gradients) samples_.return_samples(y_, o_.y);
    if (o_.dx) samples_.return_samples(*dx_, *o_.dx);
    return b_.sequence(std::move(steps_));
  }

 private:
  const TilePass& first() const { return passes_.front().pass; }
  const TilePass& last() const { return passes_.back().pass; }

  TilePassProblem problem_of(size_t i, TilePassProduct product) const {
    return {passes_[i].pass, p_.batch, {p_.type, p_.type}, product};
  }
  Operand features(std::string name, uint32_t rows, std::vector<program::MappedBox> mapping = {}) const {
    return samples_.temporary(std::move(name), rows, std::move(mapping));
  }
  uint32_t stacks() const { return butterfly_ != nullptr ? butterfly_->stacks() : 1; }

  void forward() {
    const FeatureOperand x{samples_.padded(x_, stacks(), first().inputs()), {}};
    const bool is_whole = outputs_ == last().outputs();
    const Operand y = is_whole ? y_ : features("y.whole", last().outputs());
    run_forward(x, passes_.size(), FeatureOperand{y, {}});
    if (!is_whole) b_.send(TileSamples::rows_of(y, 0, outputs_), y_, steps_);
  }

  void gradients() {
    const size_t count = passes_.size();
    FeatureOperand dy{samples_.padded(y_, 1, last().outputs()), {}};
    std::vector<FeatureOperand> inputs = {{samples_.padded(x_, stacks(), first().inputs()), {}}};
    if (needs_inputs()) run_forward(inputs[0], count - 1, {}, &inputs);
    for (size_t i = count; i-- > 0;) {
      const FeatureOperand dx = i > 0 ? input_gradient_of(i) : FeatureOperand{whole_dx(), {}};
      differentiate(i, inputs, dy, dx);
      dy = dx;
    }
    if (dx_ && dy.operand != *dx_) samples_.add_stacks(dy.operand, stacks(), *dx_);
  }

  bool has_parameter_gradient() const { return !o_.parameter_gradients.empty(); }
  /// Butterflies' gradients are computed together.
  bool needs_inputs() const { return butterfly_ != nullptr || has_parameter_gradient(); }

  /// Runs the first passes; the result of the last goes to `y`, those of others to temporaries, which
  /// `stashed` gets.
  void run_forward(FeatureOperand x, size_t count, const std::optional<FeatureOperand>& y,
                   std::vector<FeatureOperand>* stashed = nullptr) {
    for (size_t i = 0; i < count; ++i) {
      const TilePassProblem problem = problem_of(i, TilePassProduct::forward);
      const FeatureOperand to =
          y && i + 1 == count ? *y
                              : FeatureOperand{features(fmt::format("y{}", i), passes_[i].pass.outputs(),
                                                        pass_result_mapping(problem, passes_[i].forward)),
                                               FeatureOrder::outputs_of(passes_[i].pass)};
      steps_.push_back(build_tile_pass(b_, problem, passes_[i].forward,
                                       {.weight = weights(i, problem, passes_[i].forward), .x = x, .y = to}));
      if (stashed != nullptr) stashed->push_back(to);
      x = to;
    }
  }

  FeatureOperand input_gradient_of(size_t i) const {
    const TilePass& pass = passes_[i].pass;
    const TilePassProduct product =
        butterfly_ != nullptr ? TilePassProduct::gradients : TilePassProduct::input_gradient;
    return {features(fmt::format("dy{}", i - 1), pass.inputs(),
                     pass_result_mapping(problem_of(i, product), passes_[i].input_gradient)),
            FeatureOrder::inputs_of(pass)};
  }

  Operand whole_dx() const {
    if (dx_ && inputs_ == first().inputs()) return *dx_;
    return features("dx.whole", first().inputs());
  }

  void differentiate(size_t i, const std::vector<FeatureOperand>& inputs, const FeatureOperand& dy,
                     const FeatureOperand& dx) {
    if (butterfly_ != nullptr) {
      const TilePassProblem problem = problem_of(i, TilePassProduct::gradients);
      const TilePassPartition& partition = passes_[i].input_gradient;
      const Operand dweight = weight_temporary("dweight", i, problem, partition);
      steps_.push_back(build_tile_pass(
          b_, problem, partition,
          {.weight = weights(i, problem, partition), .x = inputs[i], .y = dy, .dx = dx, .dweight = dweight}));
      return return_weights(i, dweight);
    }
    if (i > 0 || dx_) {
      const TilePassProblem problem = problem_of(i, TilePassProduct::input_gradient);
      const TilePassPartition& partition = passes_[i].input_gradient;
      steps_.push_back(build_tile_pass(b_, problem, partition,
                                       {.weight = weights(i, problem, partition), .y = dy, .dx = dx}));
    }
    if (has_parameter_gradient()) {
      const TilePassProblem problem = problem_of(i, TilePassProduct::weight_gradient);
      const TilePassPartition& partition = passes_[i].weight_gradient;
      const Operand dweight = weight_temporary("dweight", i, problem, partition);
      steps_.push_back(
          build_tile_pass(b_, problem, partition, {.x = inputs[i], .y = dy, .dweight = dweight}));
      return_weights(i, dweight);
    }
  }

  Operand weight_temporary(std::string_view name, size_t i, const TilePassProblem& problem,
                           const TilePassPartition& partition) const {
    const bool is_gradient = name != "weight";
    return b_.temporary(fmt::format("{}{}", name, i), p_.type, 1, passes_[i].pass.all_weights(),
                        pass_weight_mapping(problem, partition),
                        is_gradient ? program::Purpose::gradient : program::Purpose::parameter);
  }

  /// The parameter's elements in the order and on the tiles of a pass.
  Operand weights(size_t i, const TilePassProblem& problem, const TilePassPartition& partition) {
    const Operand to = weight_temporary("weight", i, problem, partition);
    copy_weights(i, to, o_.parameters[0], false);
    return to;
  }

  void return_weights(size_t i, const Operand& dweight) {
    if (!has_parameter_gradient()) return;
    if (butterfly_ != nullptr && butterfly_->tied) return add_tied(i, dweight);
    copy_weights(i, dweight, o_.parameter_gradients[0], true);
  }

  /// Adds the gradients of weights that are one element of the parameter.
  void add_tied(size_t i, const Operand& dweight) {
    for (uint32_t level = 0; level < passes_[i].pass.levels; ++level) {
      const TiedLevel tied = tied_level(*butterfly_, passes_[i], level);
      const uint32_t matrix = pair_matrix(*butterfly_), cols = tied.stride * matrix;
      const Operand copies = b_.temporary("tied", p_.type, butterfly_->stacks() * tied.copies, cols, {},
                                          program::Purpose::gradient);
      std::vector<Box> from, to;
      for (const WeightRun& run : tied.runs) {
        from.push_back({0, 1, run.weight, run.count});
        to.push_back({run.row, 1, run.col, run.count});
      }
      copy(dweight, std::move(from), copies, std::move(to), "gather tied weights");
      for (uint32_t s = 0; s < butterfly_->stacks(); ++s) {
        const Operand of_stack{copies.variable, {s * tied.copies, tied.copies, 0, cols}};
        const Operand sum = o_.parameter_gradients[0].part({s, 1, (tied.stride - 1) * matrix, cols});
        steps_.push_back(
            add(b_, ReduceProblem{.partials = tied.copies, .elements = cols, .from = p_.type, .to = p_.type},
                {of_stack, sum}));
      }
    }
  }

  /// Copies between the weights of a pass and a parameter or its gradient.
  void copy_weights(size_t i, const Operand& of_pass, const Operand& parameter, bool back) {
    std::vector<Box> weights, elements;
    for (const WeightRun& run : weight_runs(p_.structure, passes_[i])) {
      weights.push_back({0, 1, run.weight, run.count});
      elements.push_back({run.row, 1, run.col, run.count});
    }
    if (back)
      copy(of_pass, std::move(weights), parameter, std::move(elements), "return weights");
    else
      copy(parameter, std::move(elements), of_pass, std::move(weights), "bring weights");
  }

  void copy(const Operand& from, std::vector<Box> sources, const Operand& to, std::vector<Box> targets,
            const char* name) {
    steps_.push_back(b_.copy({name, {copy_boxes(from, std::move(sources), to, std::move(targets))}}));
  }

  const Builder& b_;
  const StructuredProblem& p_;
  const std::vector<PlannedPass>& passes_;
  const StructuredOperands& o_;
  const Butterfly* const butterfly_ = std::get_if<Butterfly>(&p_.structure);  ///< null: a factor
  const uint32_t inputs_ = features_of(p_.structure).inputs, outputs_ = features_of(p_.structure).outputs;
  Operand x_, y_;  // with a feature in each row
  std::optional<Operand> dx_;
  std::vector<StepId> steps_;
  TileSamples samples_{b_, p_.type, p_.batch, !p_.transposed, steps_};
};

}  // namespace

std::vector<program::MappedBox> chain_parameter_mapping(const StructuredProblem& problem,
                                                        const TileChainPartition& partition) {
  std::vector<program::MappedBox> mapping;
  const auto* butterfly = std::get_if<Butterfly>(&problem.structure);
  const bool uses_once =
      std::holds_alternative<Kronecker>(problem.structure) || (butterfly && !butterfly->tied);
  if (!uses_once) return mapping;
  for (const PlannedPass& planned : partition.passes) {
    std::vector<program::MappedBox> owners =
        pass_weight_mapping({planned.pass, problem.batch, {problem.type, problem.type}}, planned.forward);
    std::ranges::sort(owners, {}, [](const program::MappedBox& m) { return m.box.col; });
    auto owner = owners.begin();
    for (WeightRun run : weight_runs(problem.structure, planned))
      while (run.count > 0) {
        while (owner->box.col_end() <= run.weight) ++owner;
        const auto count =
            std::min<uint32_t>(run.count, static_cast<uint32_t>(owner->box.col_end()) - run.weight);
        mapping.push_back({{run.row, 1, run.col, count}, owner->tile});
        run.weight += count;
        run.col += count;
        run.count -= count;
      }
  }
  return mapping;
}

StepId build_tile_chain(const Builder& builder, const StructuredProblem& problem,
                        const TileChainPartition& partition, const StructuredOperands& operands) {
  return ChainBuilder(builder, problem, partition, operands).build();
}

}  // namespace tessera::ops
