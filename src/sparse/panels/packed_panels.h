// A prepacked dense weight, in panels of rows, in which products read it: the master copy.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "sparse/panels/panel_layout.h"

namespace tessera::sparse {

/// A dense weight: one array of values in the order of PanelLayout. Matrices are row-major.
class PackedPanels {
 public:
  /// All values are zero. `type` is f32, f16 or bf16. Throws UsageError for another type.
  PackedPanels(uint32_t rows, uint32_t cols, Type type);

  Type type() const { return type_; }
  uint32_t rows() const { return layout_.m; }
  uint32_t cols() const { return layout_.k; }
  const PanelLayout& layout() const { return layout_; }
  uint64_t elements() const { return uint64_t{rows()} * cols(); }
  /// Blocks of pattern().
  uint64_t capacity() const;
  static bool is_dynamic() { return false; }
  static bool has_values() { return true; }

  /// The full pattern in blocks of kDenseBlockSize.
  Pattern pattern() const;

  /// Values of `type()`, layout().elements(), aligned to a cache line; zeros after the last row.
  std::span<const std::byte> values() const { return {values_.get(), bytes()}; }
  std::span<std::byte> values() { return {values_.get(), bytes()}; }
  uint64_t bytes() const { return layout_.elements() * size_of(type_); }

  /// Replace all values, rounded to `type()`, and write them. One pass.
  void set_values(MatrixView<const float> matrix);
  void get_values(std::span<float> matrix) const;

  /// Convert any arrays, such as gradients, between row-major and packed order. Throw UsageError if a size is
  /// wrong.
  void pack(std::span<const float> values, std::span<float> packed) const;
  void unpack(std::span<const float> packed, std::span<float> values) const;

 private:
  Type type_;
  PanelLayout layout_;
  base::Buffer values_;
};

}  // namespace tessera::sparse
