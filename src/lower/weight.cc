#include "lower/weight.h"

#include <tessera/error.h>

#include "lower/weights/host_dense.h"
#include "lower/weights/host_sparse.h"
#include "lower/weights/tiled.h"

namespace tessera::graph {

void LinearWeight::set_pattern(const Pattern&) {
  throw UsageError("the pattern of this weight is fixed: make it a parameter with a capacity");
}

program::StepId LinearWeight::add_taking(const ops::Builder&, const RowsCall&) {
  throw Error("rows can be taken of sparse weights on hosts");
}

program::StepId LinearWeight::add_summing(const ops::Builder&, const RowsCall&) {
  throw Error("rows can be summed to sparse weights on hosts");
}

std::vector<float> LinearWeight::load(std::span<const float> stored) const {
  const ops::OperandLayout matrix = layout().row_by_row();
  std::vector<float> values(uint64_t{matrix.rows} * matrix.cols);
  layout().load(stored, values);
  return values;
}

std::unique_ptr<LinearWeight> make_weight(const ops::Builder& builder, const TensorType& type,
                                          const std::string& name, const WeightUse& use) {
  if (!builder.is_host()) return std::make_unique<TiledWeight>(builder, type, name, use);
  if (!type.pattern) return std::make_unique<HostDenseWeight>(type);
  return std::make_unique<HostSparseWeight>(type, name);
}

}  // namespace tessera::graph
