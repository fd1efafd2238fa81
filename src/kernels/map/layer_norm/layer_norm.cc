#include "kernels/map/layer_norm/layer_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/simd.h"
#include "kernels/common/element.h"
#include "kernels/common/splits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/layer_norm/layer_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;
using program::FieldView;

/// `count` elements, at most a vector, with zeros after them.
template <class T>
HWY_INLINE Vector load_some(const T* from, size_t count) {
  return count >= hn::Lanes(Floats()) ? load_f32(Floats(), from) : load_first(Floats(), from, count);
}
template <class T>
HWY_INLINE void store_some(Vector value, T* to, size_t count) {
  if (count >= hn::Lanes(Floats())) return store_rounded(Floats(), value, to);
  store_first(Floats(), value, to, count);
}

/// Calls visit(first, count) for each vector of `size` elements; the last may have fewer.
template <class Visit>
HWY_INLINE void each_vector(size_t size, const Visit& visit) {
  const size_t lanes = hn::Lanes(Floats());
  for (size_t i = 0; i < size; i += lanes) visit(i, std::min(lanes, size - i));
}

template <class T>
HWY_INLINE T* at(const FieldView& field, size_t row, size_t col) {
  return reinterpret_cast<T*>(address_of(field, static_cast<int64_t>(row), static_cast<int64_t>(col)));
}

/// A row or column in FP32, with zeros up to whole vectors.
std::vector<float> widened(const FieldView& field) {
  std::vector<float> all(round_up(static_cast<uint32_t>(field.elements()), kMaxLanes));
  for (uint32_t i = 0; i < field.elements(); ++i)
    all[i] = static_cast<float>(field.rows == 1 ? number_at(field, 0, i) : number_at(field, i, 0));
  return all;
}

HWY_INLINE Vector of(const std::vector<float>& all, size_t first) {
  return hn::LoadU(Floats(), all.data() + first);
}
HWY_INLINE Vector same(float value) { return hn::Set(Floats(), value); }
HWY_INLINE float total(Vector v) { return hn::GetLane(hn::SumOfLanes(Floats(), v)); }

// Features of a sample are contiguous.

template <class T>
void normalise_lines(const LayerNorm& f) {
  const size_t n = f.x.rows;
  const auto count_of_all = static_cast<float>(n);
  const std::vector<float> weight = widened(f.weight), bias = widened(f.bias);
  for (uint32_t s = 0; s < f.x.cols; ++s) {
    const T* x = at<T>(f.x, 0, s);
    T* y = at<T>(f.y, 0, s);
    Vector sum = hn::Zero(Floats()), squares = sum;
    each_vector(n, [&](size_t i, size_t count) HWY_ATTR { sum = hn::Add(sum, load_some(x + i, count)); });
    const float mean = total(sum) / count_of_all;
    each_vector(n, [&](size_t i, size_t count) HWY_ATTR {
      const Vector centred =
          hn::IfThenElseZero(hn::FirstN(Floats(), count), hn::Sub(load_some(x + i, count), same(mean)));
      squares = hn::MulAdd(centred, centred, squares);
    });
    const float rstd = 1 / std::sqrt(total(squares) / count_of_all + f.epsilon);
    set_number(f.mean, 0, s, mean);
    set_number(f.rstd, 0, s, rstd);
    each_vector(n, [&](size_t i, size_t count) HWY_ATTR {
      const Vector normalised = hn::Mul(hn::Sub(load_some(x + i, count), same(mean)), same(rstd));
      store_some(hn::MulAdd(normalised, of(weight, i), of(bias, i)), y + i, count);
    });
  }
}

