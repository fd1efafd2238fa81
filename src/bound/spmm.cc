#include <tessera/error.h>
#include <tessera/spmm.h>

#include "bound/product.h"
#include "bound/weight.h"
#include "machine/model/machine.h"

namespace tessera {
namespace {

/// alpha and beta are arguments of each call, so the result may be read.
ops::ProductProblem problem_of(const Weight& weight, uint32_t n, const SpmmOptions& options) {
  ops::ProductProblem problem{.n = n, .type = weight.type()};
  problem.product = options.transpose ? ProductKind::input_gradient : ProductKind::forward;
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
        prepared(weight.storage()->packed, problem_of(weight, n, options), machine::host(options.threads),
                 options.force, layouts_of(options)) {}

  bool has_values;
  bound::BoundProduct prepared;
};

Spmm::Spmm(const Weight& weight, uint32_t n, const SpmmOptions& options)
    : compiled_(std::make_shared<Compiled>(weight, n, options)) {}

void Spmm::operator()(const SpmmArguments& a) const {
  const bound::BoundProduct& product = compiled_->prepared;
  bound::require_bias(product.problem(), a.bias);
  if (!compiled_->has_values && a.values == nullptr)
    throw UsageError("the weight has no values of its own; pass them with each call");
  const bool is_forward = product.problem().product == ProductKind::forward;
  const MatrixView<float> x =
      is_forward ? product.view_of_x(a.x, "X", a.x_leading) : product.view_of_x(a.y, "Y", a.y_leading);
  const MatrixView<float> y =
      is_forward ? product.view_of_y(a.y, "Y", a.y_leading) : product.view_of_y(a.x, "X", a.x_leading);
  product.call({x, y, nullptr, a.bias, a.alpha, a.beta, a.values}, {.profile = false});
}

std::string Spmm::plan() const { return compiled_->prepared.plan(); }

double Spmm::predicted_seconds() const { return compiled_->prepared.predicted_seconds(); }

}  // namespace tessera
