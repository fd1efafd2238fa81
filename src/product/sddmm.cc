#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/spmm.h>

#include "machine/model/machine.h"
#include "product/bind.h"
#include "product/product.h"
#include "product/weight.h"

namespace tessera {

struct Sddmm::Compiled {
  Compiled(const Weight& weight, uint32_t n, const SddmmOptions& options)
      : packed(weight.storage()->packed),
        prepared(packed, {.n = n, .type = weight.type(), .product = ops::Product::sddmm, .uses_beta = true},
                 machine::host(options.threads), options.force, {options.x_layout, options.dy_layout}) {}

  std::shared_ptr<ops::PackedWeight> packed;
  product::Product prepared;
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
  const ops::ProductProblem& problem = c.prepared.problem();
  const MatrixView<float> dy =
      view_of(a.dy, "dY", c.packed->rows(), problem.n, c.prepared.layouts().y, a.dy_leading);
  const MatrixView<float> x =
      view_of(a.x, "X", c.packed->cols(), problem.n, c.prepared.layouts().x, a.x_leading);
  ops::clear_free_places(*c.packed, a.dw);
  c.prepared.call({x, dy, a.dw, nullptr, a.alpha, a.beta}, {.profile = false});
}

uint64_t Sddmm::packed_size() const { return ops::packed_shape(*compiled_->packed).elements(); }

std::string Sddmm::plan() const { return compiled_->prepared.plan(); }

double Sddmm::predicted_seconds() const { return compiled_->prepared.predicted_seconds(); }

}  // namespace tessera
