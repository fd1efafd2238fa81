#include <memory>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/common/element.h"
#include "ops/map/elementwise.h"
#include "ops/map/gather.h"
#include "ops/map/reduce.h"
#include "ops/structured/tiles/map_builder.h"
#include "ops/structured/tiles/structured.h"

namespace tessera::ops {
namespace {

class FastfoodBuilder : public TileMapBuilder {
 public:
  FastfoodBuilder(const Builder& builder, const StructuredProblem& problem,
                  const TileChainPartition& partition, const StructuredOperands& operands)
      : TileMapBuilder(builder, problem, partition, operands) {
    for (const PlannedPass& planned : passes_) add_hadamard_weights(planned.pass, planned.forward);
    program::CopySet columns{"parameters to columns", {}};
    for (const Operand& parameter : o_.parameters) {
      parameters_.push_back(column("parameter.column"));
      columns.groups.push_back(reshaped(parameter, parameters_.back()));
    }
    steps_.push_back(b_.copy(std::move(columns)));
  }

 private:
  enum Parameter : size_t { s, g, b };
  uint32_t features() const { return s_.stacks() * s_.size(); }
  Operand stacked(const char* name) const { return temporary(name, features()); }
  Operand stacked_x() { return padded(as_features(o_.x, true), s_.stacks(), features()); }

  /// What the forward product computes on its way.
  struct Forward {
    Operand permuted;  ///< Π·H·B·x
    Operand mixed;     ///< H·G·Π·H·B·x
  };
  Forward apply(const Operand& x) {
    const Operand permuted = permute(hadamard(scale(x, b)), s_.permutation, false);
    return {permuted, hadamard(scale(permuted, g))};
  }

  void forward() override {
    const Operand all = scale(apply(stacked_x()).mixed, s);
    b_.send(rows_of(all, 0, s_.outputs), *result_, steps_);
  }

  void gradients() override {
    const Operand x = stacked_x(), dy = padded(as_features(o_.y, true), 1, features());
    std::optional<Forward> values;
    if (p_.parameter_gradients) values = apply(x);
    if (values) add_parameter_gradient(s, dy, values->mixed);
    const Operand dg = hadamard(scale(dy, s));
    if (values) add_parameter_gradient(g, dg, values->permuted);
    const Operand db = hadamard(permute(scale(dg, g), s_.permutation, true));
    if (values) add_parameter_gradient(b, db, x);
    if (result_) add_stacks(scale(db, b), s_.stacks(), *result_);
  }

  Operand scale(const Operand& values, Parameter by) {
    const Operand to = stacked("scaled");
    steps_.push_back(add(b_,
                         BinaryProblem{.op = kernels::Binary::mul,
                                       .type = p_.type,
                                       .rows = features(),
                                       .cols = p_.batch,
                                       .b = Broadcast::column},
                         {values, parameters_[by], to}));
    return to;
  }

  Operand permute(const Operand& values, const std::vector<uint32_t>& permutation, bool inverse) {
    GatherProblem gather{p_.type, features(), p_.batch, std::vector<uint32_t>(features())};
    for (uint32_t i = 0; i < features(); ++i) {
      const uint32_t from = i / s_.size() * s_.size() + permutation[i];
      inverse ? gather.rows[from] = i : gather.rows[i] = from;
    }
    const Operand to = stacked("permuted");
    const std::vector<Operand> operands = {values, to};
    steps_.push_back(ops::build(b_, gather, plan(b_, gather, operands), operands));
    return to;
  }

  Operand hadamard(const Operand& values) {
    return run_forward(values, passes_.size(), stacked("transformed")).back().operand;
  }

  Operand weight(size_t i, const TilePassProblem&) override { return hadamard_weights_[i]; }

  /// 2 × 2 Hadamard matrices, normalised.
  void add_hadamard_weights(const TilePass& pass, const TilePassPartition& partition) {
    const uint32_t count = pass.all_weights();
    const auto contents = std::shared_ptr<std::byte[]>(new std::byte[count * size_of(p_.type)]);
    for (uint32_t i = 0; i < count; ++i)
      kernels::store_number(p_.type, contents.get() + i * size_of(p_.type),
                            i % 4 == 3 ? -std::numbers::sqrt2 / 2 : std::numbers::sqrt2 / 2);
    hadamard_weights_.push_back(b_.constant("hadamard", p_.type, 1, count, {contents, contents.get()},
                                            pass_weight_mapping(pass_problem(p_, pass), partition)));
  }

  Operand column(const char* name) const { return b_.temporary(name, p_.type, features(), 1); }

  /// A copy of a parameter, which has a row for each stack, as a column; or of a column as a parameter.
  static program::CopyGroup reshaped(const Operand& from, const Operand& to) {
    const auto layout = [](const Operand& operand) {
      return matrix_layout(operand.rows(), operand.cols(), {});
    };
    return conversion(from, layout(from), to, layout(to)).groups.front();
  }

  /// The gradient of a diagonal: the sum of dy ∘ x over the samples.
  void add_parameter_gradient(Parameter parameter, const Operand& dy, const Operand& x) {
    const Operand products = stacked("products"), sums = column("sums");
    const BinaryProblem multiply{
        .op = kernels::Binary::mul, .type = p_.type, .rows = features(), .cols = p_.batch};
    steps_.push_back(add(b_, multiply, {dy, x, products}));
    const AxisReduceProblem sum{
        .rows = features(), .cols = p_.batch, .over_rows = false, .from = p_.type, .to = p_.type};
    steps_.push_back(add(b_, sum, {products, sums}));
    steps_.push_back(b_.copy({"return gradient", {reshaped(sums, o_.parameter_gradients[parameter])}}));
  }

  const Fastfood& s_ = std::get<Fastfood>(p_.structure);
  std::vector<Operand> parameters_, hadamard_weights_;
};

}  // namespace

StructuredPlan plan_tile_fastfood(const StructuredProblem& problem, const machine::Machine& machine) {
  const auto& fastfood = std::get<Fastfood>(problem.structure);
  const StructuredProblem hadamard{
      .structure = Butterfly{.inputs = fastfood.size(), .outputs = fastfood.size()},
      .batch = problem.batch,
      .type = problem.type,
      .transposed = true};
  auto partition = std::get<TileChainPartition>(plan_tile_chain(hadamard, machine).partition);
  for (PlannedPass& planned : partition.passes) {
    planned.pass =
        TilePass::butterfly(fastfood.stacks() * fastfood.size(), planned.pass.d, planned.pass.levels);
    planned.forward = plan_tile_pass(pass_problem(problem, planned.pass), machine).partition;
  }
  return fastest_on_tiles(problem, {partition}, machine);
}

program::StepId build_tile_fastfood(const Builder& builder, const StructuredProblem& problem,
                                    const TileChainPartition& partition, const StructuredOperands& operands) {
  return FastfoodBuilder(builder, problem, partition, operands).build();
}

}  // namespace tessera::ops
