#include "kernels/map/layer_norm/layer_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/simd.h"
#include "kernels/common/element.h"
#include "kernels/common/lines.h"
#include "kernels/common/splits.h"
#include "kernels/common/thread_buffer.h"
#include "kernels/map/gather/transpose.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/layer_norm/layer_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/some-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

using program::FieldView;

/// Zeros after the first `count` lanes.
HWY_INLINE Vector first_of(Vector value, size_t count) {
  return count >= hn::Lanes(Floats()) ? value : hn::IfThenElseZero(hn::FirstN(Floats(), count), value);
}

template <class T>
HWY_INLINE T* at(const FieldView& field, size_t row, size_t col) {
  return reinterpret_cast<T*>(address_of(field, static_cast<int64_t>(row), static_cast<int64_t>(col)));
}

/// A row or column in FP32, with zeros up to whole vectors.
std::vector<float> widened(const FieldView& field) {
  std::vector<float> all(round_up(static_cast<uint32_t>(field.elements()), kMaxLanes));
  const bool is_row = field.rows == 1;
  if (const auto step = is_row ? field.col_stride : field.row_stride; step != 1 && field.elements() > 1) {
    for (uint32_t i = 0; i < field.elements(); ++i) all[i] = f32_at(field, is_row ? 0 : i, is_row ? i : 0);
    return all;
  }
  with_float_type(field.type, [&]<class T>(T) HWY_ATTR {
    convert_elements(field.elements(), all.data(), field.as<const T>());
  });
  return all;
}

/// The reverse.
void store_line(const std::vector<float>& all, const FieldView& field) {
  for (uint32_t i = 0; i < field.rows; ++i) set_number(field, i, 0, all[i]);
}

HWY_INLINE Vector of(const std::vector<float>& all, size_t first) {
  return hn::LoadU(Floats(), all.data() + first);
}
HWY_INLINE Vector same(float value) { return hn::Set(Floats(), value); }

/// Calls visit(first, count) for each vector of `size` elements; the last may have fewer.
template <class Visit>
HWY_INLINE void each_vector(size_t size, const Visit& visit) {
  const size_t lanes = hn::Lanes(Floats());
  size_t i = 0;
  for (; i + lanes <= size; i += lanes) visit(i, lanes);
  if (i < size) visit(i, size - i);
}

/// The sums to which a visit adds.
template <size_t count>
struct Sums {
  Vector of[count];

  HWY_INLINE Sums() {
    for (Vector& sum : of) sum = hn::Zero(Floats());
  }
  HWY_INLINE void join(const Sums& other) {
    for (size_t i = 0; i < count; ++i) of[i] = hn::Add(of[i], other.of[i]);
  }
  HWY_INLINE float total(size_t i) const { return hn::GetLane(hn::SumOfLanes(Floats(), of[i])); }
};

/// Calls add(sums, first, count) for each vector of `size` elements; four sums hide the latency of additions.
template <size_t count, class Add>
HWY_INLINE Sums<count> sums_over(size_t size, const Add& add) {
  const size_t lanes = hn::Lanes(Floats());
  Sums<count> s0, s1, s2, s3;
  size_t i = 0;
  for (; i + 4 * lanes <= size; i += 4 * lanes) {
    add(s0, i, lanes);
    add(s1, i + lanes, lanes);
    add(s2, i + 2 * lanes, lanes);
    add(s3, i + 3 * lanes, lanes);
  }
  for (; i + lanes <= size; i += lanes) add(s0, i, lanes);
  if (i < size) add(s1, i, size - i);
  s0.join(s1);
  s2.join(s3);
  s0.join(s2);
  return s0;
}

// Features of a sample are contiguous.

