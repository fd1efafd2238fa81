#include "lower/weight.h"

#include <tessera/error.h>

#include "lower/weights/host_dense.h"
#include "lower/weights/host_sparse.h"
#include "lower/weights/tiled.h"

namespace tessera::graph {

void LinearWeight::set_pattern(const Pattern&) {
  throw UsageError("the pattern of this weight is fixed: make it a parameter with a capacity");
}

namespace {

[[noreturn]] void reject_conversion() {
  throw UsageError("a sparse weight can only be combined with its gradient and state, and with scalars");
}

}  // namespace

ops::Operand LinearWeight::matrix_of(const ops::Builder&, const ops::Operand&, const ops::OperandLayout&,
                                     std::vector<program::StepId>&) const {
  reject_conversion();
}

ops::Operand LinearWeight::stored_of(const ops::Builder&, const ops::Operand&, const ops::OperandLayout&,
                                     std::vector<program::StepId>&) const {
  reject_conversion();
}

std::unique_ptr<LinearWeight> make_weight(const ops::Builder& builder, const TensorType& type,
                                          const std::string& name, uint32_t n, bool forward_only) {
  if (!builder.is_host()) return std::make_unique<TiledWeight>(builder, type, name, n, forward_only);
  if (!type.pattern) return std::make_unique<HostDenseWeight>(type);
  return std::make_unique<HostSparseWeight>(type, name);
}

}  // namespace tessera::graph
