#include "kernels/host/sddmm/cost.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/cost.h"
#include "kernels/common/seen_cost.h"
#include "kernels/host/sddmm/layout.h"

namespace tessera::kernels {
namespace {

using machine::HostFigures;
using sparse::kRowGroupLanes;

// Cycles of a core, from port limits.
constexpr double kMultiplyAddsPerCycle = 2;
// Reducing the lanes of a vector of sums: 50 operations for 16 vectors, on the ports of multiply-adds.
constexpr double kTotalPerSum = 50.0 / 16 / 2;
// Prologue and epilogue of a micro-tile: pointers to its rows, masks of its ends, a mispredicted branch.
constexpr double kTileCycles = 35;
// Distance of the loops from the port limit, with operands in the L1 cache.
constexpr double kSlack = 1.1;
// Fraction of reads from the L2 cache or beyond that multiply-adds do not hide.
constexpr double kExposedL2 = 0.5;
constexpr double kExposedStream = 0.3;
// Rows of X beyond the L2 cache are fetched while others are multiplied: the fraction of the shorter of both
// that is not hidden.
constexpr double kExposedFar = 0.25;
// Fraction of prefetching a block row's rows of dY into the L2 cache that is not hidden.
constexpr double kExposedRows = 0.5;
// Fraction of the L2 cache for rows of X while rows of dY and dW stream.
constexpr double kFractionForX = 0.75;
// Reading and writing back dW.
constexpr double kUpdateTraffic = 3;
// Transposing a column-major operand: loads, shuffles and short stores, per element.
constexpr double kTransposePerElement = 0.5;
// Addresses of a task's four rows of X and two of dY.
constexpr double kTaskCycles = 8;
// Column parts, whose results are added one after another.
constexpr uint32_t kMostColParts = 8;

double copy_cycles(double elements, bool transposes, double lanes) {
  return transposes ? kTransposePerElement * elements + elements / lanes : 0;
}

/// Cycles to find the runs of neighbours that a window sees in a panel, beyond copying X.
double find_cycles(const SddmmOperands& o, double panels) {
  constexpr double kPerRun = 10;
  if (!o.seen) return 0;
  return panels * o.seen.window.taps() *
         (kMaxSddmmPanel / std::max(1.0, double{1} * o.seen.window.out_width) + 1) * kPerRun;
}

program::PhaseTimes block_cycles(const BlockSddmmSlice& slice, const HostFigures& f) {
  const BlockWeight& w = slice.weight;
  const SddmmOperands& o = slice.operands;
  const double b = w.block_size, lanes = lanes_of(f);
  const double values = blocks_of(slice) * b * b;
  const double rows = (slice.block_row_end - slice.block_row_begin) * b;
  const double micro_rows = lanes < 16 && b == 4 ? 2 : 4;
  const double tile_cols = lanes < 16 && b > 4 ? 2 : 4;
  const double tile = micro_rows * tile_cols;
  const bool sees = static_cast<bool>(o.seen);
  const double width =
      std::min<double>(round_up(block_sddmm_panel(slice.schedule, sees), kMaxLanes), std::max(o.n, 1U));
  const double passes = std::max(1.0, std::ceil(o.n / width));
  const double vectors = std::ceil(width / lanes);

  const double multiply_adds = tile / kMultiplyAddsPerCycle;
  const double loads = (micro_rows + tile_cols) * lanes * 4 / f.l1_bytes_per_cycle;
  const double step = std::max(multiply_adds, loads) + f.exposed_loads * std::min(multiply_adds, loads);
  double cycles = values / tile * passes * (kSlack * vectors * step + tile * kTotalPerSum + kTileCycles);
  // Rows of X are read once for each strip of a block, from the L2 cache as far as they stay there; rows of
  // dY once for each group of rows of X.
  const double strips = b / sddmm_strip_rows(w.block_size, static_cast<uint32_t>(width));
  const double x_bytes = values / b * strips * passes * width * 4;
  const double groups = std::ceil(std::max(1.0, double{1} * w.cols / slice.schedule.group_rows));
  const double group_bytes = 4.0 * std::min<double>(slice.schedule.group_rows, w.cols) * width;
  const double near = std::min(1.0, kFractionForX * static_cast<double>(f.l2_bytes) / group_bytes);
  const double far = (1 - near) * x_bytes / streaming_rate(group_bytes, f);
  cycles += kExposedL2 * near * x_bytes / f.l2_bytes_per_cycle;
  cycles = std::max(cycles, far) + kExposedFar * std::min(cycles, far);
  const double dy_bytes = rows * passes * width * 4;
  const double dy_rate = streaming_rate(dy_bytes + group_bytes, f);
  cycles += kExposedRows * groups * dy_bytes / dy_rate;
  cycles +=
      kExposedStream * passes * kUpdateTraffic * values * 4 / streaming_rate(values * 4 + group_bytes, f);

  program::PhaseTimes out;
  // Rows of X are copied where there are blocks; the pattern is assumed to be random.
  const double block_cols = std::ceil(w.cols / b);
  const double used = 1 - std::pow(1 - 1 / block_cols, blocks_of(slice));
  const double x_elements = used * w.cols * o.n;
  const double copied = copy_cycles(x_elements, o.x.col_stride != 1, lanes);
  out[program::Phase::rearrange] = (sees ? std::max(copied, 2 * x_elements / lanes) : copied) +
                                   find_cycles(o, passes * groups) +
                                   copy_cycles(rows * o.n, o.dy.col_stride != 1, lanes);
  out[program::Phase::compute] = cycles;
  return out;
}

/// Counts of a slice, from its row groups.
struct Counts {
  double shared = 0;  ///< four products of a task
  double unpaired = 0;
  double values = 0;
  double rows = 0;