template <class T>
void normalise_lines(const LayerNorm& f) {
  const size_t n = f.x.rows;
  const auto count_of_all = static_cast<float>(n);
  const std::vector<float> weight = widened(f.weight), bias = widened(f.bias);
  for (uint32_t s = 0; s < f.x.cols; ++s) {
    const T* x = at<const T>(f.x, 0, s);
    T* y = at<T>(f.y, 0, s);
    const auto sum = sums_over<1>(f.centred ? n : 0, [&](auto& sums, size_t i, size_t count) HWY_ATTR {
      sums.of[0] = hn::Add(sums.of[0], load_some(x + i, count));
    });
    const float mean = sum.total(0) / count_of_all;
    const auto squares = sums_over<1>(n, [&](auto& sums, size_t i, size_t count) HWY_ATTR {
      const Vector centred = first_of(hn::Sub(load_some(x + i, count), same(mean)), count);
      sums.of[0] = hn::MulAdd(centred, centred, sums.of[0]);
    });
    const float rstd = 1 / std::sqrt(squares.total(0) / count_of_all + f.epsilon);
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
    const T *x = at<const T>(f.x, 0, s), *dy = at<const T>(f.dy, 0, s);
    T* dx = at<T>(f.dx, 0, s);
    const Vector mean = same(f32_at(f.mean, 0, s));
    const auto deviation = f32_at(f.rstd, 0, s);
    const Vector rstd = same(deviation);
    const auto sums = sums_over<2>(n, [&](auto& part, size_t i, size_t count) HWY_ATTR {
      const Vector g = hn::Mul(load_some(dy + i, count), of(weight, i));
      part.of[0] = hn::Add(part.of[0], g);
      part.of[1] = hn::MulAdd(g, hn::Sub(load_some(x + i, count), mean), part.of[1]);
    });
    const Vector of_mean = same(f.centred ? sums.total(0) / count_of_all : 0.0F);
    const Vector of_centred = same(deviation * (deviation * (sums.total(1) / count_of_all)));
    each_vector(n, [&](size_t i, size_t count) HWY_ATTR {
      const Vector g = hn::MulSub(load_some(dy + i, count), of(weight, i), of_mean);
      const Vector centred = hn::Sub(load_some(x + i, count), mean);
      store_some(hn::Mul(rstd, hn::NegMulAdd(centred, of_centred, g)), dx + i, count);
    });
  }
}

/// Processes some samples at once, so that a sum is loaded and stored once for all of them.
template <uint32_t samples, class T>
HWY_INLINE void add_weight_gradient(const LayerNormWeightGradient& f, uint32_t first, float* dweight,
                                    float* dbias) {
  const T *x[samples], *dy[samples];
  Vector mean[samples], rstd[samples];
  for (uint32_t s = 0; s < samples; ++s) {
    x[s] = at<const T>(f.x, 0, first + s);
    dy[s] = at<const T>(f.dy, 0, first + s);
    mean[s] = same(f32_at(f.mean, 0, first + s));
    rstd[s] = same(f32_at(f.rstd, 0, first + s));
  }
  each_vector(f.x.rows, [&](size_t i, size_t count) HWY_ATTR {
    Vector weight = hn::LoadU(Floats(), dweight + i), bias = hn::LoadU(Floats(), dbias + i);
    for (uint32_t s = 0; s < samples; ++s) {
      const Vector g = load_some(dy[s] + i, count);
      const Vector normalised = hn::Mul(hn::Sub(load_some(x[s] + i, count), mean[s]), rstd[s]);
      bias = hn::Add(bias, g);
      weight = hn::MulAdd(g, normalised, weight);
    }
    hn::StoreU(weight, Floats(), dweight + i);
    hn::StoreU(bias, Floats(), dbias + i);
  });
}

template <class T>
void differentiate_weight_of_lines(const LayerNormWeightGradient& f) {
  constexpr uint32_t kSamples = 4;
  std::vector<float> dweight(round_up(f.x.rows, kMaxLanes)), dbias(dweight.size());
  uint32_t s = 0;
  for (; s + kSamples <= f.x.cols; s += kSamples)
    add_weight_gradient<kSamples, T>(f, s, dweight.data(), dbias.data());
  for (; s < f.x.cols; ++s) add_weight_gradient<1, T>(f, s, dweight.data(), dbias.data());
  store_line(dbias, f.dbias);
  store_line(dweight, f.dweight);
}

// A feature of the samples is contiguous: each has a lane. Features may be far apart, so what is needed again
// is copied.

constexpr size_t kVectors = 4;

