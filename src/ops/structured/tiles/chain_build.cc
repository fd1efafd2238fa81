#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/map/reduce.h"
#include "ops/structured/tiles/chain_weights.h"
#include "ops/structured/tiles/map_builder.h"
#include "ops/structured/tiles/structured.h"

namespace tessera::ops {
namespace {

using program::Box;

class ChainBuilder : public TileMapBuilder {
 public:
  ChainBuilder(const Builder& builder, const StructuredProblem& problem, const TileChainPartition& partition,
               const StructuredOperands& operands)
      : TileMapBuilder(builder, problem, partition, operands) {}

 private:
  const TilePass& first() const { return passes_.front().pass; }
  const TilePass& last() const { return passes_.back().pass; }
  uint32_t stacks() const { return butterfly_ != nullptr ? butterfly_->stacks() : 1; }

  void forward() override {
    const Operand x = padded(as_features(o_.x, true), stacks(), first().inputs());
    const bool is_whole = result_->rows() == last().outputs();
    const Operand y = is_whole ? *result_ : temporary("y.whole", last().outputs());
    run_forward(x, passes_.size(), y);
    if (!is_whole) b_.send(rows_of(y, 0, result_->rows()), *result_, steps_);
  }

  void gradients() override {
    const Operand x = as_features(o_.x, true), y = as_features(o_.y, true);
    FeatureOperand dy{padded(y, 1, last().outputs()), {}};
    const std::vector<FeatureOperand> inputs =
        run_forward(padded(x, stacks(), first().inputs()), passes_.size() - 1, {});
    for (size_t i = passes_.size(); i-- > 0;) {
      const FeatureOperand dx = i > 0 ? input_gradient_of(i) : FeatureOperand{whole_dx(), {}};
      differentiate(i, inputs[i], dy, dx);
      dy = dx;
    }
    if (result_ && dy.operand != *result_) add_stacks(dy.operand, stacks(), *result_);
  }

  bool has_parameter_gradient() const { return !o_.parameter_gradients.empty(); }

  FeatureOperand input_gradient_of(size_t i) const {
    const TilePass& pass = passes_[i].pass;
    const TilePassProduct product =
        butterfly_ != nullptr ? TilePassProduct::gradients : TilePassProduct::input_gradient;
    return {temporary(fmt::format("dy{}", i - 1), pass.inputs(),
                      pass_result_mapping(problem_of(i, product), passes_[i].input_gradient)),
            FeatureOrder::inputs_of(pass)};
  }

  Operand whole_dx() const {
    if (result_ && result_->rows() == first().inputs()) return *result_;
    return temporary("dx.whole", first().inputs());
  }

  void differentiate(size_t i, const FeatureOperand& x, const FeatureOperand& dy, const FeatureOperand& dx) {
    if (butterfly_ != nullptr) return run(i, TilePassProduct::gradients, {.x = x, .y = dy, .dx = dx});
    if (i > 0 || result_) run(i, TilePassProduct::input_gradient, {.y = dy, .dx = dx});
    if (has_parameter_gradient()) run(i, TilePassProduct::weight_gradient, {.x = x, .y = dy});
  }

  void run(size_t i, TilePassProduct product, TilePassOperands operands) {
    const TilePassProblem problem = problem_of(i, product);
    if (problem.gives_dweight())
      operands.dweight = in_order_of_pass("dweight", i, problem, program::Purpose::gradient);
    if (problem.reads_weight()) operands.weight = weight(i, problem);
    steps_.push_back(build_tile_pass(b_, problem, passes_[i].partition(product), operands));
    if (operands.dweight && has_parameter_gradient()) return_gradient(i, *operands.dweight);
  }

  /// A temporary for the parameter's elements in the order and on the tiles of a pass.
  Operand in_order_of_pass(std::string_view name, size_t i, const TilePassProblem& problem,
                           program::Purpose purpose) const {
    return b_.temporary(fmt::format("{}{}", name, i), p_.type, 1, problem.pass.all_weights(),
                        pass_weight_mapping(problem, passes_[i].partition(problem.product)), purpose);
  }

  Operand weight(size_t i, const TilePassProblem& problem) override {
    const Operand to = in_order_of_pass("weight", i, problem, program::Purpose::parameter);
    copy_weights(to, o_.parameters[0], weight_runs(p_.structure, passes_[i]), false);
    return to;
  }

  void return_gradient(size_t i, const Operand& dweight) {
    if (butterfly_ != nullptr && butterfly_->tied) return add_tied(i, dweight);
    copy_weights(dweight, o_.parameter_gradients[0], weight_runs(p_.structure, passes_[i]), true);
  }

  /// Adds the gradients of weights that are one element of the parameter.
  void add_tied(size_t i, const Operand& dweight) {
    for (uint32_t level = 0; level < passes_[i].pass.levels; ++level) {
      const TiedLevel tied = tied_level(*butterfly_, passes_[i], level);
      const uint32_t matrix = pair_matrix(*butterfly_), cols = tied.stride * matrix;
      const Operand copies = b_.temporary("tied", p_.type, butterfly_->stacks() * tied.copies, cols, {},
                                          program::Purpose::gradient);
      copy_weights(dweight, copies, tied.runs, true);
      for (uint32_t s = 0; s < butterfly_->stacks(); ++s) {
        const Operand of_stack{copies.variable, {s * tied.copies, tied.copies, 0, cols}};
        const Operand sum = o_.parameter_gradients[0].part({s, 1, (tied.stride - 1) * matrix, cols});
        steps_.push_back(
            add(b_, ReduceProblem{.partials = tied.copies, .elements = cols, .from = p_.type, .to = p_.type},
                {of_stack, sum}));
      }
    }
  }

  /// Copies between the weights of a pass and a matrix: the parameter, or gradients.
  void copy_weights(const Operand& of_pass, const Operand& matrix, const std::vector<WeightRun>& runs,
                    bool back) {
    std::vector<Box> weights, elements;
    for (const WeightRun& run : runs) {
      weights.push_back({0, 1, run.weight, run.count});
      elements.push_back({run.row, 1, run.col, run.count});
    }
    program::CopySet set{back ? "return weights" : "bring weights", {}};
    set.groups.push_back(back ? copy_boxes(of_pass, std::move(weights), matrix, std::move(elements))
                              : copy_boxes(matrix, std::move(elements), of_pass, std::move(weights)));
    steps_.push_back(b_.copy(std::move(set)));
  }

  const Butterfly* const butterfly_ = std::get_if<Butterfly>(&p_.structure);  ///< null: a factor
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
        pass_weight_mapping(pass_problem(problem, planned.pass), planned.forward);
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

program::StepId build_tile_chain(const Builder& builder, const StructuredProblem& problem,
                                 const TileChainPartition& partition, const StructuredOperands& operands) {
  return ChainBuilder(builder, problem, partition, operands).build();
}

}  // namespace tessera::ops
