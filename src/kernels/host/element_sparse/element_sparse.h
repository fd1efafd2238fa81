// Y = W·X for unstructured sparse weights.
#pragma once

#include <tessera/types.h>

#include <cstddef>
#include <cstdint>

#include "kernels/common/epilogue.h"
#include "kernels/common/window.h"
#include "program/codelet.h"
#include "sparse/elements/packed_elements.h"

namespace tessera::kernels {

/// How a product is partitioned over cores, and how a core processes its slice: the knobs of a plan.
struct ElementSchedule {
  uint16_t row_parts = 1;     ///< slices along the rows of Y, in whole chunks
  uint16_t col_parts = 1;     ///< slices along the columns of Y
  uint16_t panel_cols = 64;   ///< maximum columns of X in one pass over W; 1: sixteen tasks at once
  uint16_t group_chunks = 1;  ///< chunks whose sums stay in the L2 cache while X streams
  bool stream_y =
      false;  ///< use non-temporal stores for Y, if it is not read; column-major, if it is aligned

  bool operator==(const ElementSchedule&) const = default;
};

/// An unstructured sparse weight as kernels see it: the arrays of sparse::ElementIndex.
struct ElementWeight {
  uint32_t rows = 0;  ///< m
  uint32_t cols = 0;  ///< k
  uint32_t k_block = 1;
  uint32_t chunks = 0;
  Type type = Type::f32;  ///< of the values: f32, f16 or bf16
  const void* values = nullptr;
  const uint32_t* chunk_begin = nullptr;
  const sparse::ElementBlock* blocks = nullptr;
  const sparse::RowGroup* row_groups = nullptr;
  const uint32_t* indices = nullptr;
  /// Evenly spread non-zeros that a cost assumes if the index is not known (blocks is null).
  uint64_t capacity = 0;

  uint32_t k_blocks() const { return (cols + k_block - 1) / k_block; }
};

/// A view of W, or of its transpose, whose values are in another order.
ElementWeight view_of(const sparse::PackedElements& weight);
ElementWeight view_of(const sparse::ElementIndex& index, Type type, const void* values);

/// One core's slice of Y = activation(alpha · W·X + beta · Y + bias): chunks of W times columns of X. x and y
/// are the whole matrices; x may be images instead, and X the elements under a window in them.
struct ElementSlice {
  ElementWeight weight;
  uint32_t chunk_begin = 0;
  uint32_t chunk_end = 0;
  uint32_t col_begin = 0;
  uint32_t col_end = 0;
  MatrixView<const float> x;
  Seen seen = {};
  MatrixView<float> y;
  Epilogue epilogue;
  ElementSchedule schedule;
  float* scratch = nullptr;              ///< element_scratch_floats() of them, cache-line aligned
  program::PhaseClock* clock = nullptr;  ///< may be null
  program::Helpers* helpers = nullptr;   ///< may be null
};

/// Computes a slice. Its bits depend only on the slice, the schedule and the instruction set.
void element_spmm(const ElementSlice& slice);

/// The reference of element_spmm() in plain loops.
void element_spmm_reference(const ElementSlice& slice);

/// Floats of scratch for a slice of `cols` columns.
size_t element_scratch_floats(const ElementSchedule& schedule, const ElementWeight& weight, uint32_t cols,
                              const Seen& seen = {});

}  // namespace tessera::kernels
