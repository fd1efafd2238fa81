// Attention on vectors. Its bits depend only on the operands and the instruction set, not on how queries are
// partitioned in whole blocks.
#include "base/simd.h"
#include "kernels/common/dispatch.h"
#include "kernels/product/attention/problem.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/product/attention/attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if TESSERA_HAS_VECTORS
#include "kernels/product/attention/forward-inl.h"
#include "kernels/product/attention/gradient-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_HAS_VECTORS
void run_attention(const program::Vertex& v) { AttentionForward(v).run(); }
void run_attention_gradient(const program::Vertex& v) {
  using namespace attention_gradient_field;
  AttentionGradient(v, AttentionRowsOf::sequences,
                    {.dq = &v.fields[dq], .dk = &v.fields[dk], .dv = &v.fields[dv]})
      .run();
}
void run_attention_query_gradient(const program::Vertex& v) {
  using namespace attention_query_gradient_field;
  AttentionGradient(v, AttentionRowsOf::queries, {.dq = &v.fields[dq], .means = &v.fields[means]}).run();
}
void run_attention_key_gradient(const program::Vertex& v) {
  using namespace attention_key_gradient_field;
  AttentionGradient(v, AttentionRowsOf::keys, {.dk = &v.fields[dk], .dv = &v.fields[dv]}).run();
}
#else
TESSERA_ATTENTION_CODELETS(TESSERA_RUN_REFERENCE)
#endif

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

TESSERA_ATTENTION_CODELETS(TESSERA_EXPORT_RUN)

namespace {

bool has_contiguous_lines(const program::FieldView& field) {
  return field.empty() || field.col_stride == 1 || field.row_stride == 1;
}

/// Whether the kernel for vectors can take a vertex; references clear what nothing adds to.
bool may_differentiate(const program::Vertex& v) {
  return !v.fields[attention_input::q].empty() && !v.fields[attention_input::k].empty() && has_vector_rows(v);
}

}  // namespace

void attention_simd(const program::Vertex& v) {
  const AttentionRows rows(v);
  const auto& fields = rows.vertex().fields;
  const program::FieldView& bias = fields[attention_field::bias];
  if (!(bias.empty() || has_contiguous_rows(bias)) ||
      !std::ranges::all_of(fields.first(attention_field::query_ids), has_contiguous_lines) ||
      !has_contiguous_lines(fields[attention_field::y]))
    return attention_reference(v);
  HWY_DYNAMIC_DISPATCH(run_attention)(rows.vertex());
}

void attention_gradient_simd(const program::Vertex& v) {
  const AttentionRows rows(v);
  if (!may_differentiate(rows.vertex())) return attention_gradient_reference(v);
  HWY_DYNAMIC_DISPATCH(run_attention_gradient)(rows.vertex());
}

void attention_query_gradient_simd(const program::Vertex& v) {
  const AttentionRows rows(v);
  if (!may_differentiate(rows.vertex())) return attention_query_gradient_reference(v);
  HWY_DYNAMIC_DISPATCH(run_attention_query_gradient)(rows.vertex());
}

void attention_key_gradient_simd(const program::Vertex& v) {
  const AttentionRows rows(v);
  if (!may_differentiate(rows.vertex())) return attention_key_gradient_reference(v);
  HWY_DYNAMIC_DISPATCH(run_attention_key_gradient)(rows.vertex());
}

}  // namespace tessera::kernels
#endif
