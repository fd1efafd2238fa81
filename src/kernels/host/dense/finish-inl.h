// The results of dense products from their sums.
#if defined(TESSERA_DENSE_FINISH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_FINISH_INL_H_
#undef TESSERA_DENSE_FINISH_INL_H_
#else
#define TESSERA_DENSE_FINISH_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/activation-inl.h"
#include "kernels/common/bf16_product.h"
#include "kernels/host/dense/copy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What is done with the sums of a product whose results are rows of a batch.
struct DenseEpilogue {
  const FieldView& result;
  const FieldView& bias;
  DenseScalars scalars;
  Activation activation = Activation::none;
  const FieldView* relu = nullptr;  // or empty
};

// Computes rows of the result from rows of sums, kDenseSumStep apart: alpha, bias, beta · the previous
// result, activation, the gradient of a ReLU, rounding.
class RowFinish {
 public:
  explicit RowFinish(const DenseEpilogue& epilogue)
      : e_(epilogue), has_relu_(epilogue.relu != nullptr && !epilogue.relu->empty()) {}

  // Whether all rows of a batch should be finished at once, as the result's columns are contiguous.
  bool wants_batches() const { return !has_contiguous_rows(e_.result); }
  // Whether the sums are the result.
  bool is_plain() const {
    return e_.bias.empty() && e_.scalars.alpha == 1 && e_.scalars.beta == 0 &&
           e_.activation == Activation::none && !has_relu_;
  }

  // Whether sums of whole panels can be stored as the result.
  bool takes_sums() const { return is_plain() && e_.result.type == Type::f32 && !wants_batches(); }

  // May change the sums.
  void operator()(uint32_t col, uint32_t cols, uint32_t row, uint32_t rows, float* sums) const {
    if (wants_batches()) return by_columns(col, cols, row, rows, sums);
    with_float_type(e_.result.type, [&]<class T>(T) HWY_ATTR {
      for (uint32_t r = row; r < row + rows; ++r, sums += kDenseSumStep) {
        T* to = row_of<T>(e_.result, r) + col;
        finish_row(r, col, cols, sums, to, to);
      }
    });
  }

  // Computes a BF16 result, by the processor's BF16 instructions.
  void by_instructions(uint32_t col, uint32_t cols, uint32_t row, uint32_t rows, float* sums) const {
    auto* to = row_of<base::Bfloat16>(e_.result, row) + col;
    if (!is_plain())
      for (uint32_t r = 0; r < rows; ++r) {
        float* of_row = sums + r * kDenseSumStep;
        finish_row(row + r, col, cols, of_row, to + r * e_.result.row_stride, of_row);
      }
    round_to_bf16(sums, kDenseSumStep, rows, cols, to, e_.result.row_stride);
  }

 private:
  // Computes elements from sums and previous ones.
  template <class Before, class T>
  HWY_INLINE void finish_row(uint32_t row, uint32_t col, uint32_t cols, const float* sums,
                             const Before* before, T* to) const {
    if (!has_relu_) return finish_as<false, float>(row, col, cols, sums, before, to);
    with_float_type(e_.relu->type, [&]<class Relu>(Relu)
                                       HWY_ATTR { finish_as<true, Relu>(row, col, cols, sums, before, to); });
  }

  template <bool kHasRelu, class Relu, class Before, class T>
  HWY_INLINE void finish_as(uint32_t row, uint32_t col, uint32_t cols, const float* sums,
                            const Before* before, T* to) const {
    const PanelFloats d;
    const auto [alpha, beta] = e_.scalars;
    const float* bias = e_.bias.empty() ? nullptr : e_.bias.as<const float>() + col;
    const Relu* relu = kHasRelu ? row_of<const Relu>(*e_.relu, row) + col : nullptr;
    each_vector(cols, [&](size_t i, size_t count) HWY_ATTR {
      auto value = hn::LoadU(d, sums + i);
      if (alpha != 1) value = hn::Mul(hn::Set(d, alpha), value);
      if (bias != nullptr) value = hn::Add(value, load_some(bias + i, count));
      if (beta != 0) value = hn::MulAdd(hn::Set(d, beta), load_some(before + i, count), value);
      value = activate(d, e_.activation, value);
      if constexpr (kHasRelu)
        value = hn::IfThenZeroElse(hn::Le(load_some(relu + i, count), hn::Zero(d)), value);
      store_some(value, to + i, count);
    });
  }

  void by_columns(uint32_t col, uint32_t cols, uint32_t row, uint32_t rows, float* sums) const {
    if (!is_plain()) {
      HWY_ALIGN float before[kPanelRows * kDenseSumStep];
      for (uint32_t r = 0; r < rows; ++r) {
        float* of_row = sums + r * kDenseSumStep;
        if (e_.scalars.beta != 0 && r % kPanelRows == 0)
          copy_rows(e_.result, row + r, std::min(kPanelRows, rows - r), col, cols, before, kDenseSumStep);
        finish_row(row + r, col, cols, of_row, before + r % kPanelRows * kDenseSumStep, of_row);
      }
    }
    store_rows(sums, kDenseSumStep, e_.result, row, rows, col, cols);
  }

  const DenseEpilogue e_;
  const bool has_relu_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
