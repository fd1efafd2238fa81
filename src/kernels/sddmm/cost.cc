#include "kernels/sddmm/cost.h"

#include <algorithm>
#include <cmath>

#include "kernels/cost.h"
#include "kernels/sddmm/layout.h"

namespace tessera::kernels {
namespace {

using machine::HostFigures;
using sparse::kBundleLanes;

// Cycles of a core, from the ports' limits.
constexpr double kMultiplyAddsPerCycle = 2;
// Adding up the lanes of a vector of sums: 50 operations for 16 of them, on the ports of the
// multiply-adds.
constexpr double kTotalPerSum = 50.0 / 16 / 2;
// Entering and leaving a tile: pointers of its rows, masks of its ends, a mispredicted branch.
constexpr double kTileCycles = 35;
// How near the loops come to the ports' limit on operands in the L1 cache.
constexpr double kSlack = 1.1;
// Of reads from the L2 cache or beyond, the part that multiply-adds do not hide.
constexpr double kExposedL2 = 0.5;
constexpr double kExposedStream = 0.3;
// Rows of X beyond the L2 cache are fetched while others are multiplied: of the shorter of both this part
// is not hidden.
constexpr double kExposedFar = 0.25;
// Of a block row's rows of dY, fetched for the L2 cache in advance.
constexpr double kExposedRows = 0.5;
// Of the L2 cache, what holds rows of X beside rows of dY and dW that stream by.
constexpr double kShareForX = 0.75;
// Reading and writing back dW.
constexpr double kUpdateTraffic = 3;
// Turning a column-major operand: loads, shuffles and short stores, for each element.
constexpr double kTurnPerElement = 0.5;
// Addresses of a task's four rows of X and two of dY.
constexpr double kTaskCycles = 8;

double blocks_of(const BlockSddmmShare& share) {
  const BlockWeight& w = share.weight;
  if (w.row_begin == nullptr) return double{1} * w.capacity / share.cut.row_parts;
  return w.row_begin[share.block_row_end] - w.row_begin[share.block_row_begin];
}

double pack_cycles(double elements, bool turns, double lanes) {
  return turns ? kTurnPerElement * elements + elements / lanes : 0;
}

program::PhaseTimes block_cycles(const BlockSddmmShare& share, const HostFigures& f) {
  const BlockWeight& w = share.weight;
  const SddmmOperands& o = share.operands;
  const double b = w.block_size, lanes = lanes_of(f);
  const double values = blocks_of(share) * b * b;
  const double rows = (share.block_row_end - share.block_row_begin) * b;
  const double tile_rows = lanes < 16 && b == 4 ? 2 : 4;
  const double tile_cols = lanes < 16 && b > 4 ? 2 : 4;
  const double tile = tile_rows * tile_cols;
  const double width = std::min<double>(round_up(share.cut.panel_cols, kMaxLanes), std::max(o.n, 1U));
  const double passes = std::max(1.0, std::ceil(o.n / width));
  const double vectors = std::ceil(width / lanes);

  const double multiply_adds = tile / kMultiplyAddsPerCycle;
  const double loads = (tile_rows + tile_cols) * lanes * 4 / f.l1_bytes_per_cycle;
  const double step = std::max(multiply_adds, loads) + f.exposed_loads * std::min(multiply_adds, loads);
  double cycles = values / tile * passes * (kSlack * vectors * step + tile * kTotalPerSum + kTileCycles);
  // Rows of X come once for each strip of a block, from the L2 cache as far as they have stayed there, rows
  // of dY once a group of rows of X.
  const double strips = b / sddmm_strip_rows(w.block_size, static_cast<uint32_t>(width));
  const double x_bytes = values / b * strips * passes * width * 4;
  const double groups = std::ceil(std::max(1.0, double{1} * w.cols / share.cut.group_rows));
  const double group_bytes = 4.0 * std::min<double>(share.cut.group_rows, w.cols) * width;
  const double near = std::min(1.0, kShareForX * static_cast<double>(f.l2_bytes) / group_bytes);
  const double far = (1 - near) * x_bytes / streaming_rate(group_bytes, f);
  cycles += kExposedL2 * near * x_bytes / f.l2_bytes_per_cycle;
  cycles = std::max(cycles, far) + kExposedFar * std::min(cycles, far);
  const double dy_bytes = rows * passes * width * 4;
  const double dy_rate = streaming_rate(dy_bytes + group_bytes, f);
  cycles += kExposedRows * groups * dy_bytes / dy_rate;
  cycles +=
      kExposedStream * passes * kUpdateTraffic * values * 4 / streaming_rate(values * 4 + group_bytes, f);

  program::PhaseTimes out;
  out[program::Phase::pack] = pack_cycles(double{1} * w.cols * o.n, o.x.col_stride != 1, lanes) +
                              pack_cycles(rows * o.n, o.dy.col_stride != 1, lanes);
  out[program::Phase::compute] = cycles;
  return out;
}

/// What a share takes of a weight: counted on its bundles.
struct Counts {
  double shared_groups = 0;  ///< of four products of each of sixteen tasks
  double apart_groups = 0;
  double values = 0;
  double rows = 0;

  explicit Counts(const ElementSddmmShare& share) {
    const ElementWeight& w = share.weight;
    rows = w.chunk_begin[share.chunk_end] - w.chunk_begin[share.chunk_begin];
    if (w.blocks != nullptr)
      count(share);
    else
      estimate(w);
  }

