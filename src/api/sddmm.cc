#include "ops/sparse/host/sddmm.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/sddmm.h>

#include <array>
#include <vector>

#include "api/bind.h"
#include "api/weight.h"
#include "compiler/compile.h"
#include "engine/engine.h"

namespace tessera {

struct Sddmm::Compiled {
  Compiled(const Weight& weight, uint32_t n, const SddmmOptions& options)
      : packed(weight.storage()->packed),
        m(weight.rows()),
        k(weight.cols()),
        problem{n, options.dy_layout, options.x_layout},
        plan(ops::plan_sddmm(*packed, problem, machine::host(options.threads), options.force)),
        engine(compile(machine::host(options.threads))) {}

  std::shared_ptr<const compiler::Executable> compile(const machine::Machine& host) {
    ops::SddmmProgram built = ops::build_sddmm(packed, problem, plan);
    variables = built.variables;
    return compiler::compile(std::move(built.program), host);
  }

  std::shared_ptr<ops::PackedWeight> packed;
  uint32_t m;
  uint32_t k;
  ops::SddmmProblem problem;
  ops::SddmmPlan plan;
  ops::SddmmVariables variables;
  engine::Engine engine;
};

Sddmm::Sddmm(const Weight& weight, uint32_t n, const SddmmOptions& options)
    : compiled_(std::make_unique<Compiled>(weight, n, options)) {}
Sddmm::~Sddmm() = default;
Sddmm::Sddmm(Sddmm&&) noexcept = default;
Sddmm& Sddmm::operator=(Sddmm&&) noexcept = default;

void Sddmm::operator()(const SddmmArguments& a) const {
  const Compiled& c = *compiled_;
  if (a.dw == nullptr && packed_size() != 0)
    throw UsageError(fmt::format("dW is null; it must be an array of {} floats", packed_size()));
  const ops::SddmmVariables& v = c.variables;
  std::array<float, 2> scalars = {a.alpha, a.beta};
  CallBindings bindings = {
      bind_matrix(v.dy, a.dy, "dY", c.m, c.problem.n, c.problem.dy_layout, a.dy_leading),
      bind_matrix(v.x, a.x, "X", c.k, c.problem.n, c.problem.x_layout, a.x_leading),
      {v.dw, a.dw, c.engine.executable().program->variable(v.dw).cols, 1},
      {v.scalars, scalars.data(), 2, 1},
  };
  for (const auto& index : v.index)
    bindings.push_back({index.variable, const_cast<void*>(index.data), index.row_stride, 1});
  ops::clear_free_places(*c.packed, a.dw);
  c.engine.run(bindings.all(), {.profile = false});
}

uint64_t Sddmm::packed_size() const { return ops::packed_elements(*compiled_->packed); }

std::string Sddmm::plan() const { return ops::to_string(compiled_->plan); }

double Sddmm::predicted_seconds() const { return compiled_->plan.chosen.total(); }

}  // namespace tessera
