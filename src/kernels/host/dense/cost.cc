// What dense vertices cost on a host.
#include "kernels/common/cost.h"

#include <algorithm>
#include <cmath>

#include "kernels/host/dense/layout.h"
#include "kernels/host/dense/micro_tile_cost.h"

namespace tessera::kernels {
namespace {

using machine::HostFigures;
using program::FieldView;
using program::Phase;

// Cycles from the engine's call to the first element.
constexpr double kVertexCycles = 100;
// Fraction of streaming operands that the micro-kernel does not hide.
constexpr double kExposedStream = 0.3;
// Transposing a vector.
constexpr double kTransposePerVector = 4;
// Adding the lanes of a dot product.
constexpr double kPerDot = 3;

/// Cycles for transposing a matrix whose rows are not contiguous.
double transpose_cycles(const FieldView& field, const HostFigures& f) {
  if (field.empty() || has_contiguous_rows(field)) return 0;
  return kTransposePerVector / lanes_of(f) * static_cast<double>(field.elements());
}

double copy_cycles(const FieldView& field, const HostFigures& f) {
  const double vectors = std::ceil(field.cols / lanes_of(f)) * field.rows;
  return 2 * vectors + stream_cycles(field, f) + transpose_cycles(field, f);
}

/// Cycles for copying the images' rows under a window, for `positions` of its positions.
double seen_cycles(const FieldView& images, const Window& window, uint32_t positions, const HostFigures& f) {
  if (positions == 0) return 0;
  const SeenRows seen(window, images.cols);
  const SeenBatch batch = seen.batch(0, positions);
  const double vectors = seen.rows_of(batch) * (seen.row_step() / lanes_of(f));
  return 2 * vectors * positions / batch.end + stream_cycles(images, f);
}

/// Cycles for copying what a window sees to rows of `cols` terms, and from these to micro-tiles.
double seen_rows_cycles(const FieldView& images, const Window& window, uint32_t rows, uint32_t cols,
                        const HostFigures& f) {
  constexpr double kPerRow = 40, kPerRowOfTaps = 20;  // to find its place, and those of its taps
  const uint32_t part = lanes_of(f) >= 16 ? kDenseColumns : kDenseColumns / 2;  // as kPartColumns
  const double parts = std::ceil(double{1} * cols / part);
  const double finding = rows * (parts * kPerRow + window.kernel_height * kPerRowOfTaps);
  return finding + 4 * std::ceil(cols / lanes_of(f)) * rows + stream_cycles(images, f);
}

/// Mean fraction of positions in which a tap is within the image.
double inside_fraction(const Window& w) {
  double rows = 0, cols = 0;
  for (uint32_t tap = 0; tap < w.kernel_width; ++tap) cols += w.out_cols(tap).size();
  for (uint32_t tap = 0; tap < w.kernel_height; ++tap)
    for (uint32_t row = 0; row < w.out_height; ++row) rows += w.has_row(w.row(row, tap)) ? 1 : 0;
  return rows * cols / (double{1} * w.taps() * w.out_positions());
}

/// Cycles of micro-tiles that read images: each the channels under one tap in place, or the elements under a
/// row of taps in copied rows.
double seen_tiles_cycles(const MicroTileWork& work, const Window& window, uint32_t channels, bool in_place,
                         const HostFigures& f) {
  constexpr double kLatency = 4;           // of a multiply-add, which few sums do not hide
  constexpr double kPerRun = 8;            // in a row of positions
  const bool is_wide = lanes_of(f) >= 16;  // as in micro_tile_cycles()
  const double together = double{1} * channels * (in_place ? 1 : window.kernel_width);
  const double tiles = std::max(1.0, work.factors / together) * std::ceil(together / (is_wide ? 12.0 : 6.0)) *
                       std::ceil(work.panels / (is_wide ? 2 : 1));
  const double terms = (in_place ? inside_fraction(window) : 1) * work.terms;
  return std::max(micro_tile_cycles({work.panels, work.factors, terms}, 0, f), kLatency * tiles * terms) +
         kPerRun * tiles * work.terms / window.out_width;
}

/// Cycles for multiplying all rows by some channels of each tap, and adding that to images.
double fold_cycles(const program::Vertex& v, const HostFigures& f) {
  using namespace panel_input_gradient_field;
  constexpr double kPerRow = 4, kPerVector = 2;  // to find its place, and to add
  const FieldView &in = v.fields[dy], &weight = v.fields[w], &out = v.fields[dx];
  const FoldedImages images(v);
  const double taps = images.window.taps(), rows = in.rows;
  const double transposes = kTransposePerVector / lanes_of(f) * weight.rows * kPanelRows * taps * out.cols;
  const double slice = images.channels == 0 ? 0 : double{1} * out.cols / images.channels;
  const double panels = std::ceil(double{1} * out.cols / kPanelRows);
  const double parts = std::ceil(double{1} * out.cols / kDenseSumStep);
  const double adding = kPerRow * parts + kPerVector * std::ceil(out.cols / lanes_of(f));
  const double masks = v.fields[relu].empty() ? 0 : stream_cycles(v.fields[relu], f) + stream_cycles(out, f);
  return micro_tile_cycles({taps * panels, rows, double{1} * in.cols}, 0, f) +
         images.batches() * std::max(transposes, slice * stream_cycles(weight, f)) + taps * rows * adding +
         2 * stream_cycles(out, f) + masks;
}

/// Sums of `terms` products of BF16 for each row and column.
struct Bf16Work {
  double rows = 0;
  double cols = 0;
  double terms = 0;
};

/// Cycles of Bf16RowProduct; making a vector of pairs takes `pack`.
double bf16_cycles(const Bf16Work& work, double pack, const HostFigures& f) {
  // Distance from the rate of tiles; loading a tile of B; and the sums of a pass over two panels and some
  // rows: cleared, stored and finished.
  constexpr double kSlack = 1.45, kLoadTile = 24, kSumsCycles = 100;
  constexpr double kTileRows = 16;
  const double panels = std::ceil(work.cols / kBf16Columns);
  const double steps = std::max(1.0, std::ceil(work.terms / kBf16Step));
  const double tiles = std::ceil(work.rows / kTileRows), pairs_of_tiles = std::ceil(work.rows / kBf16Rows);
  const double flops = 2 * kTileRows * tiles * panels * steps * kBf16StepValues;
  const double arithmetic =
      std::max(kSlack * flops / f.bf16_flops_per_cycle, kLoadTile * pairs_of_tiles * panels * steps);
  const double packing = std::ceil(work.rows / kBf16Batch) * panels * steps * (kBf16Step / 2) * pack;
  const double passes = std::ceil(steps * kBf16Step / kBf16Depth);
  return arithmetic + packing + kSumsCycles * passes * pairs_of_tiles * std::ceil(panels / kDensePanels);
}

program::PhaseTimes phases(double rearrange, double compute) {
  program::PhaseTimes times;
  times[Phase::rearrange] = rearrange;
  times[Phase::compute] = kVertexCycles + compute;
  return times;
}

/// Winograd's products for `rows` positions and panels of weights: these and tiles of images are transformed,
/// and weights are read for each batch of tiles.
program::PhaseTimes winograd_times(const Winograd& by, const FieldView& images, double rows, double panels,
                                   const HostFigures& f) {
  // Loading 16 vectors, adding, and storing as many; the same of 9 and 16 vectors, and of 16 and 4.
  constexpr double kPerTileVector = 48, kPerWeightVector = 40, kPerSumVector = 32;
  const double tiles = rows / by.window.out_positions() * by.tiles_of_image();
  const double panel_vectors = panels * kPanelRows / lanes_of(f);
  const double bytes = panels * static_cast<double>(by.panel_step()) * sizeof(float);
  const double stream = bytes / streaming_rate(bytes, f);
  const double weights = std::max(kPerWeightVector * panel_vectors * by.channels, 2 * stream);
  const double points = kPerTileVector * std::ceil(by.channels / lanes_of(f)) * tiles;
  const double arithmetic =
      Winograd::kPoints * micro_tile_cycles({panels, tiles, double{1} * by.channels}, 0, f);
  const double streams = std::ceil(tiles / by.together()) * stream;
  return phases(weights + points + stream_cycles(images, f),
                std::max(arithmetic, streams) + kExposedStream * std::min(arithmetic, streams) +
                    kPerSumVector * panel_vectors * tiles);
}

/// Winograd's weight gradient: each part of the panels transforms images, and each part of the channels
/// gradients.
program::PhaseTimes winograd_gradient_times(const program::Vertex& v, const Winograd& by,
                                            const HostFigures& f) {
  using namespace panel_weight_gradient_field;
  // Loading 16 vectors, adding, and storing as many; the same of 4 and 16 vectors, and of 16 and 9.
  constexpr double kPerTileVector = 48, kPerGradientVector = 30, kPerSumVector = 40;
  const FieldView &gradient = v.fields[dy], &in = v.fields[x], &out = v.fields[dw];
  const double panels = out.rows, channels = by.channels;
  const double tiles = double{1} * gradient.rows / by.window.out_positions() * by.tiles_of_image();
  const double groups = std::ceil(panels / WinogradGradient::kPanels);
  const double parts = std::ceil(channels / WinogradGradient::kChannels);
  const double panel_vectors = panels * kPanelRows / lanes_of(f);
  const double points = kPerTileVector * std::ceil(channels / lanes_of(f)) * tiles * groups +
                        kPerGradientVector * panel_vectors * tiles * parts;
  const double arithmetic = Winograd::kPoints * micro_tile_cycles({panels, channels, tiles}, 0, f);
  return phases(0, arithmetic + points + kPerSumVector * panel_vectors * channels +
                       groups * stream_cycles(in, f) + stream_cycles(gradient, f) + stream_cycles(out, f));
}

/// An input gradient of images as a forward product, for which taps are transposed.
program::PhaseTimes adjoint_times(const program::Vertex& v, const DenseAdjoint& adjoint,
                                  const HostFigures& f) {
  using namespace panel_input_gradient_field;
  const FieldView &in = v.fields[dy], &out = v.fields[dx];
  const double panels = std::ceil(double{1} * out.cols / kPanelRows);
  const double weights = panels * static_cast<double>(adjoint.panel_step);
  const double stream = weights * sizeof(float) / streaming_rate(weights * sizeof(float), f);
  const double masks = v.fields[relu].empty() ? 0 : stream_cycles(v.fields[relu], f);
  const double transposes = std::max(kTransposePerVector / lanes_of(f) * weights, 2 * stream);
  if (adjoint.winograd) {
    program::PhaseTimes times = winograd_times(*adjoint.winograd, in, out.rows, panels, f);
    times[Phase::rearrange] += transposes;
    times[Phase::compute] += stream_cycles(out, f) + masks;
    return times;
  }
  const double arithmetic =
      micro_tile_cycles({panels, double{1} * out.rows, double{1} * adjoint.terms}, 0, f);
  return phases(transposes + seen_cycles(in, adjoint.window, out.rows, f),
                std::max(arithmetic, stream) + kExposedStream * std::min(arithmetic, stream) +
                    stream_cycles(out, f) + masks);
}

}  // namespace

program::PhaseTimes panel_forward_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace panel_forward_field;
  const HostFigures& f = m.figures;
  const FieldView &in = v.fields[x], &weight = v.fields[w], &out = v.fields[y];
  const double terms = panel_forward_terms(v);
  const double stream = stream_cycles(weight, f);
  const bool sees = !v.fields[window].empty();
  if (multiplies_bf16(in, weight, f.isa)) {
    constexpr double kPack = 3;
    // What each position sees is copied.
    const double seen = 2 * std::ceil(terms / lanes_of(f)) * out.rows + stream_cycles(in, f);
    const double copies = sees ? seen : can_multiply_in_place(in) ? 0 : copy_cycles(in, f);
    const double cycles =
        bf16_cycles({double{1} * out.rows, double{1} * weight.rows * kPanelRows, terms}, kPack, f);
    return phases(copies, std::max(cycles, stream) + kExposedStream * std::min(cycles, stream));
  }
  if (const std::optional<Winograd> winograd = winograd_of_forward(v)) {
    program::PhaseTimes times = winograd_times(*winograd, in, out.rows, weight.rows, f);
    times[Phase::rearrange] += stream;
    times[Phase::compute] += transpose_cycles(out, f);
    return times;
  }
  const MicroTileWork work{double{1} * weight.rows, double{1} * out.rows, terms};
  const double arithmetic = micro_tile_cycles(work, widen_operations(weight.type), f);
  const double copies = sees ? seen_cycles(in, window_of(v.fields[window]), out.rows, f) : copy_cycles(in, f);
  return phases(copies, std::max(arithmetic, stream) + kExposedStream * std::min(arithmetic, stream) +
                            transpose_cycles(out, f));
}

