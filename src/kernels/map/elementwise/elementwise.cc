#include "kernels/map/elementwise/elementwise.h"

#include <cmath>

#include "base/integer_types.h"
#include "base/simd.h"
#include "kernels/common/lines.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/elementwise/elementwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/activation-inl.h"
#include "kernels/common/convert-inl.h"
#include "kernels/common/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

template <Unary op>
struct UnaryOperation {
  float factor;

  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V x) const {
    if constexpr (op == Unary::relu) return activate(d, Activation::relu, x);
    if constexpr (op == Unary::gelu) return activate(d, Activation::gelu, x);
    if constexpr (op == Unary::gelu_tanh) return gelu_tanh(d, x);
    if constexpr (op == Unary::silu) return silu(d, x);
    if constexpr (op == Unary::neg) return hn::Neg(x);
    if constexpr (op == Unary::scale) return hn::Mul(hn::Set(d, factor), x);
    if constexpr (op == Unary::exp) return exponential(d, x);
    if constexpr (op == Unary::log) return logarithm(d, x);
    if constexpr (op == Unary::sqrt) return hn::Sqrt(x);
    if constexpr (op == Unary::rsqrt) return hn::Div(hn::Set(d, 1.0F), hn::Sqrt(x));
    if constexpr (op == Unary::reciprocal) return hn::Div(hn::Set(d, 1.0F), x);
    if constexpr (op == Unary::tanh) return hn::Tanh(d, x);
    if constexpr (op == Unary::sigmoid) return sigmoid(d, x);
    if constexpr (op == Unary::erf) return error_function(d, x);
    if constexpr (op == Unary::sin) return sine(d, x);
    if constexpr (op == Unary::cos) return cosine(d, x);
    if constexpr (op == Unary::square) return hn::Mul(x, x);
    if constexpr (op == Unary::abs) return hn::Abs(x);
    if constexpr (op == Unary::offset) return hn::Add(x, hn::Set(d, factor));
  }
};

/// Lane by lane: the quotient may have more digits than a lane.
template <class D, class V>
HWY_INLINE V remainder(D d, V a, V b) {
  HWY_ALIGN float x[hn::MaxLanes(d)], y[hn::MaxLanes(d)];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  for (size_t i = 0; i < hn::Lanes(d); ++i) x[i] = std::fmod(x[i], y[i]);
  return hn::Load(d, x);
}

template <Binary op>
struct BinaryOperation {
  float factor;

  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V a, V b) const {
    if constexpr (op == Binary::add) return hn::Add(a, b);
    if constexpr (op == Binary::sub) return hn::Sub(a, b);
    if constexpr (op == Binary::mul) return hn::Mul(a, b);
    if constexpr (op == Binary::add_scaled) return hn::MulAdd(hn::Set(d, factor), b, a);
    if constexpr (op == Binary::div) return hn::Div(a, b);
    if constexpr (op == Binary::fmod) return remainder(d, a, b);
    if constexpr (op == Binary::maximum) return maximum(a, b);
    if constexpr (op == Binary::minimum) return minimum(a, b);
    if constexpr (op == Binary::equal) return hn::IfThenElseZero(hn::Eq(a, b), hn::Set(d, 1.0F));
    if constexpr (op == Binary::not_equal) return hn::IfThenZeroElse(hn::Eq(a, b), hn::Set(d, 1.0F));
    if constexpr (op == Binary::less) return hn::IfThenElseZero(hn::Lt(a, b), hn::Set(d, 1.0F));
    if constexpr (op == Binary::less_equal) return hn::IfThenElseZero(hn::Le(a, b), hn::Set(d, 1.0F));
    if constexpr (op == Binary::relu_gradient) return hn::IfThenZeroElse(hn::Le(b, hn::Zero(d)), a);
    if constexpr (op == Binary::gelu_gradient) return hn::Mul(a, gelu_gradient(d, b));
    if constexpr (op == Binary::gelu_tanh_gradient) return hn::Mul(a, gelu_tanh_gradient(d, b));
    if constexpr (op == Binary::silu_gradient) return hn::Mul(a, silu_gradient(d, b));
    if constexpr (op == Binary::tanh_gradient) return hn::Mul(a, hn::NegMulAdd(b, b, hn::Set(d, 1.0F)));
    if constexpr (op == Binary::sigmoid_gradient) return hn::Mul(hn::Mul(a, b), hn::Sub(hn::Set(d, 1.0F), b));
  }
};

struct Where {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V condition, V a, V b) const {
    return hn::IfThenElse(hn::Eq(condition, hn::Zero(d)), b, a);
  }
};

template <class Operation>
void unary_run(Type type, const Operation& operation, const std::byte* in, size_t count, std::byte* out) {
  with_float_type(type, [&]<class T>(T) HWY_ATTR {
    map_elements(operation, count, reinterpret_cast<T*>(out), reinterpret_cast<const T*>(in));
  });
}

