#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/spmm.h>

#include "bound/product.h"
#include "bound/weight.h"
#include "machine/model/machine.h"

namespace tessera {

struct Sddmm::Compiled {
  Compiled(const Weight& weight, uint32_t n, const SddmmOptions& options)
      : packed(weight.storage()->packed),
        prepared(packed, {.n = n, .type = weight.type(), .product = ProductKind::sddmm, .uses_beta = true},
                 machine::host(options.threads), options.force, {options.x_layout, options.dy_layout}) {}

  std::shared_ptr<ops::PackedWeight> packed;
  bound::BoundProduct prepared;
};

Sddmm::Sddmm(const Weight& weight, uint32_t n, const SddmmOptions& options)
    : compiled_(std::make_shared<Compiled>(weight, n, options)) {}

void Sddmm::operator()(const SddmmArguments& a) const {
  const Compiled& c = *compiled_;
  if (a.dw == nullptr && packed_size() != 0)
    throw UsageError(fmt::format("dW is null; it must be an array of {} floats", packed_size()));
  const MatrixView<float> dy = c.prepared.view_of_y(a.dy, "dY", a.dy_leading);
  const MatrixView<float> x = c.prepared.view_of_x(a.x, "X", a.x_leading);
  ops::clear_free_places(*c.packed, a.dw);
  c.prepared.call({x, dy, a.dw, nullptr, a.alpha, a.beta}, {.profile = false});
}

uint64_t Sddmm::packed_size() const { return ops::packed_shape(*compiled_->packed).elements(); }

std::string Sddmm::plan() const { return compiled_->prepared.plan(); }

double Sddmm::predicted_seconds() const { return compiled_->prepared.predicted_seconds(); }

}  // namespace tessera