program::PhaseTimes panel_forward_add_cost(const program::Vertex& v, const machine::Machine& m) {
  program::PhaseTimes times = panel_forward_cost(v, m);
  times[Phase::compute] += stream_cycles(v.fields[panel_forward_field::y], m.figures);
  return times;
}

program::PhaseTimes panel_input_gradient_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace panel_input_gradient_field;
  const HostFigures& f = m.figures;
  const FieldView &in = v.fields[dy], &weight = v.fields[w], &out = v.fields[dx];
  if (!v.fields[window].empty()) {
    const FoldedImages images(v);
    const auto adjoint =
        DenseAdjoint::of(images.window, in.cols, images.all, out.rows, out.cols, weight.type);
    return adjoint ? adjoint_times(v, *adjoint, f) : phases(copy_cycles(in, f), fold_cycles(v, f));
  }
  if (multiplies_bf16(in, weight, f.isa)) {
    constexpr double kPack = 8;  // and transposed
    return phases(can_multiply_in_place(in) ? 0 : copy_cycles(in, f),
                  bf16_cycles({double{1} * in.rows, double{1} * out.cols, double{1} * in.cols}, kPack, f) +
                      stream_cycles(weight, f));
  }
  const DenseInputMethod method(weight.type, in.rows, in.cols);
  const double rows = in.rows - method.dot_rows, terms = in.cols, cols = out.cols;
  const double batches = std::ceil(rows / kDenseBatch);
  const double stream = stream_cycles(weight, f);
  const double per_vector = kTransposePerVector / lanes_of(f);
  const double dots = method.dot_rows * cols * (terms / f.flops_per_cycle * 2 + kPerDot);
  double cycles = method.dot_rows == 0 ? 0 : std::max(dots, stream);
  if (method.along_batch) {
    const double panels = std::ceil(rows / kPanelRows);
    const double arithmetic = micro_tile_cycles({panels, cols, terms}, 0, f);
    const double transposed = (has_contiguous_rows(in) ? terms : 0) + (has_contiguous_rows(out) ? cols : 0);
    cycles += std::max(arithmetic, batches * stream) + per_vector * panels * kPanelRows * transposed;
  } else if (rows > 0) {
    const auto elements = static_cast<double>(weight.elements());
    cycles += micro_tile_cycles({std::ceil(cols / kPanelRows), rows, terms}, 0, f) +
              batches * std::max(per_vector * elements, stream);
  }
  const double copies = copy_cycles(in, f) - (method.along_batch ? transpose_cycles(in, f) : 0);
  return phases(copies, cycles + (method.along_batch ? 0 : transpose_cycles(out, f)));
}

