// Blocking of the dense products.
#pragma once

#include <cstdint>

#include "kernels/common/splits.h"
#include "kernels/host/dense/codelet.h"

namespace tessera::kernels {

/// Terms of a sum that are added in one pass: their part of two panels stays in the L2 cache.
inline constexpr uint32_t kDenseDepth = 1024;

/// Floats between copied rows: a cache line more than the terms, so that the rows of a micro-tile lie in
/// different sets of the L1 cache.
inline constexpr uint32_t kDenseRowStep = kDenseDepth + 16;

/// Rows of a batch that are processed together.
inline constexpr uint32_t kDenseBatch = 384;

/// Panels whose results a thread computes at a time.
inline constexpr uint32_t kDensePanels = 2;
inline constexpr uint32_t kDenseSumStep = kDensePanels * kPanelRows;

/// Columns of a micro-tile of dW at most.
inline constexpr uint32_t kMostDenseColumns = 12;
/// Columns of dW that a thread processes at a time.
inline constexpr uint32_t kDenseColumns = 512;

/// Floats of rows of images that are copied at a time: they stay in the L2 cache.
inline constexpr uint32_t kSeenFloats = 64 << 10;

}  // namespace tessera::kernels