template <class T>
void differentiate_lines(const LayerNormInputGradient& f) {
  const size_t n = f.x.rows;
  const auto count_of_all = static_cast<float>(n);
  const std::vector<float> weight = widened(f.weight);
  for (uint32_t s = 0; s < f.x.cols; ++s) {
    const T *x = at<T>(f.x, 0, s), *dy = at<T>(f.dy, 0, s);
    T* dx = at<T>(f.dx, 0, s);
    const Vector mean = same(static_cast<float>(number_at(f.mean, 0, s)));
    const Vector rstd = same(static_cast<float>(number_at(f.rstd, 0, s)));
    Vector sum = hn::Zero(Floats()), products = sum;
    each_vector(n, [&](size_t i, size_t count) HWY_ATTR {
      const Vector g = hn::Mul(load_some(dy + i, count), of(weight, i));
      sum = hn::Add(sum, g);
      products = hn::MulAdd(g, hn::Mul(hn::Sub(load_some(x + i, count), mean), rstd), products);
    });
    const Vector of_mean = same(total(sum) / count_of_all), of_rstd = same(total(products) / count_of_all);
    each_vector(n, [&](size_t i, size_t count) HWY_ATTR {
      const Vector g = hn::Mul(load_some(dy + i, count), of(weight, i));
      const Vector normalised = hn::Mul(hn::Sub(load_some(x + i, count), mean), rstd);
      store_some(hn::Mul(rstd, hn::NegMulAdd(normalised, of_rstd, hn::Sub(g, of_mean))), dx + i, count);
    });
  }
}

template <class T>
void differentiate_weight_of_lines(const LayerNormWeightGradient& f) {
  const size_t n = f.x.rows;
  std::vector<float> dweight(round_up(f.x.rows, kMaxLanes)), dbias(dweight.size());
  for (uint32_t s = 0; s < f.x.cols; ++s) {
    const T *x = at<T>(f.x, 0, s), *dy = at<T>(f.dy, 0, s);
    const Vector mean = same(static_cast<float>(number_at(f.mean, 0, s)));
    const Vector rstd = same(static_cast<float>(number_at(f.rstd, 0, s)));
    each_vector(n, [&](size_t i, size_t count) HWY_ATTR {
      const Vector g = load_some(dy + i, count);
      const Vector normalised = hn::Mul(hn::Sub(load_some(x + i, count), mean), rstd);
      hn::StoreU(hn::Add(of(dbias, i), g), Floats(), dbias.data() + i);
      hn::StoreU(hn::MulAdd(g, normalised, of(dweight, i)), Floats(), dweight.data() + i);
    });
  }
  for (uint32_t i = 0; i < n; ++i) {
    set_number(f.dbias, i, 0, dbias[i]);
    set_number(f.dweight, i, 0, dweight[i]);
  }
}

// A feature of the samples is contiguous: each has a lane.

template <class T>
void normalise_columns(const LayerNorm& f) {
  const size_t n = f.x.rows;
  const Vector part = same(1 / static_cast<float>(n));
  const std::vector<float> weight = widened(f.weight), bias = widened(f.bias);
  HWY_ALIGN float means[hn::MaxLanes(Floats())], rstds[hn::MaxLanes(Floats())];
  each_vector(f.x.cols, [&](size_t s, size_t count) HWY_ATTR {
    Vector sum = hn::Zero(Floats()), squares = sum;
    for (size_t i = 0; i < n; ++i) sum = hn::Add(sum, load_some(at<const T>(f.x, i, s), count));
    const Vector mean = hn::Mul(sum, part);
    for (size_t i = 0; i < n; ++i) {
      const Vector centred = hn::Sub(load_some(at<const T>(f.x, i, s), count), mean);
      squares = hn::MulAdd(centred, centred, squares);
    }
    const Vector rstd = hn::Div(same(1), hn::Sqrt(hn::MulAdd(squares, part, same(f.epsilon))));
    for (size_t i = 0; i < n; ++i) {
      const Vector normalised = hn::Mul(hn::Sub(load_some(at<const T>(f.x, i, s), count), mean), rstd);
      store_some(hn::MulAdd(normalised, same(weight[i]), same(bias[i])), at<T>(f.y, i, s), count);
    }
    hn::Store(mean, Floats(), means);
    hn::Store(rstd, Floats(), rstds);
    for (uint32_t j = 0; j < count; ++j) {
      set_number(f.mean, 0, s + j, means[j]);
      set_number(f.rstd, 0, s + j, rstds[j]);
    }
  });
}