/// Calls visit(first, count) for groups of samples, in `vectors` vectors each; the last may have fewer
/// samples, in one vector.
template <class Visit>
HWY_INLINE void each_group(size_t samples, const Visit& visit) {
  const size_t group = kVectors * hn::Lanes(Floats());
  size_t s = 0;
  for (; s + group <= samples; s += group) visit.template operator()<kVectors>(s, group);
  each_vector(samples - s,
              [&](size_t i, size_t count) HWY_ATTR { visit.template operator()<size_t{1}>(s + i, count); });
}

/// Means and sums of squared deviations of the features so far, by sample.
struct Moments {
  static constexpr size_t kSamples = 512;  // which stay in the L1 cache
  HWY_ALIGN float mean[kSamples];
  HWY_ALIGN float squares[kSamples];
};

template <size_t count>
HWY_INLINE Vector sum_of(const Vector* x) {
  if constexpr (count == 1) {
    return x[0];
  } else {
    return hn::Add(sum_of<count / 2>(x), sum_of<count - count / 2>(x + count / 2));
  }
}

/// Joins the moments of some features with the moments of the `first` features before (Chan et al. 1979),
/// which takes one pass, row by row: rows may be far apart.
template <size_t features, class T>
HWY_INLINE void add_features(const LayerNorm& f, size_t first, size_t sample, size_t samples, Moments& m) {
  const auto before = static_cast<float>(first), all = static_cast<float>(first + features);
  const Vector weight = same(features / all), product = same(features * before / all);
  const T* rows[features];
  for (size_t i = 0; i < features; ++i) rows[i] = at<const T>(f.x, first + i, sample);
  each_vector(samples, [&](size_t s, size_t count) HWY_ATTR {
    Vector x[features];
#pragma GCC unroll 16
    for (size_t i = 0; i < features; ++i) x[i] = load_some(rows[i] + s, count);
    const Vector mean = f.centred ? hn::Mul(sum_of<features>(x), same(1.0F / features)) : hn::Zero(Floats());
#pragma GCC unroll 16
    for (size_t i = 0; i < features; ++i) {
      const Vector centred = hn::Sub(x[i], mean);
      x[i] = hn::Mul(centred, centred);
    }
    const Vector so_far = hn::Load(Floats(), m.mean + s), distance = hn::Sub(mean, so_far);
    const Vector squares = hn::Add(hn::Load(Floats(), m.squares + s), sum_of<features>(x));
    hn::Store(hn::MulAdd(distance, weight, so_far), Floats(), m.mean + s);
    hn::Store(hn::MulAdd(hn::Mul(distance, distance), product, squares), Floats(), m.squares + s);
  });
}

inline void store_samples(const float* values, const FieldView& field, size_t first, size_t count) {
  if (field.type == Type::f32 && field.col_stride == 1)
    return static_cast<void>(std::copy_n(values, count, at<float>(field, 0, first)));
  for (size_t j = 0; j < count; ++j) set_number(field, 0, static_cast<int64_t>(first + j), values[j]);
}

template <class T>
void normalise_samples(const LayerNorm& f, const float* weight, const float* bias, size_t first,
                       size_t samples) {
  constexpr size_t kFeatures = hn::MaxLanes(Floats()) < 16 ? 8 : 16;  // as many as registers hold
  const size_t n = f.x.rows;
  Moments m;
  std::fill_n(m.mean, Moments::kSamples, 0.0F);
  std::fill_n(m.squares, Moments::kSamples, 0.0F);
  size_t feature = 0;
  for (; feature + kFeatures <= n; feature += kFeatures)
    add_features<kFeatures, T>(f, feature, first, samples, m);
  for (; feature < n; ++feature) add_features<1, T>(f, feature, first, samples, m);
  float* const rstd = m.squares;
  each_vector(samples, [&](size_t s, size_t) HWY_ATTR {
    const Vector variance =
        hn::MulAdd(hn::Load(Floats(), m.squares + s), same(1 / static_cast<float>(n)), same(f.epsilon));
    hn::Store(hn::Div(same(1), hn::Sqrt(variance)), Floats(), rstd + s);
  });
  for (size_t i = 0; i < n; ++i) {
    const T* x = at<const T>(f.x, i, first);
    T* y = at<T>(f.y, i, first);
    each_vector(samples, [&](size_t s, size_t count) HWY_ATTR {
      const Vector centred = hn::Sub(load_some(x + s, count), hn::Load(Floats(), m.mean + s));
      const Vector normalised = hn::Mul(centred, hn::Load(Floats(), rstd + s));
      store_some(hn::MulAdd(normalised, same(weight[i]), same(bias[i])), y + s, count);
    });
  }
  store_samples(m.mean, f.mean, first, samples);
  store_samples(rstd, f.rstd, first, samples);
}