program::PhaseTimes panel_input_gradient_add_cost(const program::Vertex& v, const machine::Machine& m) {
  program::PhaseTimes times = panel_input_gradient_cost(v, m);
  times[Phase::compute] += stream_cycles(v.fields[panel_input_gradient_field::dx], m.figures);
  return times;
}

program::PhaseTimes panel_weight_gradient_add_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace panel_weight_gradient_field;
  const HostFigures& f = m.figures;
  const FieldView &gradient = v.fields[dy], &in = v.fields[x], &out = v.fields[dw];
  const DenseGradientFactor factor(v);
  if (!factor.sees && multiplies_bf16(gradient, in, f.isa)) {
    constexpr double kPack = 4;
    const double transposes = kTransposePerVector / lanes_of(f) * static_cast<double>(in.elements());
    return phases(
        transposes + stream_cycles(in, f),
        bf16_cycles({double{1} * in.cols, double{1} * out.rows * kPanelRows, double{1} * in.rows}, kPack, f) +
            stream_cycles(out, f));
  }
  if (const std::optional<Winograd> winograd = winograd_of_gradient(v))
    return winograd_gradient_times(v, *winograd, f);
  const MicroTileWork work{double{1} * out.rows, double{1} * factor.cols, double{1} * gradient.rows};
  const DenseGradientMethod method(v);
  const Window seen = factor.sees ? window_of(v.fields[window]) : Window();
  const double copied = method.image_floats > 0 ? seen_cycles(in, seen, factor.rows, f)
                        : !method.copies_x      ? 0
                        : factor.sees           ? seen_rows_cycles(in, seen, factor.rows, factor.cols, f)
                                                : copy_cycles(in, f);
  // Each pass but the first also reads dW.
  const double passes = std::max(1.0, std::ceil(double{1} * factor.rows / method.depth));
  const double stream = (2 * passes - 1) * stream_cycles(out, f) +
                        (method.copies_x || method.image_floats > 0 ? 0 : stream_cycles(in, f)) +
                        (method.copies_dy ? 0 : stream_cycles(gradient, f));
  const double arithmetic = factor.sees && !method.copies_x
                                ? seen_tiles_cycles(work, seen, in.cols, method.holds_x, f)
                                : micro_tile_cycles(work, 0, f);
  return phases(copied + (method.copies_dy ? copy_cycles(gradient, f) : 0),
                std::max(arithmetic, stream) + kExposedStream * std::min(arithmetic, stream));
}

program::PhaseTimes panel_weight_gradient_cost(const program::Vertex& v, const machine::Machine& m) {
  return panel_weight_gradient_add_cost(v, m);
}

}  // namespace tessera::kernels