template <class T>
void differentiate_columns(const LayerNormInputGradient& f) {
  const size_t n = f.x.rows;
  const Vector part = same(1 / static_cast<float>(n));
  const std::vector<float> weight = widened(f.weight), means = widened(f.mean), rstds = widened(f.rstd);
  each_vector(f.x.cols, [&](size_t s, size_t count) HWY_ATTR {
    const Vector mean = of(means, s), rstd = of(rstds, s);
    const auto normalised = [&](size_t i) HWY_ATTR {
      return hn::Mul(hn::Sub(load_some(at<const T>(f.x, i, s), count), mean), rstd);
    };
    const auto weighted = [&](size_t i) HWY_ATTR {
      return hn::Mul(load_some(at<const T>(f.dy, i, s), count), same(weight[i]));
    };
    Vector sum = hn::Zero(Floats()), products = sum;
    for (size_t i = 0; i < n; ++i) {
      const Vector g = weighted(i);
      sum = hn::Add(sum, g);
      products = hn::MulAdd(g, normalised(i), products);
    }
    const Vector of_mean = hn::Mul(sum, part), of_rstd = hn::Mul(products, part);
    for (size_t i = 0; i < n; ++i) {
      const Vector dx = hn::NegMulAdd(normalised(i), of_rstd, hn::Sub(weighted(i), of_mean));
      store_some(hn::Mul(rstd, dx), at<T>(f.dx, i, s), count);
    }
  });
}

template <class T>
void differentiate_weight_of_columns(const LayerNormWeightGradient& f) {
  const std::vector<float> means = widened(f.mean), rstds = widened(f.rstd);
  for (uint32_t i = 0; i < f.x.rows; ++i) {
    const T *x = at<const T>(f.x, i, 0), *dy = at<const T>(f.dy, i, 0);
    Vector dweight = hn::Zero(Floats()), dbias = dweight;
    each_vector(f.x.cols, [&](size_t s, size_t count) HWY_ATTR {
      const Vector g = load_some(dy + s, count);
      const Vector normalised = hn::Mul(hn::Sub(load_some(x + s, count), of(means, s)), of(rstds, s));
      dbias = hn::Add(dbias, g);
      dweight = hn::MulAdd(g, normalised, dweight);
    });
    set_number(f.dbias, i, 0, total(dbias));
    set_number(f.dweight, i, 0, total(dweight));
  }
}

}  // namespace

void layer_norm(const LayerNorm& f, bool lines) {
  with_float_type(f.x.type,
                  [&]<class T>(T) HWY_ATTR { lines ? normalise_lines<T>(f) : normalise_columns<T>(f); });
}

void layer_norm_input_gradient(const LayerNormInputGradient& f, bool lines) {
  with_float_type(f.x.type, [&]<class T>(T) HWY_ATTR {
    lines ? differentiate_lines<T>(f) : differentiate_columns<T>(f);
  });
}

void layer_norm_weight_gradient(const LayerNormWeightGradient& f, bool lines) {
  with_float_type(f.x.type, [&]<class T>(T) HWY_ATTR {
    lines ? differentiate_weight_of_lines<T>(f) : differentiate_weight_of_columns<T>(f);
  });
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

using program::FieldView;

HWY_EXPORT(layer_norm);
HWY_EXPORT(layer_norm_input_gradient);
HWY_EXPORT(layer_norm_weight_gradient);

bool have_contiguous_columns(std::initializer_list<FieldView> fields) {
  return std::ranges::all_of(fields, [](const FieldView& f) { return f.row_stride == 1 || f.rows <= 1; });
}
bool have_contiguous_rows(std::initializer_list<FieldView> fields) {
  return std::ranges::all_of(fields, [](const FieldView& f) { return has_contiguous_rows(f); });
}

/// Calls run(whether features are contiguous), if either features or samples are.
template <class Run>
bool with_direction(std::initializer_list<FieldView> matrices, const Run& run) {
  if (matrices.begin()->empty()) return false;
  const bool lines = have_contiguous_columns(matrices);
  if (!lines && !have_contiguous_rows(matrices)) return false;
  run(lines);
  return true;
}

}  // namespace

bool apply_layer_norm(const LayerNorm& f) {
  return with_direction({f.x, f.y}, [&](bool lines) { HWY_DYNAMIC_DISPATCH(layer_norm)(f, lines); });
}

bool apply_layer_norm_input_gradient(const LayerNormInputGradient& f) {
  return with_direction({f.dy, f.x, f.dx}, [&](bool lines) {
    HWY_DYNAMIC_DISPATCH(layer_norm_input_gradient)(f, lines);
  });
}

bool apply_layer_norm_weight_gradient(const LayerNormWeightGradient& f) {
  return with_direction({f.dy, f.x}, [&](bool lines) {
    HWY_DYNAMIC_DISPATCH(layer_norm_weight_gradient)(f, lines);
  });
}

}  // namespace tessera::kernels
#endif
