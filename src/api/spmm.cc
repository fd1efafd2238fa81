#include <tessera/error.h>
#include <tessera/spmm.h>

#include <array>
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
        problem{n, options.x_layout, options.y_layout, options.activation, options.bias, options.transpose},
        plan(plan_for(machine::host(options.threads), options)),
        engine(compile(machine::host(options.threads))) {}

  ops::SpmmPlan plan_for(const machine::Machine& host, const SpmmOptions& options) const {
    ops::update_index(*packed, problem, parallel());
    return ops::plan_spmm(*packed, problem, host, options.force);
  }

  std::shared_ptr<const compiler::Executable> compile(const machine::Machine& host) {
    ops::SpmmProgram built = ops::build_spmm(packed, problem, plan, host);
    variables = built.variables;
    return compiler::compile(std::move(built.program), host);
  }

  std::shared_ptr<ops::PackedWeight> packed;
  uint32_t rows;   ///< of Y
  uint32_t depth;  ///< rows of X
  ops::SpmmProblem problem;
  ops::SpmmPlan plan;
  ops::SpmmVariables variables;
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
  ops::update_index(*c.packed, c.problem, parallel());
  CallBindings bindings = {
      bind_matrix(c.variables.x, a.x, "X", c.depth, c.problem.n, c.problem.x_layout, a.x_leading),
      bind_matrix(c.variables.y, a.y, "Y", c.rows, c.problem.n, c.problem.y_layout, a.y_leading),
      {c.variables.values, values, c.engine.executable().program->variable(c.variables.values).cols, 1},
      {c.variables.scalars, scalars.data(), 2, 1},
      {c.variables.bias, const_cast<float*>(a.bias), c.rows, 1},
  };
  for (const ops::SpmmVariables::Index& index : c.variables.index)
    bindings.push_back({index.variable, const_cast<void*>(index.data), index.row_stride, 1});
  c.engine.run(bindings.all(), {.profile = false});
}

std::string Spmm::plan() const { return ops::to_string(compiled_->plan); }

double Spmm::predicted_seconds() const { return compiled_->plan.chosen.total(); }

}  // namespace tessera
