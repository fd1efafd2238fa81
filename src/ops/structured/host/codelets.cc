#include "ops/structured/host/codelets.h"

#include "kernels/host/butterfly/codelet.h"
#include "kernels/host/circulant/codelet.h"
#include "kernels/host/fastfood/codelet.h"
#include "kernels/host/kronecker/codelet.h"

namespace tessera::ops {
namespace {

StructuredCodelet codelet_of(const Butterfly& s, const StructuredProblem& p, uint32_t samples) {
  const kernels::ButterflyShape shape{.transposed = p.transposed,
                                      .stacks = s.stacks(),
                                      .blocks = s.nblocks,
                                      .log_n = s.levels(),
                                      .tied = s.tied,
                                      .complex = s.complex,
                                      .decreasing = s.decreasing};
  const std::vector<int64_t> params = {p.transposed, shape.stacks,  shape.blocks,    shape.log_n,
                                       shape.tied,   shape.complex, shape.decreasing};
  if (p.gradients)
    return {&kernels::butterfly_gradients_codelet,
            params,
            {},
            kernels::butterfly_gradients_scratch(shape, samples)};
  return {
      &kernels::butterfly_forward_codelet, params, {}, kernels::butterfly_forward_scratch(shape, samples)};
}

StructuredCodelet codelet_of(const Kronecker& s, const StructuredProblem& p, uint32_t) {
  const kernels::KroneckerFactor factor{s.a, s.b, s.c, s.d};
  const std::vector<int64_t> params = {p.transposed, s.a, s.b, s.c, s.d};
  if (p.gradients)
    return {&kernels::kronecker_gradients_codelet, params, {}, kernels::kronecker_gradients_scratch(factor)};
  return {&kernels::kronecker_forward_codelet, params, {}, kernels::kronecker_forward_scratch(factor)};
}

StructuredCodelet circulant_codelet(const kernels::CirculantShape& shape, const StructuredProblem& p) {
  const std::vector<int64_t> params = {p.transposed, shape.toeplitz};
  if (p.gradients)
    return {&kernels::circulant_gradients_codelet, params, {}, kernels::circulant_gradients_scratch(shape)};
  return {&kernels::circulant_forward_codelet, params, {}, kernels::circulant_forward_scratch(shape)};
}

StructuredCodelet codelet_of(const Circulant& s, const StructuredProblem& p, uint32_t) {
  const auto [inputs, outputs] = features_of(s);
  return circulant_codelet({inputs, outputs, s.size, false}, p);
}

StructuredCodelet codelet_of(const Toeplitz& s, const StructuredProblem& p, uint32_t) {
  return circulant_codelet({s.inputs, s.outputs, s.outputs + s.inputs - 1, true}, p);
}

StructuredCodelet codelet_of(const Fastfood& s, const StructuredProblem& p, uint32_t) {
  const std::vector<StructuredConstant> constants = {{&s.permutation, s.stacks(), s.size()}};
  if (p.gradients)
    return {&kernels::fastfood_gradients_codelet,
            {p.transposed},
            constants,
            kernels::fastfood_gradients_scratch(s.size())};
  return {&kernels::fastfood_forward_codelet,
          {p.transposed},
          constants,
          kernels::fastfood_forward_scratch(s.size())};
}

}  // namespace

StructuredCodelet codelet_of(const StructuredProblem& problem, uint32_t samples) {
  return std::visit([&](const auto& s) { return codelet_of(s, problem, samples); }, problem.structure);
}

}  // namespace tessera::ops
