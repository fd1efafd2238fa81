#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/sddmm.h>

#include <array>
#include <vector>

#include "api/bind.h"
#include "api/weight.h"
#include "compiler/compile.h"
#include "engine/engine.h"
#include "ops/sparse/host/spmm.h"

namespace tessera {

struct Sddmm::Compiled {
  Compiled(const Weight& weight, uint32_t n, const SddmmOptions& options)
      : packed(weight.storage()->packed),
        m(weight.rows()),
        k(weight.cols()),
        problem{.n = n,
                .product = ops::Product::sddmm,
                .x_layout = options.x_layout,
                .y_layout = options.dy_layout,
                .uses_beta = true},
        plan(ops::plan_host_product(*packed, problem, machine::host(options.threads), options.force)),
        engine(compile(machine::host(options.threads))) {}

  std::shared_ptr<const compiler::Executable> compile(const machine::Machine& host) {
    ops::HostProgram built = ops::build_host_program(packed, problem, plan, host);
    operands = built.operands;
    index = std::move(built.index);
    return compiler::compile(std::move(built.program), host);
  }

  std::shared_ptr<ops::PackedWeight> packed;
  uint32_t m;
  uint32_t k;
  ops::ProductProblem problem;
  ops::HostPlan plan;
  ops::ProductOperands operands;
  std::vector<ops::WeightIndex::Binding> index;
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
  const ops::ProductOperands& o = c.operands;
  std::array<float, 2> scalars = {a.alpha, a.beta};
  CallBindings bindings = {
      bind_matrix(o.y.variable, a.dy, "dY", c.m, c.problem.n, c.problem.y_layout, a.dy_leading),
      bind_matrix(o.x.variable, a.x, "X", c.k, c.problem.n, c.problem.x_layout, a.x_leading),
      {o.values.variable, a.dw, o.values.cols(), 1},
      {o.scalars->variable, scalars.data(), 2, 1},
  };
  for (const ops::WeightIndex::Binding& array : c.index)
    bindings.push_back({array.variable, const_cast<void*>(array.data), array.row_stride, 1});
  ops::clear_free_places(*c.packed, a.dw);
  c.engine.run(bindings.all(), {.profile = false});
}

uint64_t Sddmm::packed_size() const { return ops::packed_shape(*compiled_->packed).elements(); }

std::string Sddmm::plan() const { return ops::to_string(compiled_->plan); }

double Sddmm::predicted_seconds() const { return compiled_->plan.chosen.total(); }

}  // namespace tessera
