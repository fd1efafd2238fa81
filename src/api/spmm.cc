#include "ops/sparse/host/spmm.h"

#include <tessera/error.h>
#include <tessera/spmm.h>

#include <array>
#include <utility>
#include <vector>

#include "api/bind.h"
#include "api/weight.h"
#include "compiler/compile.h"
#include "engine/engine.h"

namespace tessera {

struct Spmm::Compiled {
  Compiled(const Weight& weight, uint32_t n, const SpmmOptions& options)
      : packed(weight.storage()->packed),
        rows(options.transpose ? weight.cols() : weight.rows()),
        depth(options.transpose ? weight.rows() : weight.cols()),
        problem(problem_of(n, options)),
        plan(plan_for(machine::host(options.threads), options)),
        engine(compile(machine::host(options.threads))) {}

  /// alpha and beta are arguments of each call, so Y may be read.
  static ops::ProductProblem problem_of(uint32_t n, const SpmmOptions& options) {
    ops::ProductProblem problem{.n = n, .activation = options.activation, .bias = options.bias};
    problem.product = options.transpose ? ops::Product::input_gradient : ops::Product::forward;
    problem.x_layout = options.transpose ? options.y_layout : options.x_layout;
    problem.y_layout = options.transpose ? options.x_layout : options.y_layout;
    problem.uses_beta = true;
    return problem;
  }

  ops::HostPlan plan_for(const machine::Machine& host, const SpmmOptions& options) const {
    ops::update_index(*packed, problem.product, parallel());
    return ops::plan_host_product(*packed, problem, host, options.force);
  }

  std::shared_ptr<const compiler::Executable> compile(const machine::Machine& host) {
    ops::HostProgram built = ops::build_host_program(packed, problem, plan, host);
    operands = built.operands;
    if (is_transposed()) std::swap(operands.x, operands.y);
    index = std::move(built.index);
    return compiler::compile(std::move(built.program), host);
  }

  bool is_transposed() const { return problem.product == ops::Product::input_gradient; }
  Layout read_layout() const { return is_transposed() ? problem.y_layout : problem.x_layout; }
  Layout written_layout() const { return is_transposed() ? problem.x_layout : problem.y_layout; }

  std::shared_ptr<ops::PackedWeight> packed;
  uint32_t rows;   ///< of Y
  uint32_t depth;  ///< rows of X
  ops::ProductProblem problem;
  ops::HostPlan plan;
  ops::ProductOperands operands;  ///< x is the dense factor, y the result
  std::vector<ops::WeightIndex::Binding> index;
  engine::Engine engine;
};

Spmm::Spmm(const Weight& weight, uint32_t n, const SpmmOptions& options)
    : compiled_(std::make_unique<Compiled>(weight, n, options)) {}
Spmm::~Spmm() = default;
Spmm::Spmm(Spmm&&) noexcept = default;
Spmm& Spmm::operator=(Spmm&&) noexcept = default;

void Spmm::operator()(const SpmmArguments& a) const {
  const Compiled& c = *compiled_;
  if (c.problem.bias != (a.bias != nullptr))
    throw UsageError(c.problem.bias ? "the product was planned with a bias; pass one"
                                    : "the product was planned without a bias; set SpmmOptions::bias");
  std::array<float, 2> scalars = {a.alpha, a.beta};
  void* values = const_cast<std::byte*>(c.packed->values());
  ops::update_index(*c.packed, c.problem.product, parallel());
  const ops::ProductOperands& o = c.operands;
  CallBindings bindings = {
      bind_matrix(o.x.variable, a.x, "X", c.depth, c.problem.n, c.read_layout(), a.x_leading),
      bind_matrix(o.y.variable, a.y, "Y", c.rows, c.problem.n, c.written_layout(), a.y_leading),
      {o.values.variable, values, o.values.cols(), 1},
      {o.scalars->variable, scalars.data(), 2, 1},
  };
  if (o.bias) bindings.push_back({o.bias->variable, const_cast<float*>(a.bias), c.rows, 1});
  for (const ops::WeightIndex::Binding& array : c.index)
    bindings.push_back({array.variable, const_cast<void*>(array.data), array.row_stride, 1});
  c.engine.run(bindings.all(), {.profile = false});
}

std::string Spmm::plan() const { return ops::to_string(compiled_->plan); }

double Spmm::predicted_seconds() const { return compiled_->plan.chosen.total(); }

}  // namespace tessera
