// One thread's slice of a dense product: the boxes of its operands.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/host/dense/codelet.h"
#include "ops/batch_fields.h"
#include "ops/dense/host/host_dense.h"

namespace tessera::ops {

/// The operand of a field of the product's codelet.
enum class DenseRole : uint8_t { x, w, bias, relu, scalars, window, y, scratch };

inline const program::Codelet& dense_codelet(const HostDenseProblem& p) {
  if (p.product == ProductKind::forward)
    return p.adds ? kernels::panel_forward_add_codelet : kernels::panel_forward_codelet;
  if (p.product == ProductKind::input_gradient)
    return p.adds ? kernels::panel_input_gradient_add_codelet : kernels::panel_input_gradient_codelet;
  return p.adds ? kernels::panel_weight_gradient_add_codelet : kernels::panel_weight_gradient_codelet;
}

/// Name of a product with a dense W, where the weight gradient samples nothing and is not called SDDMM.
inline std::string_view dense_name(ProductKind product) {
  return product == ProductKind::sddmm ? "weight gradient" : name_of(product);
}

/// The operand of each field, in the order of the codelet.
inline std::span<const DenseRole> dense_roles(ProductKind product) {
  using enum DenseRole;
  static constexpr DenseRole kForward[] = {x, w, bias, scalars, window, y, scratch};
  static constexpr DenseRole kInputGradient[] = {y, w, relu, bias, scalars, window, x, scratch};
  static constexpr DenseRole kWeightGradient[] = {y, x, scalars, window, w, scratch};
  if (product == ProductKind::forward) return kForward;
  if (product == ProductKind::input_gradient) return kInputGradient;
  return kWeightGradient;
}

/// Number of images; 0: X is a matrix.
inline uint32_t image_count(const HostDenseProblem& p) {
  return p.window ? p.n / p.window->out_positions() : 0;
}

/// Shape of the images, if X consists of the elements under a window in them.
struct DenseImages {
  uint32_t rows, cols;
};
inline DenseImages images_of(const HostDenseProblem& p) {
  return {image_count(p) * p.window->positions(), p.k / p.window->taps()};
}

/// Whether the result is added to images under the window; and columns of dX.
inline bool folds(const HostDenseProblem& p) { return p.product == ProductKind::input_gradient && p.window; }
inline uint32_t cols_of_dx(const HostDenseProblem& p) { return folds(p) ? images_of(p).cols : p.k; }

/// Whether only panels of dW are divided.
inline bool takes_all_columns(const HostDenseProblem& p) {
  return p.product == ProductKind::sddmm && p.window &&
         kernels::takes_all_columns(*p.window, image_count(p), images_of(p).cols, p.weights, p.values);
}

/// Panels [panel, panel + panels) and columns of W, rows of the batch. Of an input gradient with a window,
/// columns are channels.
struct DensePart {
  uint32_t panel, panels;
  uint32_t col, cols;
  uint32_t row, rows;
};

/// Number of scratch floats of a part.
inline size_t scratch_floats(const HostDenseProblem& p, const DensePart& part) {
  const uint32_t features = part.panels * PanelLayout::kRows;
  if (p.product == ProductKind::sddmm && p.window)
    return kernels::panel_weight_gradient_scratch(features, part.cols, *p.window, image_count(p),
                                                  images_of(p).cols, part.rows, p.weights, p.values);
  if (p.product == ProductKind::sddmm)
    return kernels::panel_weight_gradient_scratch(features, part.cols, part.rows, p.weights, p.values,
                                                  p.arrays.has_value());
  if (folds(p))
    return kernels::panel_input_gradient_scratch(p.m, *p.window, image_count(p), part.cols, part.rows,
                                                 p.weights, p.values);
  if (p.product == ProductKind::input_gradient)
    return kernels::panel_input_gradient_scratch(p.m, part.cols, part.rows, p.weights, p.values);
  if (p.window)
    return kernels::panel_forward_scratch(features, *p.window, image_count(p), images_of(p).cols, part.rows,
                                          p.weights, p.values);
  return kernels::panel_forward_scratch(features, part.cols, part.rows, p.weights, p.values);
}

/// The parameters of a part's vertex.
inline std::vector<int64_t> dense_params(const HostDenseProblem& p, const DensePart& part) {
  const auto activation = static_cast<int64_t>(p.activation);
  if (p.product == ProductKind::forward) return {activation, part.row};
  if (p.product == ProductKind::input_gradient) return {activation, part.col, image_count(p)};
  return {part.col};
}

/// Part (i, j) of a partition.
inline DensePart part_of(const HostDenseProblem& p, const HostDensePartition& partition, uint32_t i,
                         uint32_t j) {
  const uint32_t unit = partition.panel_begin[i], units = partition.panel_begin[i + 1] - unit;
  const uint32_t second = partition.col_begin[j], seconds = partition.col_begin[j + 1] - second;
  const uint32_t all_panels = p.layout().rows();
  switch (p.product) {
    case ProductKind::forward: return {unit, units, 0, p.k, second, seconds};
    case ProductKind::input_gradient: {
      const uint32_t col = unit * PanelLayout::kRows;
      return {0, all_panels, col, std::min(cols_of_dx(p) - col, units * PanelLayout::kRows), second, seconds};
    }
    case ProductKind::sddmm: return {unit, units, second, seconds, 0, p.n};
  }
  return {};
}

/// The box of an operand that a part of the product takes.
inline program::Box box_of(const HostDenseProblem& p, const DensePart& part, DenseRole role) {
  constexpr uint32_t kRows = PanelLayout::kRows;
  const uint32_t feature = part.panel * kRows;
  const uint32_t features = std::min(p.m - std::min(p.m, feature), part.panels * kRows);
  switch (role) {
    case DenseRole::x:
      if (folds(p)) {
        const uint32_t outs = p.window->out_positions(), positions = p.window->positions();
        return {part.row / outs * positions, part.rows / outs * positions, part.col, part.cols};
      }
      if (p.window && part.cols > 0) return {0, images_of(p).rows, 0, images_of(p).cols};
      return {part.row, part.rows, part.col, part.cols};
    case DenseRole::y: return {part.row, part.rows, feature, features};
    case DenseRole::w:
      if (folds(p) && part.cols > 0) return {part.panel, part.panels, 0, p.k * kRows};
      return {part.panel, part.panels, part.col * kRows, part.cols * kRows};
    case DenseRole::bias:
      if (!p.bias) return {};
      return p.product == ProductKind::forward ? program::Box{0, 1, feature, features}
                                               : program::Box{0, 1, part.col, part.cols};
    case DenseRole::scalars: return {0, 1, 0, 2};
    case DenseRole::relu: return p.relu ? box_of(p, part, DenseRole::x) : program::Box{};
    case DenseRole::window: return p.window ? program::Box{0, 1, 0, kernels::kWindowWords} : program::Box{};
    case DenseRole::scratch: break;
  }
  return {0, 1, 0, whole_lines(scratch_floats(p, part))};
}

inline Type type_of(const HostDenseProblem& p, DenseRole role) {
  if (role == DenseRole::window) return Type::u32;
  if (role == DenseRole::bias || role == DenseRole::scalars || role == DenseRole::scratch) return Type::f32;
  return role == DenseRole::w ? p.weights : p.values;
}

}  // namespace tessera::ops
