// SIMD forms of sums of partial results.
#include <vector>

#include "base/simd.h"
#include "kernels/common/dispatch.h"
#include "kernels/common/element.h"
#include "kernels/map/reduce/codelet.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/reduce/reduce.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

using program::FieldView;
using program::Vertex;

template <class In, class Out>
struct ColumnSums {
  const In* partials;
  int64_t stride;
  uint32_t count;
  float scale;
  Out* out;

  // Several vectors at once hide the latency of additions.
  static constexpr size_t kVectors = 4;

  void run(size_t elements) const {
    const hn::ScalableTag<float> d;
    const size_t lanes = hn::Lanes(d);
    size_t i = 0;
    for (; i + kVectors * lanes <= elements; i += kVectors * lanes) add_block(i);
    for (; i + lanes <= elements; i += lanes) add_vector(i);
    if (i < elements) add_rest(i, elements - i);
  }

 private:
  HWY_INLINE void add_block(size_t i) const {
    const hn::ScalableTag<float> d;
    const size_t lanes = hn::Lanes(d);
    auto s0 = hn::Zero(d);
    auto s1 = s0;
    auto s2 = s0;
    auto s3 = s0;
    for (uint32_t p = 0; p < count; ++p) {
      const In* from = partials + p * stride + i;
      s0 = hn::Add(s0, load_f32(d, from));
      s1 = hn::Add(s1, load_f32(d, from + lanes));
      s2 = hn::Add(s2, load_f32(d, from + 2 * lanes));
      s3 = hn::Add(s3, load_f32(d, from + 3 * lanes));
    }
    const auto factor = hn::Set(d, scale);
    store_rounded(d, hn::Mul(factor, s0), out + i);
    store_rounded(d, hn::Mul(factor, s1), out + i + lanes);
    store_rounded(d, hn::Mul(factor, s2), out + i + 2 * lanes);
    store_rounded(d, hn::Mul(factor, s3), out + i + 3 * lanes);
  }

  HWY_INLINE void add_vector(size_t i) const {
    const hn::ScalableTag<float> d;
    auto sum = hn::Zero(d);
    for (uint32_t p = 0; p < count; ++p) sum = hn::Add(sum, load_f32(d, partials + p * stride + i));
    store_rounded(d, hn::Mul(hn::Set(d, scale), sum), out + i);
  }

  HWY_INLINE void add_rest(size_t i, size_t rest) const {
    const hn::ScalableTag<float> d;
    auto sum = hn::Zero(d);
    for (uint32_t p = 0; p < count; ++p) sum = hn::Add(sum, load_first(d, partials + p * stride + i, rest));
    store_first(d, hn::Mul(hn::Set(d, scale), sum), out + i, rest);
  }
};

// Contiguous matrices are added as one row each.
template <class In, class Out>
void sum_matrices(const Vertex& v) {
  const FieldView& partials = v.fields[reduce_sum_field::partials];
  const FieldView& out = v.fields[reduce_sum_field::out];
  if (out.empty()) return;
  const bool gaps = partials.row_stride != partials.cols || out.row_stride != out.cols;
  const uint32_t rows = gaps ? out.rows : 1;
  const size_t elements = gaps ? out.cols : out.elements();
  for (uint32_t r = 0; r < rows; ++r)
    ColumnSums<In, Out>{partials.as<const In>() + r * partials.row_stride, partials.row_stride * out.rows,
                        partials.rows / out.rows, float_of(v.params[reduce_sum_param::scale]),
                        out.as<Out>() + r * out.row_stride}
        .run(elements);
}

template <class In, class Out>
void sum_neighbours(const Vertex& v) {
  const FieldView& in = v.fields[reduce_neighbours_field::in];
  const FieldView& out = v.fields[reduce_neighbours_field::out];
  if (out.empty()) return;
  const uint32_t count = in.rows / out.rows;
  for (uint32_t r = 0; r < out.rows; ++r)
    ColumnSums<In, Out>{in.as<const In>() + r * count * in.row_stride, in.row_stride, count, 1,
                        out.as<Out>() + r * out.row_stride}
        .run(out.cols);
}

}  // namespace

TESSERA_RUN_FLOATS(reduce_sum, partials, out, sum_matrices)
TESSERA_RUN_FLOATS(reduce_neighbours, in, out, sum_neighbours)

void run_reduce_rows(const Vertex& v) {
  const FieldView& partials = v.fields[reduce_rows_field::partials];
  const FieldView& out = v.fields[reduce_rows_field::out];
  if (out.empty()) return;
  std::vector<float> sums(out.elements());
  const auto add = [](auto d, auto a, auto b) HWY_ATTR { return (void)d, hn::Add(a, b); };
  with_float_type(partials.type, [&]<class In>(In) HWY_ATTR {
    for (uint32_t i = 0; i < partials.rows; ++i) {
      const auto row = static_cast<size_t>(number_at(v.fields[reduce_rows_field::rows], i, 0));
      float* sum = sums.data() + row * out.cols;
      const auto* from = reinterpret_cast<const In*>(address_of(partials, i, 0));
      map_elements(add, out.cols, sum, static_cast<const float*>(sum), from);
    }
  });
  with_float_type(out.type, [&]<class Out>(Out) HWY_ATTR {
    for (uint32_t r = 0; r < out.rows; ++r)
      convert_elements(out.cols, reinterpret_cast<Out*>(address_of(out, r, 0)),
                       sums.data() + size_t{r} * out.cols);
  });
}

void run_worker_reduce_rows(const Vertex& v) { run_reduce_rows(v); }

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

TESSERA_REDUCE_CODELETS(TESSERA_DISPATCH_RUN)
TESSERA_WORKER_REDUCE_CODELETS(TESSERA_DISPATCH_RUN)

}  // namespace tessera::kernels
#endif