  explicit Counts(const ElementSddmmSlice& slice) {
    const ElementWeight& w = slice.weight;
    rows = w.chunk_begin[slice.chunk_end] - w.chunk_begin[slice.chunk_begin];
    if (w.blocks != nullptr)
      count(slice);
    else
      estimate(w);
  }

 private:
  void count(const ElementSddmmSlice& slice) {
    const ElementWeight& w = slice.weight;
    const auto& first = w.blocks[uint64_t{slice.chunk_begin} * w.k_blocks()];
    const auto& last = w.blocks[uint64_t{slice.chunk_end} * w.k_blocks()];
    for (uint64_t i = first.row_group; i < last.row_group; ++i) {
      const sparse::RowGroup& row_group = w.row_groups[i];
      shared += double{1} * row_group.tasks * (row_group.shared_steps / 2);
      for (uint32_t q = 0; q * sparse::kQuarterLanes < row_group.tasks; ++q)
        unpaired += double{1} * ((row_group.quarter_steps[q] + 1) / 2) *
                    std::min(sparse::kQuarterLanes, row_group.tasks - q * sparse::kQuarterLanes);
    }
    values = static_cast<double>(last.value - first.value);
  }

  /// Estimates for a capacity, the only known number: no shared columns, some filler.
  void estimate(const ElementWeight& w) {
    constexpr double kFiller = 1.1;
    values = kFiller * static_cast<double>(w.capacity);
    unpaired = values / 4;
  }
};

program::PhaseTimes element_cycles(const ElementSddmmSlice& slice, const HostFigures& f) {
  const ElementWeight& w = slice.weight;
  const SddmmOperands& o = slice.operands;
  const Counts counts(slice);
  const double lanes = lanes_of(f);
  const TileSplit schedule = sddmm_panels(slice.schedule, std::max(o.n, 1U), static_cast<uint32_t>(lanes));
  const double panels = schedule.tiles();
  const double vectors = schedule.vectors / panels;
  const double row_bytes = vectors * lanes * 4;
  // Four sums of a task: multiply-adds and reductions on two ports, loads on two others.
  const double arithmetic = 4 * vectors / kMultiplyAddsPerCycle + 4 * kTotalPerSum;
  // Rows of X that do not fit the L1 cache come from the L2 cache.
  const bool has_planes = uses_planes(slice);
  double x_bytes = (w.k_block + 1) * row_bytes;
  if (has_planes) x_bytes = std::min(x_bytes, plane_bytes(Planes(o.seen), vectors * lanes));
  const double missed = std::max(0.0, 1 - static_cast<double>(f.l1_bytes) / x_bytes);
  const auto task = [&](double loads) {
    const double reads = loads * vectors * lanes * 4 / f.l1_bytes_per_cycle;
    return kSlack * std::max(arithmetic, reads) + kTaskCycles +
           kExposedL2 * missed * (loads - 2) * row_bytes / f.l2_bytes_per_cycle;
  };
  double pass = counts.shared * task(4) + counts.unpaired * task(6);
  pass += 2 * kExposedL2 * (counts.shared + counts.unpaired) / 4 * row_bytes / f.l2_bytes_per_cycle;
  const double updates = kUpdateTraffic * counts.values * 4 / streaming_rate(counts.values * 4, f);
  const double groups = std::ceil(panels / std::max<double>(1, slice.schedule.group_panels));
  const double bands = sddmm_bands(w, slice.chunk_begin, slice.chunk_end);
  const auto pack = [&](double elements, const MatrixView<const float>& m) {
    return elements / 16 * kCopyLineCycles + copy_cycles(elements, m.col_stride != 1, lanes);
  };

  program::PhaseTimes out;
  out[program::Phase::rearrange] = pack(counts.rows * o.n, o.dy);
  if (has_planes)
    out[program::Phase::rearrange] += bands * plane_cycles(Planes(o.seen), o.n, f);
  else
    out[program::Phase::rearrange] +=
        bands * pack(double{1} * w.cols * o.n, o.x) + find_cycles(o, bands * panels * w.k_blocks());
  out[program::Phase::compute] = panels * pass + kExposedStream * groups * updates;
  return out;
}

}  // namespace

program::PhaseTimes block_sddmm_cost(const BlockSddmmSlice& slice, const HostFigures& f) {
  if (slice.block_row_begin == slice.block_row_end || slice.weight.cols == 0) return {};
  return block_cycles(slice, f).scaled(1 / (f.ghz * 1e9));
}

program::PhaseTimes element_sddmm_cost(const ElementSddmmSlice& slice, const HostFigures& f) {
  if (slice.chunk_begin == slice.chunk_end || slice.weight.cols == 0) return {};
  return element_cycles(slice, f).scaled(1 / (f.ghz * 1e9));
}

std::vector<BlockSddmmSchedule> block_sddmm_candidates(const BlockWeight& w, uint32_t n, uint32_t threads,
                                                       const HostFigures& f) {
  std::vector<BlockSddmmSchedule> schedules;
  for (uint32_t panel : {128U, 256U, 512U, 1024U}) {
    const uint32_t width = std::min(panel, std::max(n, 1U));
    // Rows of X in this many L2 caches: what fits beside dY and dW, more of them, or all.
    for (const double slice : {0.25, 0.5, 0.7, 1.0, 2.0, 1e9}) {
      const double rows =
          std::min(slice * static_cast<double>(f.l2_bytes) / (4.0 * width), double{1} * w.cols);
      BlockSddmmSchedule schedule;
      schedule.row_parts = static_cast<uint16_t>(threads);
      schedule.group_rows = std::max(w.block_size, round_up(static_cast<uint32_t>(rows), 32));
      schedule.panel_cols = panel;
      schedules.push_back(schedule);
      if (threads > 1 && w.rows <= (threads - 1) * w.block_size) {
        schedule.row_parts = 1;
        schedule.col_parts = static_cast<uint16_t>(std::min(threads, kMostColParts));
        schedules.push_back(schedule);
      }
      if (schedule.group_rows >= w.cols) break;
    }
    if (panel >= n) break;
  }
  return schedules;
}

std::vector<ElementSddmmSchedule> element_sddmm_candidates(const ElementWeight& w, uint32_t n,
                                                           uint32_t threads, const HostFigures& f) {
  const uint32_t rows = sddmm_band_rows(w);
  std::vector<ElementSddmmSchedule> schedules;
  const auto lanes = static_cast<uint32_t>(lanes_of(f));
  for (uint32_t panel = lanes; panel <= kMaxSddmmPanel; panel += lanes) {
    ElementSddmmSchedule schedule;
    schedule.row_parts = static_cast<uint16_t>(threads);
    schedule.panel_cols = static_cast<uint16_t>(panel);
    // Half of the L2 cache for rows of dY.
    schedule.group_panels = static_cast<uint16_t>(
        std::clamp<uint64_t>(f.l2_bytes / 2 / (uint64_t{rows} * panel * sizeof(float)), 1, 8));
    schedules.push_back(schedule);
    if (threads > 1 && w.chunks < threads) {
      schedule.row_parts = 1;
      schedule.col_parts = static_cast<uint16_t>(std::min(threads, kMostColParts));
      schedules.push_back(schedule);
    }
    if (panel >= n) break;
  }
  return schedules;
}

}  // namespace tessera::kernels