 private:
  void count(const ElementSddmmShare& share) {
    const ElementWeight& w = share.weight;
    const auto& first = w.blocks[uint64_t{share.chunk_begin} * w.k_blocks()];
    const auto& last = w.blocks[uint64_t{share.chunk_end} * w.k_blocks()];
    for (uint64_t i = first.bundle; i < last.bundle; ++i) {
      shared_groups += w.bundles[i].shared_steps / 2;
      apart_groups += (w.bundles[i].apart_steps + 1) / 2;
    }
    values = static_cast<double>(last.value - first.value);
  }

  /// For the capacity, of which nothing but the number is known: no columns shared, some filler.
  void estimate(const ElementWeight& w) {
    constexpr double kFiller = 1.1;
    values = kFiller * static_cast<double>(w.capacity);
    apart_groups = values / (4 * kBundleLanes);
  }
};

program::PhaseTimes element_cycles(const ElementSddmmShare& share, const HostFigures& f) {
  const ElementWeight& w = share.weight;
  const SddmmOperands& o = share.operands;
  const Counts counts(share);
  const double lanes = lanes_of(f);
  const TileCut cut = sddmm_panels(share.cut, std::max(o.n, 1U), static_cast<uint32_t>(lanes));
  const double panels = cut.tiles();
  const double vectors = cut.vectors / panels;
  const double row_bytes = vectors * lanes * 4;
  // Four sums of a task: multiply-adds and the adding up on two ports, loads on two others.
  const double arithmetic = 4 * vectors / kMultiplyAddsPerCycle + 4 * kTotalPerSum;
  // Rows of X that the L1 cache has no room for come from the L2 cache.
  const double x_bytes = (w.k_block + 1) * row_bytes;
  const double missed = std::max(0.0, 1 - static_cast<double>(f.l1_bytes) / x_bytes);
  const auto task = [&](double loads) {
    const double reads = loads * vectors * lanes * 4 / f.l1_bytes_per_cycle;
    return kSlack * std::max(arithmetic, reads) + kTaskCycles +
           kExposedL2 * missed * (loads - 2) * row_bytes / f.l2_bytes_per_cycle;
  };
  double pass = kBundleLanes * (counts.shared_groups * task(4) + counts.apart_groups * task(6));
  pass += 2 * kExposedL2 * kBundleLanes * (counts.shared_groups + counts.apart_groups) / 4 * row_bytes /
          f.l2_bytes_per_cycle;
  const double updates = kUpdateTraffic * counts.values * 4 / streaming_rate(counts.values * 4, f);
  const double groups = std::ceil(panels / std::max<double>(1, share.cut.group_panels));
  const double chunks = share.chunk_end - share.chunk_begin;
  const auto pack = [&](double elements, const MatrixView<const float>& m) {
    return elements / 16 * kCopyLineCycles + pack_cycles(elements, m.col_stride != 1, lanes);
  };

  program::PhaseTimes out;
  out[program::Phase::pack] = pack(counts.rows * o.n, o.dy) + chunks * pack(double{1} * w.cols * o.n, o.x);
  out[program::Phase::compute] = panels * pass + kExposedStream * groups * updates;
  return out;
}

}  // namespace

program::PhaseTimes block_sddmm_cost(const BlockSddmmShare& share, const HostFigures& f) {
  if (share.block_row_begin == share.block_row_end || share.weight.cols == 0) return {};
  return block_cycles(share, f).scaled(1 / (f.ghz * 1e9));
}

program::PhaseTimes element_sddmm_cost(const ElementSddmmShare& share, const HostFigures& f) {
  if (share.chunk_begin == share.chunk_end || share.weight.cols == 0) return {};
  return element_cycles(share, f).scaled(1 / (f.ghz * 1e9));
}

std::vector<BlockSddmmCut> block_sddmm_candidates(const BlockWeight& w, uint32_t n, uint32_t threads,
                                                  const HostFigures& f) {
  std::vector<BlockSddmmCut> cuts;
  for (uint32_t panel : {128U, 256U, 512U, 1024U}) {
    const uint32_t width = std::min(panel, std::max(n, 1U));
    // Rows of X in so many L2 caches: what one has room for beside dY and dW, more of them, or all.
    for (const double share : {0.25, 0.5, 0.7, 1.0, 2.0, 1e9}) {
      const double rows =
          std::min(share * static_cast<double>(f.l2_bytes) / (4.0 * width), double{1} * w.cols);
      BlockSddmmCut cut;
      cut.row_parts = static_cast<uint16_t>(threads);
      cut.group_rows = std::max(w.block_size, round_up(static_cast<uint32_t>(rows), 32));
      cut.panel_cols = panel;
      cuts.push_back(cut);
      if (cut.group_rows >= w.cols) break;
    }
    if (panel >= n) break;
  }
  return cuts;
}

std::vector<ElementSddmmCut> element_sddmm_candidates(const ElementWeight& w, uint32_t n, uint32_t threads,
                                                      const HostFigures& f) {
  uint32_t chunk_rows = 1;
  for (uint32_t c = 0; c < w.chunks; ++c)
    chunk_rows = std::max(chunk_rows, w.chunk_begin[c + 1] - w.chunk_begin[c]);
  std::vector<ElementSddmmCut> cuts;
  const auto lanes = static_cast<uint32_t>(lanes_of(f));
  for (uint32_t panel = lanes; panel <= kMaxSddmmPanel; panel += lanes) {
    ElementSddmmCut cut;
    cut.row_parts = static_cast<uint16_t>(threads);
    cut.panel_cols = static_cast<uint16_t>(panel);
    // Half of the L2 cache for rows of dY.
    cut.group_panels = static_cast<uint16_t>(
        std::clamp<uint64_t>(f.l2_bytes / 2 / (uint64_t{chunk_rows} * panel * sizeof(float)), 1, 8));
    cuts.push_back(cut);
    if (panel >= n) break;
  }
  return cuts;
}

}  // namespace tessera::kernels