template <class T>
void normalise_columns(const LayerNorm& f) {
  const std::vector<float> weight = widened(f.weight), bias = widened(f.bias);
  for (size_t s = 0; s < f.x.cols; s += Moments::kSamples)
    normalise_samples<T>(f, weight.data(), bias.data(), s, std::min(Moments::kSamples, f.x.cols - s));
}

template <size_t vectors, class T>
void differentiate_samples(const LayerNormInputGradient& f, const float* weight, const float* means,
                           const float* rstds, float* copy, size_t first, size_t count) {
  const size_t n = f.x.rows, lanes = hn::Lanes(Floats());
  const Vector part = same(1 / static_cast<float>(n));
  Sums<vectors> of_mean, of_normalised;
  for (size_t i = 0; i < n; ++i) {
    const T *x = at<const T>(f.x, i, first), *dy = at<const T>(f.dy, i, first);
    for (size_t v = 0; v < vectors; ++v) {
      const size_t rest = count - v * lanes;
      const Vector mean = hn::LoadU(Floats(), means + first + v * lanes);
      const Vector rstd = hn::LoadU(Floats(), rstds + first + v * lanes);
      const Vector g = hn::Mul(load_some(dy + v * lanes, rest), same(weight[i]));
      const Vector normalised = hn::Mul(hn::Sub(load_some(x + v * lanes, rest), mean), rstd);
      hn::StoreU(g, Floats(), copy + (i * vectors + v) * 2 * lanes);
      hn::StoreU(normalised, Floats(), copy + (i * vectors + v) * 2 * lanes + lanes);
      of_mean.of[v] = hn::Add(of_mean.of[v], g);
      of_normalised.of[v] = hn::MulAdd(g, normalised, of_normalised.of[v]);
    }
  }
  for (size_t v = 0; v < vectors; ++v) {
    of_mean.of[v] = f.centred ? hn::Mul(of_mean.of[v], part) : hn::Zero(Floats());
    of_normalised.of[v] = hn::Mul(of_normalised.of[v], part);
  }
  for (size_t i = 0; i < n; ++i) {
    T* dx = at<T>(f.dx, i, first);
    for (size_t v = 0; v < vectors; ++v) {
      const Vector rstd = hn::LoadU(Floats(), rstds + first + v * lanes);
      const Vector g = hn::LoadU(Floats(), copy + (i * vectors + v) * 2 * lanes);
      const Vector normalised = hn::LoadU(Floats(), copy + (i * vectors + v) * 2 * lanes + lanes);
      const Vector centred = hn::NegMulAdd(normalised, of_normalised.of[v], hn::Sub(g, of_mean.of[v]));
      store_some(hn::Mul(rstd, centred), dx + v * lanes, count - v * lanes);
    }
  }
}

template <class T>
void differentiate_columns(const LayerNormInputGradient& f) {
  const std::vector<float> weight = widened(f.weight), means = widened(f.mean), rstds = widened(f.rstd);
  std::vector<float> copy(f.x.rows * 2 * kVectors * kMaxLanes);
  each_group(f.x.cols, [&]<size_t vectors>(size_t first, size_t count) HWY_ATTR {
    differentiate_samples<vectors, T>(f, weight.data(), means.data(), rstds.data(), copy.data(), first,
                                      count);
  });
}

