// The block-sparse product as a codelet: one vertex is one core's share.
#pragma once

#include "kernels/block_sparse/block_sparse.h"
#include "kernels/sample.h"
#include "program/codelet.h"

namespace tessera::kernels {

/// Calls visit(name, knob) for every knob of a cut, in the order of the codelet's parameters.
template <class Cut, class Visit>
void visit_block_knobs(Cut& cut, const Visit& visit) {
  visit("kernel", cut.kernel);
  visit("row_parts", cut.row_parts);
  visit("col_parts", cut.col_parts);
  visit("tile_rows", cut.tile_rows);
  visit("tile_vectors", cut.tile_vectors);
  visit("panel_cols", cut.panel_cols);
  visit("pack_x", cut.pack_x);
  visit("stream_y", cut.stream_y);
}

/// Fields and parameters of block_spmm, by position. The parameters go on with the knobs.
namespace block_field {
enum : size_t { values, row_begin, columns, slots, x, y, scalars, bias, scratch, count };
}
namespace block_param {
enum : size_t { block_size, transposed, activation, first_knob };
}

/// Y = activation(alpha · W·X + beta · Y + bias) on one core's share. row_begin holds the share's
/// block rows and the end; values, columns and slots are whole; slots of no elements are each block's
/// number; scalars are alpha and beta; a bias of no elements is none. With `transposed`, W is the
/// transpose of what `values` holds.
extern const program::Codelet block_spmm_codelet;

std::span<const ListedCodelet> block_sparse_codelets();

}  // namespace tessera::kernels
