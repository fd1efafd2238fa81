#include <tessera/error.h>
#include <tessera/spmm.h>

#include "machine/model/machine.h"
#include "product/bind.h"
#include "product/product.h"
#include "product/weight.h"

namespace tessera {
namespace {

/// alpha and beta are arguments of each call, so the result may be read.
ops::ProductProblem problem_of(const Weight& weight, uint32_t n, const SpmmOptions& options) {
  ops::ProductProblem problem{.n = n, .type = weight.type()};
  problem.product = options.transpose ? ops::Product::input_gradient : ops::Product::forward;
  problem.activation = options.activation;
  problem.bias = options.bias;
  problem.uses_beta = true;
  return problem;
}

/// The product with the transpose reads what the other writes.
ops::HostLayouts layouts_of(const SpmmOptions& options) {
  if (options.transpose) return {options.y_layout, options.x_layout};
  return {options.x_layout, options.y_layout};
}

}  // namespace

struct Spmm::Compiled {
  Compiled(const Weight& weight, uint32_t n, const SpmmOptions& options)
      : has_values(weight.has_values()),
        rows(options.transpose ? weight.cols() : weight.rows()),
        depth(options.transpose ? weight.rows() : weight.cols()),
        x_layout(options.x_layout),
        y_layout(options.y_layout),
        prepared(weight.storage()->packed, problem_of(weight, n, options), machine::host(options.threads),
                 options.force, layouts_of(options)) {}

  bool has_values;
  uint32_t rows;   ///< of Y
  uint32_t depth;  ///< rows of X
  Layout x_layout;
  Layout y_layout;
  product::Product prepared;
};

Spmm::Spmm(const Weight& weight, uint32_t n, const SpmmOptions& options)
    : compiled_(std::make_unique<Compiled>(weight, n, options)) {}
Spmm::~Spmm() = default;
Spmm::Spmm(Spmm&&) noexcept = default;
Spmm& Spmm::operator=(Spmm&&) noexcept = default;

void Spmm::operator()(const SpmmArguments& a) const {
  const Compiled& c = *compiled_;
  const ops::ProductProblem& problem = c.prepared.problem();
  product::require_bias(problem, a.bias);
  if (!c.has_values && a.values == nullptr)
    throw UsageError("the weight has no values of its own; pass them with each call");
  const MatrixView<float> x = view_of(a.x, "X", c.depth, problem.n, c.x_layout, a.x_leading);
  const MatrixView<float> y = view_of(a.y, "Y", c.rows, problem.n, c.y_layout, a.y_leading);
  const bool is_forward = problem.product == ops::Product::forward;
  c.prepared.call({is_forward ? x : y, is_forward ? y : x, nullptr, a.bias, a.alpha, a.beta, a.values},
                  {.profile = false});
}

std::string Spmm::plan() const { return compiled_->prepared.plan(); }

double Spmm::predicted_seconds() const { return compiled_->prepared.predicted_seconds(); }

}  // namespace tessera