template <class T>
void differentiate_weight_of_columns(const LayerNormWeightGradient& f) {
  const std::vector<float> means = widened(f.mean), rstds = widened(f.rstd);
  for (uint32_t i = 0; i < f.x.rows; ++i) {
    const T *x = at<const T>(f.x, i, 0), *dy = at<const T>(f.dy, i, 0);
    const auto sums = sums_over<2>(f.x.cols, [&](auto& part, size_t s, size_t count) HWY_ATTR {
      const Vector g = load_some(dy + s, count);
      const Vector normalised = hn::Mul(hn::Sub(load_some(x + s, count), of(means, s)), of(rstds, s));
      part.of[0] = hn::Add(part.of[0], g);
      part.of[1] = hn::MulAdd(g, normalised, part.of[1]);
    });
    set_number(f.dbias, i, 0, sums.total(0));
    set_number(f.dweight, i, 0, sums.total(1));
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

bool has_contiguous_side(const FieldView& field) {
  return have_contiguous_columns({field}) || have_contiguous_rows({field});
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

/// Samples [first, first + count).
FieldView part_of(FieldView field, uint32_t first, uint32_t count) {
  field.data = address_of(field, 0, first);
  field.cols = count;
  return field;
}

/// The same where the result alone lies the other way: some samples at a time, whose results are transposed.
/// run(first, count, result, whether features are contiguous) normalises samples of the inputs.
template <class Run>
bool with_result_transposed(std::initializer_list<FieldView> inputs, const FieldView& result,
                            const Run& run) {
  constexpr uint32_t kSamples = 128;
  if (inputs.begin()->empty() || !has_contiguous_side(result)) return false;
  const bool lines = have_contiguous_columns(inputs);
  if (!lines && !have_contiguous_rows(inputs)) return false;
  const uint32_t features = result.rows;
  float* const buffer = thread_buffer(size_t{features} * kSamples);
  for (uint32_t first = 0; first < result.cols; first += kSamples) {
    const uint32_t count = std::min(kSamples, result.cols - first);
    const FieldView part{
        reinterpret_cast<std::byte*>(buffer), result.type, features, count, lines ? 1 : int64_t{kSamples},
        lines ? int64_t{features} : 1};
    run(first, count, part, lines);
    const FieldView to = part_of(result, first, count);
    lines ? transpose_elements(part, to) : transpose_elements(transposed(part), transposed(to));
  }
  return true;
}

}  // namespace

bool apply_layer_norm(const LayerNorm& f) {
  const auto run = [](const LayerNorm& part, bool lines) { HWY_DYNAMIC_DISPATCH(layer_norm)(part, lines); };
  return with_direction({f.x, f.y}, [&](bool lines) { run(f, lines); }) ||
         with_result_transposed({f.x}, f.y,
                                [&](uint32_t first, uint32_t count, const FieldView& y, bool lines) {
                                  LayerNorm part = f;
                                  part.x = part_of(f.x, first, count);
                                  part.mean = part_of(f.mean, first, count);
                                  part.rstd = part_of(f.rstd, first, count);
                                  part.y = y;
                                  run(part, lines);
                                });
}

bool apply_layer_norm_input_gradient(const LayerNormInputGradient& f) {
  const auto run = [](const LayerNormInputGradient& part, bool lines) {
    HWY_DYNAMIC_DISPATCH(layer_norm_input_gradient)(part, lines);
  };
  return with_direction({f.dy, f.x, f.dx}, [&](bool lines) { run(f, lines); }) ||
         with_result_transposed({f.dy, f.x}, f.dx,
                                [&](uint32_t first, uint32_t count, const FieldView& dx, bool lines) {
                                  LayerNormInputGradient part = f;
                                  part.dy = part_of(f.dy, first, count);
                                  part.x = part_of(f.x, first, count);
                                  part.mean = part_of(f.mean, first, count);
                                  part.rstd = part_of(f.rstd, first, count);
                                  part.dx = dx;
                                  run(part, lines);
                                });
}

bool apply_layer_norm_weight_gradient(const LayerNormWeightGradient& f) {
  return with_direction({f.dy, f.x}, [&](bool lines) {
    HWY_DYNAMIC_DISPATCH(layer_norm_weight_gradient)(f, lines);
  });
}

}  // namespace tessera::kernels
#endif
