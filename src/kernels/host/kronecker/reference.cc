// Products with Kronecker-sparse factors in plain loops.
#include "kernels/common/element.h"
#include "kernels/common/samples.h"
#include "kernels/host/kronecker/codelet.h"
#include "kernels/host/kronecker/layout.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Vertex;

// Calls visit(group number, group).
template <class Visit>
void each_group(const KroneckerFactor& f, uint32_t inputs, uint32_t outputs, const Visit& visit) {
  for (uint32_t g = 0; g < f.groups(); ++g) visit(g, KroneckerGroup(f, g, inputs, outputs));
}

float weight_at(const FieldView& weight, const KroneckerFactor& f, uint32_t g, uint32_t r, uint32_t q) {
  return f32_at(weight, g, r * f.c + q);
}

void input_gradient(const Vertex& v, const KroneckerFactor& f, const Samples& dx, const Samples& dy) {
  const FieldView& weight = v.fields[kronecker_gradients_field::weight];
  each_group(f, dx.features, dy.features, [&](uint32_t g, const KroneckerGroup& group) {
    for (uint32_t j = 0; j < dx.count; ++j)
      for (uint32_t q = 0; q < group.in.count; ++q) {
        float sum = 0;
        for (uint32_t r = 0; r < group.out.count; ++r)
          sum += weight_at(weight, f, g, r, q) * *dy.pointer_to(j, group.out.first + r * f.d);
        *dx.pointer_to(j, group.in.first + q * f.d) = sum;
      }
  });
}

void weight_gradient(const FieldView& dweight, const KroneckerFactor& f, const Samples& x,
                     const Samples& dy) {
  each_group(f, x.features, dy.features, [&](uint32_t g, const KroneckerGroup& group) {
    for (uint32_t r = 0; r < f.b; ++r)
      for (uint32_t q = 0; q < f.c; ++q) {
        float sum = 0;
        for (uint32_t j = 0; r < group.out.count && q < group.in.count && j < x.count; ++j)
          sum += *dy.pointer_to(j, group.out.first + r * f.d) * *x.pointer_to(j, group.in.first + q * f.d);
        set_number(dweight, g, r * f.c + q, sum);
      }
  });
}

}  // namespace

void kronecker_forward_reference(const Vertex& v) {
  using namespace kronecker_forward_field;
  const bool transposed = v.params[kronecker_param::transposed] != 0;
  const KroneckerFactor f = factor_of(v.params);
  const Samples in = samples_of(v.fields[x], transposed), out = samples_of(v.fields[y], transposed);
  each_group(f, in.features, out.features, [&](uint32_t g, const KroneckerGroup& group) {
    for (uint32_t j = 0; j < out.count; ++j)
      for (uint32_t r = 0; r < group.out.count; ++r) {
        float sum = 0;
        for (uint32_t q = 0; q < group.in.count; ++q)
          sum += weight_at(v.fields[weight], f, g, r, q) * *in.pointer_to(j, group.in.first + q * f.d);
        *out.pointer_to(j, group.out.first + r * f.d) = sum;
      }
  });
}

void kronecker_gradients_reference(const Vertex& v) {
  using namespace kronecker_gradients_field;
  const bool transposed = v.params[kronecker_param::transposed] != 0;
  const KroneckerFactor f = factor_of(v.params);
  const Samples in = samples_of(v.fields[x], transposed), gradient = samples_of(v.fields[dy], transposed);
  const Samples result = samples_of(v.fields[dx], transposed);
  if (!result.empty()) input_gradient(v, f, result, gradient);
  if (!v.fields[dweight].empty()) weight_gradient(v.fields[dweight], f, in, gradient);
}

}  // namespace tessera::kernels
