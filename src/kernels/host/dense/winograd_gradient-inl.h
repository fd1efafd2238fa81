// Winograd's weight gradient of one slice.
#if defined(TESSERA_DENSE_WINOGRAD_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_WINOGRAD_GRADIENT_INL_H_
#undef TESSERA_DENSE_WINOGRAD_GRADIENT_INL_H_
#else
#define TESSERA_DENSE_WINOGRAD_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/host/dense/winograd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One dimension of the transformations of gradients and of their products' sums: A and Gᵀ of the paper.
struct GradientLine {
  static constexpr uint32_t kFrom = Winograd::kResults, kTo = Winograd::kSide;
  template <class V>
  static HWY_INLINE void apply(const V* from, V* to, size_t step) {
    to[0] = from[0];
    to[step] = hn::Add(from[0], from[1]);
    to[2 * step] = hn::Sub(from[0], from[1]);
    to[3 * step] = hn::Neg(from[1]);
  }
};
struct TapLine {
  static constexpr uint32_t kFrom = Winograd::kSide, kTo = Winograd::kTaps;
  template <class V>
  static HWY_INLINE void apply(const V* from, V* to, size_t step) {
    const PanelFloats d;
    const V half = hn::Set(d, 0.5F), both = hn::Mul(half, hn::Add(from[1], from[2]));
    to[0] = hn::Add(from[0], both);
    to[step] = hn::Mul(half, hn::Sub(from[1], from[2]));
    to[2 * step] = hn::Add(both, from[3]);
  }
};

// dW = dYᵀ·X in panels, for X that a window sees: for each point of the tiles the products of transformed
// gradients and images, whose sums over all tiles are transformed to taps.
class WinogradWeightGradient {
 public:
  WinogradWeightGradient(const program::Vertex& v, const Winograd& plan, bool adds)
      : v_(v),
        dy_(v.fields[panel_weight_gradient_field::dy]),
        dw_(v.fields[panel_weight_gradient_field::dw]),
        plan_(plan),
        under_(plan_, v.fields[panel_weight_gradient_field::x]),
        scalars_(v.fields[panel_weight_gradient_field::scalars], adds) {
    for (uint32_t p = 0; p < kPoints; ++p) offsets_[p] = p * kImageStep;
  }

  void run() const {
    // Threads without panels can help with parts of the channels of a thread's only panel.
    const uint32_t some = dw_.rows > 1 ? kChannels : kFewChannels;
    const uint32_t groups = (dw_.rows + kPanels - 1) / kPanels, parts = (plan_.channels + some - 1) / some;
    program::share_work(
        v_.helpers, groups * parts, v_.fields[panel_weight_gradient_field::scratch].as<float>(),
        [&](uint32_t i, std::byte* of_thread) {
          const uint32_t panel = i / parts * kPanels, channel = i % parts * some;
          run({panel, std::min(kPanels, dw_.rows - panel), channel, std::min(some, plan_.channels - channel)},
              reinterpret_cast<float*>(of_thread));
        });
  }

 private:
  using Vector = hn::Vec<PanelFloats>;
  static constexpr uint32_t kSide = Winograd::kSide, kPoints = Winograd::kPoints;
  static constexpr uint32_t kTogether = WinogradGradient::kTogether, kPanels = WinogradGradient::kPanels;
  static constexpr uint32_t kChannels = WinogradGradient::kChannels, kFewChannels = 32;
  // From point to point, and from panel to panel.
  static constexpr size_t kImageStep = size_t{kTogether} * WinogradGradient::kRowStep;
  static constexpr size_t kGradientPanel = size_t{kTogether} * kPanelRows;
  static constexpr size_t kGradientStep = kPanels * kGradientPanel;
  static constexpr size_t kSumPanel = size_t{kChannels} * kPanelRows, kSumStep = kPanels * kSumPanel;

  struct Part {
    uint32_t panel, panels, channel, channels;
  };

  void run(const Part& part, float* scratch) const {
    const uint32_t tiles = dy_.rows / plan_.window.out_positions() * plan_.tiles_of_image();
    for (uint32_t tile = 0; tile < tiles; tile += kTogether) {
      const uint32_t count = std::min(kTogether, tiles - tile);
      for (uint32_t i = 0; i < count; ++i) {
        under_.transform_tile(tile + i, part.channel, part.channels, offsets_,
                              scratch + WinogradGradient::kImages + i * WinogradGradient::kRowStep);
        transform_gradients(tile + i, part, scratch + WinogradGradient::kGradients + size_t{i} * kPanelRows);
      }
      multiply(part, count, tile > 0, scratch);
    }
    for (uint32_t p = 0; p < part.panels; ++p)
      finish(part, part.panel + p, scratch + WinogradGradient::kSums + p * kSumPanel);
  }

