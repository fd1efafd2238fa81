#include "kernels/map/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/simd.h"
#include "kernels/common/element.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/optimizer/optimizer.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;

/// Elements [first, first + count), a whole vector or the last of a line.
template <bool whole>
struct Elements {
  size_t first;
  size_t count;

  template <class T>
  HWY_INLINE Vector load(const T* from) const {
    if constexpr (whole) return load_f32(Floats(), from + first);
    return load_first(Floats(), from + first, count);
  }
  template <class T>
  HWY_INLINE void store(Vector value, T* to) const {
    if constexpr (whole) return store_rounded(Floats(), value, to + first);
    store_first(Floats(), value, to + first, count);
  }
};

template <class Step>
HWY_INLINE void for_each_vector(size_t count, const Step& step) {
  const size_t lanes = hn::Lanes(Floats());
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) step(Elements<true>{i, lanes});
  if (i < count) step(Elements<false>{i, std::min(count - i, lanes)});  // tells GCC the bound
}

template <class W, class G>
void sgd_line(const SgdStep& s, size_t count, const G* gradient, float* velocity, W* weight) {
  const Floats d;
  const auto lr = hn::Set(d, s.lr), decay = hn::Set(d, s.decay), momentum = hn::Set(d, s.momentum);
  const auto scale = hn::Set(d, s.gradient_scale);
  for_each_vector(count, [&](auto at) HWY_ATTR {
    const auto w = at.load(weight);
    auto g = hn::MulAdd(decay, w, at.load(gradient));
    if (velocity != nullptr) {
      g = hn::Mul(scale, g);
      const auto v = hn::MulAdd(momentum, at.load(velocity), g);
      at.store(v, velocity);
      g = s.nesterov ? hn::MulAdd(momentum, v, g) : v;
    }
    at.store(hn::NegMulAdd(lr, g, w), weight);
  });
}

template <class W, class G, class T>
void adam_line(const AdamStep& s, size_t count, const G* gradient, float* first, float* second,
               const W* weight, T* target) {
  const Floats d;
  const auto decay = hn::Set(d, s.gradient_decay), keep = hn::Set(d, s.keep);
  const auto from_gradient = hn::Set(d, s.from_gradient), from_square = hn::Set(d, s.from_square);
  const auto beta2 = hn::Set(d, s.beta2), second_scale = hn::Set(d, s.second_scale);
  const auto lr = hn::Set(d, s.lr), epsilon = hn::Set(d, s.epsilon);
  for_each_vector(count, [&](auto at) HWY_ATTR {
    const auto w = at.load(weight);
    const auto g = hn::MulAdd(decay, w, at.load(gradient));
    const auto before = at.load(first);
    const auto m = hn::MulAdd(from_gradient, hn::Sub(g, before), before);
    const auto v = hn::MulAdd(beta2, at.load(second), hn::Mul(from_square, hn::Mul(g, g)));
    const auto scale = hn::MulAdd(second_scale, hn::Sqrt(v), epsilon);
    at.store(m, first);
    at.store(v, second);
    at.store(hn::NegMulAdd(lr, hn::Div(m, scale), hn::Mul(keep, w)), target);
  });
}

template <class T>
HWY_INLINE T* line_of(const program::FieldView& field, uint32_t row) {
  return field.as<T>() + row * field.row_stride;
}

}  // namespace

void sgd(const SgdStep& step, const program::FieldView& gradient, const program::FieldView& velocity,
         const program::FieldView& weight) {
  with_float_types(weight.type, gradient.type, [&]<class W, class G>(W, G) HWY_ATTR {
    for (uint32_t r = 0; r < weight.rows; ++r)
      sgd_line(step, weight.cols, line_of<const G>(gradient, r),
               velocity.data == nullptr ? nullptr : line_of<float>(velocity, r), line_of<W>(weight, r));
  });
}

void adam(const AdamStep& step, const program::FieldView& gradient, const program::FieldView& first,
          const program::FieldView& second, const program::FieldView& weight,
          const program::FieldView& target) {
  with_float_types(weight.type, gradient.type, [&]<class W, class G>(W, G) HWY_ATTR {
    const auto lines = [&]<class T>(T) HWY_ATTR {
      for (uint32_t r = 0; r < weight.rows; ++r)
        adam_line(step, weight.cols, line_of<const G>(gradient, r), line_of<float>(first, r),
                  line_of<float>(second, r), line_of<const W>(weight, r), line_of<T>(target, r));
    };
    target.type == weight.type ? lines(W()) : lines(float());
  });
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(sgd);
HWY_EXPORT(adam);

/// Contiguous matrices are one line each.
void join_lines(std::span<program::FieldView> fields) {
  const auto is_contiguous = [](const program::FieldView& f) { return f.row_stride == f.cols; };
  const uint64_t elements = fields[0].elements();
  if (elements > UINT32_MAX || !std::all_of(fields.begin(), fields.end(), is_contiguous)) return;
  for (program::FieldView& field : fields) field.rows = 1, field.cols = static_cast<uint32_t>(elements);
}

}  // namespace

AdamStep adam_step(float lr, uint32_t step, const AdamSettings& s) {
  const double first_correction = s.bias_correction ? 1 - std::pow(double{s.beta1}, step) : 1;
  const double second_correction = s.bias_correction ? 1 - std::pow(double{s.beta2}, step) : 1;
  AdamStep made;
  made.gradient_decay = s.decoupled ? 0 : s.decay;
  made.keep = s.decoupled ? static_cast<float>(1 - double{lr} * double{s.decay}) : 1;
  made.from_gradient = static_cast<float>(1 - double{s.beta1});
  made.beta2 = s.beta2;
  made.from_square = static_cast<float>(1 - double{s.beta2});
  made.lr = static_cast<float>(double{lr} / first_correction);
  made.second_scale = static_cast<float>(1 / std::sqrt(second_correction));
  made.epsilon = s.epsilon;
  return made;
}

AdamStep adam_direction_step(uint32_t step, const AdamSettings& settings) {
  AdamStep made = adam_step(-1, step, settings);
  made.gradient_decay = 0;
  made.keep = settings.decay;
  return made;
}

void apply_sgd(const SgdStep& step, const program::FieldView& gradient, const program::FieldView& velocity,
               const program::FieldView& weight) {
  if (velocity.data == nullptr) {
    program::FieldView fields[] = {gradient, weight};
    join_lines(fields);
    return HWY_DYNAMIC_DISPATCH(sgd)(step, fields[0], {}, fields[1]);
  }
  program::FieldView fields[] = {gradient, velocity, weight};
  join_lines(fields);
  HWY_DYNAMIC_DISPATCH(sgd)(step, fields[0], fields[1], fields[2]);
}

void apply_adam(const AdamStep& step, const program::FieldView& gradient, const program::FieldView& first,
                const program::FieldView& second, const program::FieldView& weight,
                const program::FieldView& target) {
  program::FieldView fields[] = {gradient, first, second, weight, target};
  join_lines(fields);
  HWY_DYNAMIC_DISPATCH(adam)(step, fields[0], fields[1], fields[2], fields[3], fields[4]);
}

}  // namespace tessera::kernels
#endif
