#include "kernels/host/dense/codelet.h"
#include "kernels/samples/list.h"
#include "kernels/samples/windows.h"

namespace tessera::kernels {
namespace {

using enum Type;

/// Sums of `terms` products below 1, in another order, rounded to a type.
Tolerance sum_tolerance(Type type, double terms) {
  const double rounding = type == f32 ? 0 : epsilon_of(type);
  return {.relative = rounding, .absolute = (terms + 4) * epsilon_of(f32) + rounding * 0x1p-10};
}

/// W in panels: random, zeros beyond m.
void add_panels(Sample& s, Type type, uint32_t m, uint32_t k, uint64_t seed) {
  const uint32_t panels = (m + kPanelRows - 1) / kPanelRows;
  s.random(type, panels, k * kPanelRows, seed);
}

/// At scale 128, 1027 × 1031 (m × k), or m alone is fixed.
uint32_t features(uint32_t scale) { return scale == 0 ? 0 : 3 + 8 * scale; }
uint32_t inputs(uint32_t scale) { return scale == 0 ? 0 : 7 + 8 * scale; }

template <uint32_t n, Activation activation, bool has_bias, Type weights = f32, Type values = f32,
          uint32_t fixed_m = 0, bool adds = false>
Sample forward_sample(uint32_t scale, uint64_t seed) {
  const uint32_t m = fixed_m != 0 ? fixed_m : features(scale), k = inputs(scale);
  Sample s(adds ? panel_forward_add_codelet : panel_forward_codelet);
  s.random(values, n, k, seed);
  add_panels(s, weights, m, k, seed + 1);
  s.random(f32, 1, has_bias ? m : 0, seed + 2).random(f32, 1, 0, seed);
  add_window(s, false, false);
  adds ? s.random(values, n, m, seed + 3) : s.unset(values, n, m);
  s.scratch(panel_forward_scratch(m, k, n, weights, values));
  s.param(static_cast<int64_t>(activation)).param(0);
  return s.tolerance(sum_tolerance(values, k)).flops(2.0 * m * k * n);
}

/// A product of the elements under a window.
Sample sample_under(const Window& window, uint32_t channels, uint32_t n, Type values, uint32_t scale,
                    uint64_t seed, uint32_t planned_images = kSampleImages) {
  const uint32_t m = features(scale), k = channels * window.taps();
  Sample s(panel_forward_codelet);
  s.random(values, kSampleImages * window.positions(), channels, seed);
  add_panels(s, values, m, k, seed + 1);
  s.random(f32, 1, m, seed + 2).random(f32, 1, 0, seed);
  add_window(s, true, window);
  s.unset(values, n, m)
      .scratch(panel_forward_scratch(m, window, planned_images, channels, n, values, values));
  s.param(static_cast<int64_t>(Activation::relu)).param(kFirstPosition);
  return s.tolerance(sum_tolerance(values, k)).flops(2.0 * m * k * n);
}
template <uint32_t n, bool strided, Type values = f32>
Sample seen_sample(uint32_t scale, uint64_t seed) {
  return sample_under(sample_window(strided), 5 * scale, n, values, scale, seed);
}
/// By Winograd's products, if there are enough channels.
template <uint32_t n, uint32_t planned_images = kSampleImages>
Sample winograd_sample(uint32_t scale, uint64_t seed) {
  return sample_under(sample_window_of_tiles(), 7 * scale, n, f32, scale, seed, planned_images);
}

template <uint32_t n, bool has_relu, Type weights = f32, Type values = f32, uint32_t fixed_m = 0>
Sample input_sample(uint32_t scale, uint64_t seed) {
  const uint32_t m = fixed_m != 0 ? fixed_m : features(scale), k = inputs(scale);
  Sample s(panel_input_gradient_codelet);
  s.random(values, n, m, seed);
  add_panels(s, weights, m, k, seed + 1);
  s.random(values, has_relu ? n : 0, k, seed + 2).random(f32, 1, 0, seed).random(f32, 1, 0, seed);
  add_window(s, false, false);
  s.unset(values, n, k).scratch(panel_input_gradient_scratch(m, k, n, weights, values));
  s.param(static_cast<int64_t>(Activation::none)).param(0).param(0);
  return s.tolerance(sum_tolerance(values, m)).flops(2.0 * m * k * n);
}

/// Adds to images, except their first channels.
Sample sample_folded_under(const Window& window, bool has_relu, Type weights, uint32_t m, uint32_t scale,
                           uint64_t seed) {
  const uint32_t channels = 5 * scale;
  const uint32_t first = scale == 0 ? 0 : 2, own = channels - first;
  const uint32_t n = kSampleImages * window.out_positions(), rows = kSampleImages * window.positions();
  Sample s(panel_input_gradient_codelet);
  s.random(f32, n, m, seed);
  add_panels(s, weights, m, channels * window.taps(), seed + 1);
  s.random(f32, has_relu ? rows : 0, own, seed + 2).random(f32, 1, 0, seed).random(f32, 1, 1, seed).packed();
  add_window(s, true, window);
  s.unset(f32, rows, own)
      .scratch(panel_input_gradient_scratch(m, window, kSampleImages, own, n, weights, f32));
  s.param(static_cast<int64_t>(Activation::none)).param(first).param(kSampleImages);
  const uint32_t terms = m * window.taps();
  return s.tolerance(sum_tolerance(f32, terms)).flops(2.0 * terms * own * n);
}
template <bool strided, bool has_relu, Type weights = f32, uint32_t fixed_m = 0>
Sample folded_input_sample(uint32_t scale, uint64_t seed) {
  const uint32_t m = fixed_m != 0 ? fixed_m : features(scale);
  return sample_folded_under(sample_window(strided), has_relu, weights, m, scale, seed);
}
/// By Winograd's products, if there are enough outputs.
template <uint32_t m>
Sample winograd_input_sample(uint32_t scale, uint64_t seed) {
  return sample_folded_under(sample_window_of_tiles(), true, f32, m, scale, seed);
}

template <uint32_t n, bool adds, Type gradients = f32, Type values = f32, uint32_t fixed_m = 0>
Sample weight_sample(uint32_t scale, uint64_t seed) {
  const uint32_t m = fixed_m != 0 ? fixed_m : features(scale), k = inputs(scale);
  Sample s(adds ? panel_weight_gradient_add_codelet : panel_weight_gradient_codelet);
  s.random(values, n, m, seed).random(values, n, k, seed + 1).random(f32, 1, 0, seed);
  add_window(s, false, false);
  const uint32_t panels = (m + kPanelRows - 1) / kPanelRows;
  if (adds)
    s.random(gradients, panels, k * kPanelRows, seed + 2);
  else
    s.unset(gradients, panels, k * kPanelRows);
  s.scratch(panel_weight_gradient_scratch(m, k, n, gradients, values)).param(0);
  return s.tolerance(sum_tolerance(gradients, n)).flops(2.0 * m * k * n);
}

/// A gradient for the elements under a window, except some first columns.
Sample sample_weight_under(const Window& window, uint32_t channels, uint32_t first, uint32_t n, bool adds,
                           Type values, uint32_t m, uint64_t seed) {
  const uint32_t k = channels * window.taps() - first;
  Sample s(adds ? panel_weight_gradient_add_codelet : panel_weight_gradient_codelet);
  s.random(values, n, m, seed).random(values, kSampleImages * window.positions(), channels, seed + 1);
  s.random(f32, 1, 0, seed);
  add_window(s, true, window);
  const uint32_t panels = (m + kPanelRows - 1) / kPanelRows;
  adds ? s.random(f32, panels, k * kPanelRows, seed + 2) : s.unset(f32, panels, k * kPanelRows);
  s.scratch(panel_weight_gradient_scratch(m, k, window, kSampleImages, channels, n, f32, values))
      .param(first);
  return s.tolerance(sum_tolerance(f32, n)).flops(2.0 * m * k * n);
}
template <uint32_t n, bool strided, bool adds, Type values = f32, uint32_t fixed_m = 0>
Sample seen_weight_sample(uint32_t scale, uint64_t seed) {
  const uint32_t m = fixed_m != 0 ? fixed_m : features(scale);
  return sample_weight_under(sample_window(strided), 5 * scale, scale == 0 ? 0 : 7, n, adds, values, m, seed);
}
/// By Winograd's products, if there are enough channels.
template <uint32_t m, bool adds>
Sample winograd_weight_sample(uint32_t scale, uint64_t seed) {
  const Window window = sample_window_of_tiles();
  return sample_weight_under(window, 7 * scale, 0, kSampleImages * window.out_positions(), adds, f32, m,
                             seed);
}

/// Products of a caller's matrices, in any strides: with a bias, alpha and beta.
template <uint32_t n, ProductKind product, bool adds, Activation activation = Activation::none,
          uint32_t fixed_m = 0>
Sample strided_sample(uint32_t scale, uint64_t seed) {
  const uint32_t m = fixed_m != 0 ? fixed_m : features(scale), k = inputs(scale);
  const bool is_forward = product == ProductKind::forward, is_weight = product == ProductKind::sddmm;
  Sample s(is_weight    ? (adds ? panel_weight_gradient_add_codelet : panel_weight_gradient_codelet)
           : is_forward ? (adds ? panel_forward_add_codelet : panel_forward_codelet)
                        : (adds ? panel_input_gradient_add_codelet : panel_input_gradient_codelet));
  s.random(f32, n, is_forward ? k : m, seed);
  if (is_weight)
    s.random(f32, n, k, seed + 1);
  else
    add_panels(s, f32, m, k, seed + 1);
  if (!is_weight) s.packed();
  if (!is_weight && !is_forward) s.random(f32, 0, k, seed);
  if (!is_weight) s.random(f32, 1, is_forward ? m : k, seed + 2).packed();
  s.random(f32, 1, 2, seed + 3).packed();
  add_window(s, false, false);
  const uint32_t panels = (m + kPanelRows - 1) / kPanelRows;
  const uint32_t rows = is_weight ? panels : n, cols = is_weight ? k * kPanelRows : is_forward ? m : k;
  adds ? s.random(f32, rows, cols, seed + 4) : s.unset(f32, rows, cols);
  if (is_weight) s.packed();
  s.scratch(is_weight    ? panel_weight_gradient_scratch(m, k, n, f32, f32, true)
            : is_forward ? panel_forward_scratch(m, k, n, f32, f32)
                         : panel_input_gradient_scratch(m, k, n, f32, f32));
  if (!is_weight) s.param(static_cast<int64_t>(activation));
  s.param(0);
  if (!is_weight && !is_forward) s.param(0);
  return s.tolerance(sum_tolerance(f32, is_weight ? n : is_forward ? k : m)).flops(2.0 * m * k * n);
}

constexpr ProductKind forward = ProductKind::forward, input_gradient = ProductKind::input_gradient,
                      sddmm = ProductKind::sddmm;
constexpr Activation none = Activation::none, relu = Activation::relu, gelu = Activation::gelu;

constexpr NamedSample panel_forward_uses[] = {
    {"n1", forward_sample<1, none, false>},
    {"n16-relu", forward_sample<16, relu, true>},
    {"n50-relu", forward_sample<50, relu, true>},
    {"n50-m10", forward_sample<50, none, true, f32, f32, 10>},
    {"n397-gelu", forward_sample<397, gelu, true>},
    {"n21-gelu_tanh", forward_sample<21, Activation::gelu_tanh, true>},
    {"n21-silu", forward_sample<21, Activation::silu, true>},
    {"n21-relu6", forward_sample<21, Activation::relu6, true>},
    {"n37-f16", forward_sample<37, relu, true, f16, f16>},
    {"n37-bf16-f32", forward_sample<37, none, false, bf16, f32>},
    {"n1-bf16", forward_sample<1, none, false, bf16, bf16>},
    {"n37-bf16", forward_sample<37, relu, true, bf16, bf16>},
    {"n77-bf16-m10", forward_sample<77, none, true, bf16, bf16, 10>},
    {"n530-bf16-m600", forward_sample<530, gelu, true, bf16, bf16, 600>},
    {"n1-strided", strided_sample<1, forward, false>},
    {"n50-strided", strided_sample<50, forward, false, relu>},
    {"n397-strided", strided_sample<397, forward, false>},
    {"n101-seen", seen_sample<101, false>},
    {"n40-seen-strided", seen_sample<40, true>},
    {"n383-seen-tiles", winograd_sample<383>},
    {"n28-seen-tiles", winograd_sample<28>},
    {"n383-seen-tiles-little-scratch", winograd_sample<383, 1>},
    {"n37-seen-f16", seen_sample<37, false, f16>},
    {"n101-seen-bf16", seen_sample<101, false, bf16>},
    {"n40-seen-strided-bf16", seen_sample<40, true, bf16>},
};

constexpr NamedSample panel_forward_add_uses[] = {
    {"n50-relu", forward_sample<50, relu, true, f32, f32, 0, true>},
    {"n8-strided", strided_sample<8, forward, true>},
    {"n50-strided", strided_sample<50, forward, true, gelu>},
    {"n37-f16", forward_sample<37, none, true, f16, f16, 0, true>},
    {"n37-bf16", forward_sample<37, gelu, true, bf16, bf16, 0, true>},
};

constexpr NamedSample panel_input_gradient_uses[] = {
    {"n1", input_sample<1, false>},
    {"n16-relu", input_sample<16, true>},
    {"n50", input_sample<50, false>},
    {"n50-m10-relu", input_sample<50, true, f32, f32, 10>},
    {"n64", input_sample<64, false>},
    {"n50-m300", input_sample<50, true, f32, f32, 300>},
    {"n51-m1100", input_sample<51, false, f32, bf16, 1100>},
    {"n397", input_sample<397, false>},
    {"n37-f16", input_sample<37, true, f16, f16>},
    {"n37-bf16", input_sample<37, false, bf16, bf16>},
    {"n1-bf16-relu", input_sample<1, true, bf16, bf16>},
    {"n77-bf16-m10", input_sample<77, false, bf16, bf16, 10>},
    {"n51-bf16-m600", input_sample<51, true, bf16, bf16, 600>},
    {"n1-strided", strided_sample<1, input_gradient, false>},
    {"n50-strided", strided_sample<50, input_gradient, false, relu>},
    {"n64-strided-m300", strided_sample<64, input_gradient, false, none, 300>},
    {"n397-strided", strided_sample<397, input_gradient, false>},
    {"folded", folded_input_sample<false, false>},
    {"folded-relu-m32", folded_input_sample<false, true, f32, 32>},
    {"folded-f32-bf16-m10", folded_input_sample<false, false, bf16, 10>},
    {"folded-relu-m300", folded_input_sample<false, true, f32, 300>},
    {"folded-tiles-m40", winograd_input_sample<40>},
    {"folded-tiles-m300", winograd_input_sample<300>},
    {"folded-strided-relu", folded_input_sample<true, true>},
    {"folded-f32-bf16-m1100", folded_input_sample<true, false, bf16, 1100>},
};

constexpr NamedSample panel_input_gradient_add_uses[] = {
    {"n1-strided", strided_sample<1, input_gradient, true>},
    {"n50-strided-m1100", strided_sample<50, input_gradient, true, gelu, 1100>},
    {"n64-strided-m300", strided_sample<64, input_gradient, true, none, 300>},
};

constexpr NamedSample panel_weight_gradient_uses[] = {
    {"n1", weight_sample<1, false>},
    {"n16", weight_sample<16, false>},
    {"n50", weight_sample<50, false>},
    {"n50-m10", weight_sample<50, false, f32, f32, 10>},
    {"n397", weight_sample<397, false>},
    {"n397-m140", weight_sample<397, false, f32, f32, 140>},
    {"n300-f32-f16", weight_sample<300, false, f32, f16>},
    {"n37-f16", weight_sample<37, false, f16, f16>},
    {"n37-f32-bf16", weight_sample<37, false, f32, bf16>},
    {"n1-bf16", weight_sample<1, false, bf16, bf16>},
    {"n77-bf16-m10", weight_sample<77, false, bf16, bf16, 10>},
    {"n600-bf16", weight_sample<600, false, bf16, bf16>},
    {"n1-strided", strided_sample<1, sddmm, false>},
    {"n50-strided", strided_sample<50, sddmm, false>},
    {"n300-strided-m140", strided_sample<300, sddmm, false, none, 140>},
    {"n101-seen", seen_weight_sample<101, false, false>},
    {"n40-seen-strided", seen_weight_sample<40, true, false>},
    {"n198-seen-m140", seen_weight_sample<198, false, false, f32, 140>},
    {"n40-seen-strided-bf16", seen_weight_sample<40, true, false, bf16>},
    {"seen-tiles-m10", winograd_weight_sample<10, false>},
    {"seen-tiles-m140", winograd_weight_sample<140, false>},
};

constexpr NamedSample panel_weight_gradient_add_uses[] = {
    {"n50", weight_sample<50, true>},
    {"n50-m10", weight_sample<50, true, f32, f32, 10>},
    {"n397-m140", weight_sample<397, true, f32, f32, 140>},
    {"n8-strided", strided_sample<8, sddmm, true>},
    {"n300-strided-m140", strided_sample<300, sddmm, true, none, 140>},
    {"n37-bf16", weight_sample<37, true, bf16, bf16>},
    {"n50-f32-bf16", weight_sample<50, true, f32, bf16>},
    {"n101-seen-m10", seen_weight_sample<101, false, true, f32, 10>},
    {"n198-seen-m32", seen_weight_sample<198, false, true, f32, 32>},
    {"seen-tiles-m60", winograd_weight_sample<60, true>},
};

}  // namespace

TESSERA_DEFINE_SAMPLES(dense, TESSERA_DENSE_CODELETS)

}  // namespace tessera::kernels