  // The outputs of each position of a tile from a panel on, or zeros.
  std::array<const float*, Winograd::kResults * Winograd::kResults> positions_of(uint32_t tile) const {
    const Window& w = plan_.window;
    const Winograd::Place place = plan_.place_of(tile);
    std::array<const float*, Winograd::kResults * Winograd::kResults> at;
    for (uint32_t p = 0; p < at.size(); ++p) {
      const uint32_t row = place.row + p / Winograd::kResults, col = place.col + p % Winograd::kResults;
      const bool is_inside = row < w.out_height && col < w.out_width;
      at[p] = is_inside ? row_of<const float>(dy_, (place.image * w.out_height + row) * w.out_width + col)
                        : nullptr;
    }
    return at;
  }

  void transform_gradients(uint32_t tile, const Part& part, float* to) const {
    const PanelFloats d;
    const auto at = positions_of(tile);
    const size_t first = size_t{part.panel} * kPanelRows, outputs = dy_.cols - first;
    for (size_t i = 0; i < size_t{part.panels} * kPanelRows; i += kPanelLanes) {
      const size_t count = i < outputs ? std::min(kPanelLanes, outputs - i) : 0;
      float* const points = to + i / kPanelRows * kGradientPanel + i % kPanelRows;
      transform<GradientLine>(
          [&](uint32_t r, uint32_t c) HWY_ATTR {
            const float* position = at[r * Winograd::kResults + c];
            return position == nullptr || count == 0 ? hn::Zero(d) : load_some(position + first + i, count);
          },
          [&](uint32_t r, uint32_t c, Vector point)
              HWY_ATTR { hn::StoreU(point, d, points + (r * kSide + c) * kGradientStep); });
    }
  }

  void multiply(const Part& part, uint32_t count, bool adds, float* scratch) const {
    for (uint32_t p = 0; p < kPoints; ++p) {
      const float* const gradients = scratch + WinogradGradient::kGradients + p * kGradientStep;
      const MicroTile<float> tile = {.panels = gradients,
                                     .panel_step = kGradientPanel,
                                     .factors = scratch + WinogradGradient::kImages + p * kImageStep,
                                     .factor_step = WinogradGradient::kRowStep,
                                     .depth = count,
                                     .sums = scratch + WinogradGradient::kSums + p * kSumStep,
                                     .sums_step = kSumPanel,
                                     .adds = adds,
                                     .next = gradients};
      run_micro_tiles<kAlongRow>(tile, part.panels, part.channels, [](uint32_t, uint32_t) {});
    }
  }

  // Transforms the sums of a panel to the taps of its part of dW, with zeros beyond the outputs.
  void finish(const Part& part, uint32_t panel, const float* sums) const {
    const PanelFloats d;
    const size_t outputs = std::min<size_t>(kPanelRows, dy_.cols - size_t{panel} * kPanelRows);
    const size_t tap_step = size_t{plan_.channels} * kPanelRows;
    float* const dw = row_of<float>(dw_, panel) + size_t{part.channel} * kPanelRows;
    for (size_t i = 0; i < size_t{part.channels} * kPanelRows; i += kPanelLanes) {
      const auto is_output = hn::FirstN(d, outputs - std::min(outputs, i % kPanelRows));
      transform<TapLine>([&](uint32_t r, uint32_t c)
                             HWY_ATTR { return hn::LoadU(d, sums + (r * kSide + c) * kSumStep + i); },
                         [&](uint32_t r, uint32_t c, Vector sum) HWY_ATTR {
                           float* const to = dw + (r * Winograd::kTaps + c) * tap_step + i;
                           Vector value = hn::Mul(hn::Set(d, scalars_.alpha), sum);
                           if (scalars_.beta != 0)
                             value = hn::MulAdd(hn::Set(d, scalars_.beta), hn::LoadU(d, to), value);
                           hn::StoreU(hn::IfThenElseZero(is_output, value), d, to);
                         });
    }
  }

  const program::Vertex& v_;
  const FieldView& dy_;
  const FieldView& dw_;
  const Winograd plan_;
  const WinogradImages under_;
  const DenseScalars scalars_;
  std::array<size_t, kPoints> offsets_ = {};  // from tile to point
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
