// Blocking of the dense products.
#pragma once

#include <cstdint>

#include "kernels/common/splits.h"
#include "kernels/host/dense/codelet.h"

namespace tessera::kernels {

/// Number of terms of a sum that are added in one pass: their part of two panels stays in the L2 cache.
inline constexpr uint32_t kDenseDepth = 1024;

/// Distance of copied rows, in floats: a cache line more than the terms, so that the rows of a micro-tile lie
/// in different sets of the L1 cache.
inline constexpr uint32_t kDenseRowStep = kDenseDepth + 16;

/// Number of rows of a batch that are processed together.
inline constexpr uint32_t kDenseBatch = 384;

/// Number of panels whose results a thread computes at a time.
inline constexpr uint32_t kDensePanels = 2;
inline constexpr uint32_t kDenseSumStep = kDensePanels * kPanelRows;

/// Maximum number of columns of a micro-tile of dW.
inline constexpr uint32_t kMostDenseColumns = 12;
/// Number of columns of dW that a thread processes at a time, and the longest rows, in floats, that it reads
/// in place: the L2 cache holds the rows of a pass.
inline constexpr uint32_t kDenseColumns = 512;
/// Number of terms of a sum of dW that are added in one pass: their part of two panels stays in the L1 cache.
inline constexpr uint32_t kDenseGradientDepth = 256;
/// The same where X or dY is read in place: rows are spread over more lines and pages than a copy, and the
/// next ones come beside them.
inline constexpr uint32_t kDenseDepthInPlace = 128;
/// Number of rows that are copied together for it: each is a stream, and their part of a micro-tile or panel
/// is a few lines.
inline constexpr uint32_t kDenseCopiedRows = 8;
/// Number of panels of dY that are copied together for FP32 sums.
inline constexpr uint32_t kDenseCopiedPanels = 16;

/// Number of floats of images' rows that are copied at a time: they stay in the L2 cache.
inline constexpr uint32_t kSeenFloats = 64 << 10;

}  // namespace tessera::kernels