/// Integers: loops that the compiler turns into vectors.
template <Binary op>
void integer_run(Type type, const std::byte* a, const std::byte* b, size_t count, std::byte* out) {
  with_integer_type(type, [&]<class T>(T) {
    const auto *x = reinterpret_cast<const T*>(a), *y = reinterpret_cast<const T*>(b);
    auto* to = reinterpret_cast<T*>(out);
    for (size_t i = 0; i < count; ++i) to[i] = of_integers<op>(x[i], y[i]);
  });
}

void integer_choices(const std::byte* condition, const std::byte* a, const std::byte* b, size_t count,
                     std::byte* out) {
  const auto words = [](const std::byte* of) { return reinterpret_cast<const uint32_t*>(of); };
  auto* to = reinterpret_cast<uint32_t*>(out);
  for (size_t i = 0; i < count; ++i) to[i] = words(condition)[i] != 0 ? words(a)[i] : words(b)[i];
}

template <class Operation>
void binary_run(Type type, const Operation& operation, const std::byte* a, const std::byte* b, size_t count,
                std::byte* out) {
  with_float_type(type, [&]<class T>(T) HWY_ATTR {
    map_elements(operation, count, reinterpret_cast<T*>(out), reinterpret_cast<const T*>(a),
                 reinterpret_cast<const T*>(b));
  });
}

}  // namespace

void unary(Unary op, Type type, float factor, const std::byte* in, size_t count, std::byte* out) {
  switch (op) {
#define TESSERA_CASE(name) \
  case Unary::name: return unary_run(type, UnaryOperation<Unary::name>{factor}, in, count, out);
    TESSERA_UNARY_OPERATIONS(TESSERA_CASE)
#undef TESSERA_CASE
  }
}

void binary(Binary op, Type type, float factor, const std::byte* a, const std::byte* b, size_t count,
            std::byte* out) {
  switch (op) {
#define TESSERA_CASE(name)                                                            \
  case Binary::name:                                                                  \
    if constexpr (takes_integers(Binary::name))                                       \
      if (is_integer(type)) return integer_run<Binary::name>(type, a, b, count, out); \
    return binary_run(type, BinaryOperation<Binary::name>{factor}, a, b, count, out);
    TESSERA_BINARY_OPERATIONS(TESSERA_CASE)
#undef TESSERA_CASE
  }
}

/// FP32 a + factor · b, where b has another type.
void add_to_wide(Type type, float factor, const std::byte* a, const std::byte* b, size_t count,
                 std::byte* out) {
  with_float_type(type, [&]<class T>(T) HWY_ATTR {
    map_elements(BinaryOperation<Binary::add_scaled>{factor}, count, reinterpret_cast<float*>(out),
                 reinterpret_cast<const float*>(a), reinterpret_cast<const T*>(b));
  });
}

void where(Type type, const std::byte* condition, const std::byte* a, const std::byte* b, size_t count,
           std::byte* out) {
  if (is_integer(type)) return integer_choices(condition, a, b, count, out);
  with_float_type(type, [&]<class T>(T) HWY_ATTR {
    map_elements(Where{}, count, reinterpret_cast<T*>(out), reinterpret_cast<const T*>(condition),
                 reinterpret_cast<const T*>(a), reinterpret_cast<const T*>(b));
  });
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(unary);
HWY_EXPORT(binary);
HWY_EXPORT(add_to_wide);
HWY_EXPORT(where);

void run_unary(Unary op, Type type, float factor, const std::byte* in, size_t count, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(unary)(op, type, factor, in, count, out);
}

void run_binary(Binary op, Type type, float factor, const std::byte* a, const std::byte* b, size_t count,
                std::byte* out) {
  HWY_DYNAMIC_DISPATCH(binary)(op, type, factor, a, b, count, out);
}

void run_where(Type type, const std::byte* condition, const std::byte* a, const std::byte* b, size_t count,
               std::byte* out) {
  HWY_DYNAMIC_DISPATCH(where)(type, condition, a, b, count, out);
}

void apply_unary(Unary op, float factor, const program::FieldView& in, const program::FieldView& out) {
  for_each_run<2>({in, out}, [&](const std::array<std::byte*, 2>& at, size_t count) {
    run_unary(op, in.type, factor, at[0], count, at[1]);
  });
}

void apply_binary(Binary op, float factor, const program::FieldView& a, const program::FieldView& b,
                  const program::FieldView& out) {
  const std::array fields = {broadcast_to(a, out), broadcast_to(b, out), out};
  for_each_run<3>(fields, [&](const std::array<std::byte*, 3>& at, size_t count) {
    if (b.type == a.type)
      run_binary(op, a.type, factor, at[0], at[1], count, at[2]);
    else
      HWY_DYNAMIC_DISPATCH(add_to_wide)(b.type, factor, at[0], at[1], count, at[2]);
  });
}

void apply_where(const program::FieldView& condition, const program::FieldView& a,
                 const program::FieldView& b, const program::FieldView& out) {
  const std::array fields = {broadcast_to(condition, out), broadcast_to(a, out), broadcast_to(b, out), out};
  for_each_run<4>(fields, [&](const std::array<std::byte*, 4>& at, size_t count) {
    run_where(out.type, at[0], at[1], at[2], count, at[3]);
  });
}

}  // namespace tessera::kernels
#endif
