#include "kernels/tile_product/multiply.h"

#include <algorithm>
#include <vector>

#include "base/simd.h"
#include "kernels/element.h"
#include "kernels/tile_product/codelet.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/tile_product/multiply.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

using program::FieldView;
using program::Vertex;

HWY_INLINE float widened(float value) { return value; }
template <class T>
HWY_INLINE float widened(T value) {
  return base::to_float(value);
}

// One row of Y, in FP32 until it is stored.
class RowSums {
 public:
  explicit RowSums(size_t n) : n_(n), sums_(n + hn::MaxLanes(hn::ScalableTag<float>())) {}

  void clear() { std::fill(sums_.begin(), sums_.end(), 0.0F); }

  // sums += w · x
  template <class T>
  HWY_INLINE void add(float w, const T* x) {
    const hn::ScalableTag<float> d;
    const size_t lanes = hn::Lanes(d);
    const auto factor = hn::Set(d, w);
    size_t i = 0;
    for (; i + lanes <= n_; i += lanes)
      hn::StoreU(hn::MulAdd(factor, load_f32(d, x + i), hn::LoadU(d, &sums_[i])), d, &sums_[i]);
    if (i < n_)
      hn::StoreU(hn::MulAdd(factor, load_first(d, x + i, n_ - i), hn::LoadU(d, &sums_[i])), d,
                 &sums_[i]);
  }

  template <class T>
  HWY_INLINE void store(T* y) const {
    map_elements([](auto, auto sum) HWY_ATTR { return sum; }, n_, y, sums_.data());
  }

 private:
  size_t n_;
  std::vector<float> sums_;
};

// Entry i of a work list.
HWY_INLINE uint32_t entry(const FieldView& lists, uint32_t i) {
  const std::byte* at = address_of(lists, i, 0);
  return lists.type == Type::u16 ? load<uint16_t>(at) : load<uint32_t>(at);
}

template <class In, class Out>
void sparse_rows(const Vertex& v) {
  using namespace sparse_product_field;
  const auto b = static_cast<uint32_t>(v.params[0]);
  const FieldView& in = v.fields[x];
  const FieldView& out = v.fields[y];
  RowSums sums(out.cols);
  uint32_t block = 0;
  for (uint32_t at = 0, row = 0; row < out.rows; row += b) {
    const uint32_t blocks = entry(v.fields[lists], at++);
    for (uint32_t r = 0; r < std::min(b, out.rows - row); ++r) {
      sums.clear();
      for (uint32_t i = 0; i < blocks; ++i) {
        const uint32_t first = entry(v.fields[lists], at + i) * b;
        const auto* w =
            reinterpret_cast<const In*>(address_of(v.fields[values], block + i, int64_t{r} * b));
        for (uint32_t c = 0; c < std::min(b, in.rows - first); ++c)
          sums.add(widened(w[c]), reinterpret_cast<const In*>(address_of(in, first + c, 0)));
      }
      sums.store(reinterpret_cast<Out*>(address_of(out, row + r, 0)));
    }
    block += blocks;
    at += blocks;
  }
}

template <class In, class Out>
void dense_rows(const Vertex& v) {
  using namespace dense_product_field;
  const int64_t m = v.params[0];
  const int64_t k = v.params[1];
  const int64_t n = v.params[2];
  RowSums sums(static_cast<size_t>(n));
  for (int64_t i = 0; i < m; ++i) {
    sums.clear();
    for (int64_t j = 0; j < k; ++j)
      sums.add(widened(v.fields[w].as<const In>()[i * k + j]), v.fields[x].as<const In>() + j * n);
    sums.store(v.fields[y].as<Out>() + i * n);
  }
}

template <class Run>
void with_types(Type in, Type out, const Run& run) {
  with_float_type(in, [&]<class In>(In a) HWY_ATTR {
    with_float_type(out, [&]<class Out>(Out b) HWY_ATTR { run(a, b); });
  });
}

}  // namespace

void sparse_product(const Vertex& v) {
  using namespace sparse_product_field;
  with_types(v.fields[x].type, v.fields[y].type,
             [&]<class In, class Out>(In, Out) { sparse_rows<In, Out>(v); });
}

void dense_product(const Vertex& v) {
  using namespace dense_product_field;
  with_types(v.fields[x].type, v.fields[y].type,
             [&]<class In, class Out>(In, Out) { dense_rows<In, Out>(v); });
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

bool contiguous(const program::FieldView& field) {
  return field.col_stride == 1 || field.cols <= 1;
}

}  // namespace

HWY_EXPORT(sparse_product);
HWY_EXPORT(dense_product);

bool apply_sparse_product(const program::Vertex& v) {
  using namespace sparse_product_field;
  if (!contiguous(v.fields[values]) || !contiguous(v.fields[x]) || !contiguous(v.fields[y]))
    return false;
  HWY_DYNAMIC_DISPATCH(sparse_product)(v);
  return true;
}

bool apply_dense_product(const program::Vertex& v) {
  if (!std::all_of(v.fields.begin(), v.fields.end(), contiguous)) return false;
  HWY_DYNAMIC_DISPATCH(dense_product)(v);
  return true;
}

}  // namespace tessera::kernels
#endif
