#include "kernels/host/dense/codelet.h"

#include <algorithm>

#include "kernels/host/dense/layout.h"

namespace tessera::kernels {

TESSERA_DEFINE_FAMILY(dense, TESSERA_DENSE_CODELETS, TESSERA_HOST_CODELET)

namespace {

/// Scratch for `n` rows of sums of `terms` products for each of `cols` columns.
size_t row_scratch(uint32_t n, uint32_t terms, uint32_t cols, bool transposes, bool is_bf16) {
  const size_t floats = DenseRowScratch(n, terms, transposes).total;
  return is_bf16 ? std::max(floats, Bf16RowScratch(n, terms, cols).total) : floats;
}

/// Scratch of a weight gradient that multiplies FP32.
size_t gradient_scratch(uint32_t m, uint32_t k, uint32_t n, Type weights, Type values, bool has_rows,
                        bool sees) {
  const DenseGradientMethod method(values, weights, n, round_up(m, kPanelRows) / kPanelRows, has_rows);
  return DenseGradientScratch(method, k, sees).total;
}

bool are_bf16(Type a, Type b) { return a == Type::bf16 && b == Type::bf16; }

}  // namespace

size_t panel_forward_scratch(uint32_t m, uint32_t k, uint32_t n, Type weights, Type values) {
  return row_scratch(n, k, m, false, are_bf16(weights, values));
}
size_t panel_forward_scratch(uint32_t m, const Window& window, uint32_t images, uint32_t channels, uint32_t n,
                             Type weights, Type values) {
  if (const auto winograd = Winograd::of(window, images, channels, weights, values))
    return WinogradScratch(*winograd, round_up(m, kPanelRows) / kPanelRows).total;
  const size_t floats = DenseRowScratch(n, SeenRows(window, channels)).total;
  if (!are_bf16(weights, values)) return floats;
  return std::max(floats, Bf16RowScratch(n, channels * window.taps(), m).total);
}
size_t panel_input_gradient_scratch(uint32_t m, uint32_t k, uint32_t n, Type weights, Type values) {
  return row_scratch(n, m, k, true, are_bf16(weights, values));
}
size_t panel_input_gradient_scratch(uint32_t m, const Window& window, uint32_t images, uint32_t channels,
                                    uint32_t n, Type weights, Type values) {
  const size_t folded = panel_input_gradient_scratch(m, channels, n, weights, values);
  const uint32_t rows = n / window.out_positions() * window.positions();
  const auto adjoint = DenseAdjoint::of(window, m, images, rows, channels, weights);
  return adjoint ? std::max(folded, adjoint->total) : folded;
}
size_t panel_weight_gradient_scratch(uint32_t m, uint32_t k, uint32_t n, Type weights, Type values,
                                     bool any_strides) {
  const size_t floats = gradient_scratch(m, k, n, weights, values, !any_strides, false);
  return values == Type::bf16 ? std::max(floats, Bf16RowScratch(k, n, m).total) : floats;
}
size_t panel_weight_gradient_scratch(uint32_t m, uint32_t k, const Window& window, uint32_t images,
                                     uint32_t channels, uint32_t n, Type weights, Type values) {
  // A part of the columns is multiplied tap by tap.
  const bool has_all = k == channels * window.taps();
  if (has_all && takes_all_columns(window, images, channels, weights, values))
    return WinogradGradient::kScratch;
  return gradient_scratch(m, k, n, weights, values, false, true);
}

bool takes_all_columns(const Window& window, uint32_t images, uint32_t channels, Type weights, Type values) {
  return Winograd::of(window, images, channels, weights, values).has_value();
}

}  // namespace tessera::kernels
