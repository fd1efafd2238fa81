#include "kernels/host/element_sparse/cost.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/cost.h"
#include "kernels/common/seen_cost.h"
#include "kernels/host/element_sparse/layout.h"

namespace tessera::kernels {
namespace {

using machine::HostFigures;
using sparse::kRowGroupLanes;

// Cycles of a core, from port limits and otherwise from what the instruction tables of x86 cores since 2013
// have in common.
constexpr double kMultiplyAddsPerCycle = 2;
constexpr double kMultiplyAddLatency = 4;
constexpr double kMispredict = 20;
constexpr double kLoopsPerRowGroup = 2;  // whose trip counts change with the row group
constexpr double kTaskEntry = 8;         // addresses of two rows, prologues of two loops
constexpr double kScalarUpdate = 1.5;    // y[row] += sum: two loads, an add, a store
constexpr double kGatherPerElement = 0.5;
// Distance of loops bound by loads or multiply-adds from the port limit.
constexpr double kLoadSlack = 1.08;
constexpr double kMultiplyAddSlack = 1.25;
// Fraction of the L1 cache that X may fill: W and the sums pass through the rest.
constexpr double kL1Share = 0.75;
// Fraction of the L2 reads of rows of X, if the L1 cache lacks them, that is not hidden.
constexpr double kExposedRows = 0.35;
// The same for whole rows, which share few reads: packed, and in place, where they use few sets of the cache.
constexpr double kExposedWholeRows = 0.7;
constexpr double kExposedRowsInPlace = 0.78;
// The exposed fraction row by row, for an X that takes all of the L2 cache.
constexpr double kExposedLongRows = 0.8;
constexpr double kXFractionOfL2 = 0.25;
constexpr double kXFractionLost = 2;
// Fraction of the stream of W that prefetching does not hide behind arithmetic.
constexpr double kExposedStream = 0.4;
// Fraction of the L2 cache that sums and a kept panel of X may take before the stream of W evicts some of
// them, and the number of L2 caches at which none of them stays.
constexpr double kSumsFractionOfL2 = 0.25;
constexpr double kSumsFractionLost = 1.5;
// The same for Y alone.
constexpr double kYFractionOfL2 = 0.5;
// Parts of rows of X lie far apart and are read a few lines each: at a third of the rate of a stream.
constexpr double kShortRuns = 3;
// Copying a line of them within the L2 cache: a load and a store.
constexpr double kNearCopyLineCycles = 2;
// Writing Y: the line is read, and written back; with non-temporal stores it is only written.
constexpr double kWriteTraffic = 3;
constexpr double kStreamTraffic = 1.5;
// Whole rows of Y of a page's quarter or more: prefetched by the hardware.
constexpr double kLongRowTraffic = 2;
// A cache line of Y written by two cores: one per row if columns are split, since callers' arrays seldom
// begin at one. The longer the part of a row before it, the further prefetchers run into the other's lines.
constexpr double kSharedLineCycles = 60;
constexpr double kOverrunCyclesPerLine = 10;
// Transposing a column-major operand: loads, shuffles and short stores for every four elements.
constexpr double kTransposePerElement = 0.5;
// Maximum number of chunks of a group.
constexpr uint32_t kMostGroupChunks = 1000;

/// Counts of a slice.
struct Counts {
  double row_groups = 0;
  double tasks = 0;
  double shared_steps = 0;  ///< of all tasks
  double unpaired_steps = 0;
  double words = 0;  ///< index words per lane, of all row groups
  double bytes = 0;  ///< of prepacked W

  explicit Counts(const ElementSlice& slice) {
    if (slice.weight.blocks != nullptr)
      count(slice);
    else
      estimate(slice);
  }

 private:
  /// Counts its row groups.
  void count(const ElementSlice& slice) {
    const ElementWeight& w = slice.weight;
    const auto& first = w.blocks[uint64_t{slice.chunk_begin} * w.k_blocks()];
    const auto& last = w.blocks[uint64_t{slice.chunk_end} * w.k_blocks()];
    for (uint64_t i = first.row_group; i < last.row_group; ++i) {
      const sparse::RowGroup& row_group = w.row_groups[i];
      tasks += row_group.tasks;
      shared_steps += double{1} * row_group.tasks * row_group.shared_steps;
      for (uint32_t q = 0; q * sparse::kQuarterLanes < row_group.tasks; ++q)
        unpaired_steps += double{1} * row_group.quarter_steps[q] *
                          std::min(sparse::kQuarterLanes, row_group.tasks - q * sparse::kQuarterLanes);
      words += static_cast<double>(row_group.index_count()) / kRowGroupLanes;
    }
    row_groups = static_cast<double>(last.row_group - first.row_group);
    bytes = static_cast<double>((last.value - first.value) * size_of(w.type) +
                                (last.index - first.index) * sizeof(uint32_t)) +
            row_groups * sizeof(sparse::RowGroup);
  }

  /// Estimates for random rows grouped by length.
  void estimate(const ElementSlice& slice) {
    const ElementWeight& w = slice.weight;
    const double chunks = slice.chunk_end - slice.chunk_begin;
    const double chunk_rows = (w.chunk_begin[slice.chunk_end] - w.chunk_begin[slice.chunk_begin]) / chunks;
    const double blocks = chunks * w.k_blocks();
    const double elements = static_cast<double>(w.capacity) / std::max(1.0, blocks);  // per block
    const double row_length = elements / std::max(1.0, chunk_rows);
    const double filled_rows = chunk_rows * (1 - std::exp(-row_length));
    // Half a row group at each change of length; lengths spread over six standard deviations. A kernel for
    // many columns skips the part that is filler for a whole quarter of the lanes.
    const double filler =
        kRowGroupLanes * std::min(6 * std::sqrt(row_length), std::ceil(filled_rows / (2 * kRowGroupLanes)));
    const double places = blocks * (elements + filler);
    tasks = blocks * filled_rows / 2;
    unpaired_steps = blocks * (elements + filler / sparse::kQuarters) / 2;
    words = places / 2 / kRowGroupLanes;
    row_groups = std::ceil(tasks / kRowGroupLanes);
    bytes = places * static_cast<double>(size_of(w.type)) + places / 2 * sizeof(uint32_t) +
            row_groups * sizeof(sparse::RowGroup);
  }
};

/// Cycles of the inner loops for one column.
double column_cycles(const ElementWeight& w, const Counts& counts, const HostFigures& f) {
  const double vectors = kRowGroupLanes / std::min<double>(kRowGroupLanes, lanes_of(f));
  double find = kGatherPerElement * kRowGroupLanes / vectors;
  if (f.isa >= Isa::avx512 && w.k_block < 256) {
    const double tables = std::max(4.0, std::exp2(std::ceil(std::log2((w.k_block + 1) / 16.0))));
    find = (tables - 1 + std::log2(tables)) / kMultiplyAddsPerCycle;  // permutes, blends, tests
    if (tables == 16) find /= 2;                                      // every other one is gathered meanwhile
  }
  const double word = 2 * find + 3;
  return counts.words * word * vectors +
         counts.row_groups * (2 * kRowGroupLanes * kScalarUpdate + kLoopsPerRowGroup * kMispredict);
}

/// Bytes per cycle of a group's sums, and of rows of X that are kept.
double waiting_rate(const ElementSlice& slice, double rows, double panel_cols, const HostFigures& f) {
  const double chunks = slice.chunk_end - slice.chunk_begin;
  const double group_rows =
      finishes_rows(slice) ? 0 : rows / chunks * std::min<double>(slice.schedule.group_chunks, chunks);
  const double kept =
      keeps_panel(slice.schedule, slice.chunk_end - slice.chunk_begin) ? slice.weight.cols : 0;
  return resident_rate((group_rows + kept) * panel_cols * sizeof(float), kSumsFractionOfL2, kSumsFractionLost,
                       f);
}

/// Whether whole rows read panels of `cols` columns of X where they are.
bool is_in_place(const ElementSlice& slice, double cols) {
  return !slice.seen && finishes_rows(slice) && reads_in_place(slice.x, static_cast<uint32_t>(cols));
}

double exposed_rows(const ElementSlice& slice, double panel_cols) {
  if (!finishes_rows(slice)) return kExposedRows;
  return is_in_place(slice, panel_cols) ? kExposedRowsInPlace : kExposedWholeRows;
}

/// Cycles of the inner loops for a panel of columns that fills `vectors` vectors of `lanes` lanes.
double panel_cycles(const ElementSlice& slice, const Counts& counts, double vectors, double lanes,
                    double waiting_rate, const HostFigures& f) {
  const ElementWeight& w = slice.weight;
  // Narrower vectors may use a third port.
  const double ports = lanes < lanes_of(f) ? 1.5 : 1;
  const double loads_per_cycle = ports * f.l1_bytes_per_cycle / (lanes_of(f) * sizeof(float)) / kLoadSlack;
  const double most_tasks = (f.isa >= Isa::avx512 ? 16 : 12) / (2 * vectors);
  const double tasks_at_a_time = most_tasks >= 4 ? 4 : most_tasks >= 2 ? 2 : 1;
  const double multiply_adds = kMultiplyAddSlack * 2 * vectors / kMultiplyAddsPerCycle;
  const double latency = kMultiplyAddLatency / tasks_at_a_time;
  // Paired: a row of X, two broadcast values, half a word; unpaired: two rows of X, two values, a word.
  const auto step = [&](double loads) { return std::max({multiply_adds, latency, loads / loads_per_cycle}); };
  const double row_bytes = vectors * lanes * sizeof(float);
  double x_bytes = (w.k_block + 1) * row_bytes;
  if (uses_planes(slice)) x_bytes = std::min(x_bytes, plane_bytes(Planes(slice.seen), vectors * lanes));
  const double far = std::max(0.0, 1 - kL1Share * static_cast<double>(f.l1_bytes) / x_bytes);
  const double row = exposed_rows(slice, vectors * lanes) * far * row_bytes / waiting_rate;
  const double shared = step(vectors + 2.5) + row;
  const double unpaired = step(2 * vectors + 3) + 2 * row;
  // Written back while others are read.
  const double sums = finishes_rows(slice) ? 0 : 2 * row_bytes / waiting_rate;
  return counts.shared_steps * shared + counts.unpaired_steps * unpaired +
         counts.tasks * (kTaskEntry + sums) + counts.row_groups * kLoopsPerRowGroup * kMispredict;
}

/// Cycles of the inner loops row by row.
double row_cycles(const ElementSlice& slice, const Counts& counts, double vectors, const HostFigures& f) {
  const double row_bytes = vectors * lanes_of(f) * sizeof(float);
  // Parts of rows that are a power of two apart use as few sets of the cache as if they were whole.
  const double x_bytes = static_cast<double>(slice.weight.cols) * slice.x.row_stride * sizeof(float);
  const double far = std::max(0.0, 1 - kL1Share * static_cast<double>(f.l1_bytes) / x_bytes);
  const double multiply_adds = kMultiplyAddSlack * vectors / kMultiplyAddsPerCycle;
  const double step = multiply_adds + kExposedLongRows * far * row_bytes /
                                          resident_rate(x_bytes, kXFractionOfL2, kXFractionLost, f);
  return 2 * (counts.shared_steps + counts.unpaired_steps) * step + 2 * counts.tasks * kMispredict +
         counts.row_groups * kMispredict;
}

/// Bytes per cycle of what writing Y moves. Where no sums pass through the L2 cache, Y stays there.
double write_rate(const ElementSlice& slice, double y_bytes, const HostFigures& f) {
  if (!finishes_rows(slice)) return streaming_rate(y_bytes, f);
  return resident_rate(y_bytes, kYFractionOfL2, kSumsFractionLost, f);
}

struct Panels {
  double count;
  double vectors;  ///< per panel
  double lanes;    ///< per vector
};

/// How the kernel splits the columns of a slice.
Panels panels_of(const ElementSlice& slice, const HostFigures& f) {
  const double cols = slice.col_end - slice.col_begin;
  const double most_lanes = lanes_of(f);
  const double panel = std::min<double>(slice.schedule.panel_cols, cols);
  if (panel < most_lanes) return {std::ceil(cols / panel), 1, panel <= 4 ? std::min(4.0, most_lanes) : 8.0};
  const double widest = runs_by_rows(slice, lanes_of(f)) ? kMaxPanelCols / most_lanes
                        : f.isa >= Isa::avx512           ? 8
                                                         : 6;
  const double most = std::min(widest, std::floor(slice.schedule.panel_cols / most_lanes));
  const double vectors = std::ceil(cols / most_lanes);
  const double count = std::ceil(vectors / most);
  return {count, vectors / count, most_lanes};
}

/// Cycles to pack X.
double pack_cycles(const ElementSlice& slice, const Panels& panels, const HostFigures& f) {
  const ElementWeight& w = slice.weight;
  if (is_in_place(slice, panels.vectors * panels.lanes) || runs_by_rows(slice, lanes_of(f))) return 0;
  const double cols = slice.col_end - slice.col_begin;
  if (uses_planes(slice)) return plane_cycles(Planes(slice.seen), cols, f);
  if (slice.seen) return gather_cycles(slice.seen, slice.x, cols, f);
  const double bytes = cols * w.cols * sizeof(float);
  const double lines = bytes / kLineBytes;
  const double transpose = slice.x.col_stride == 1 ? 0 : kTransposePerElement * cols * w.cols;
  if (finishes_rows(slice) && bytes <= static_cast<double>(f.l2_bytes) / 2)
    return bytes / f.l2_bytes_per_cycle + lines * kNearCopyLineCycles + transpose;
  const bool whole_rows = panels.count == 1 && slice.x.row_stride == static_cast<int64_t>(cols);
  return (whole_rows ? 1 : kShortRuns) * bytes / streaming_rate(bytes, f) + lines * kCopyLineCycles +
         transpose;
}

/// Cycles to write Y.
double write_cycles(const ElementSlice& slice, double rows, const HostFigures& f) {
  const double cols = slice.col_end - slice.col_begin;
  const double bytes = cols * rows * sizeof(float);
  const bool streams = slice.schedule.stream_y, by_rows = slice.y.col_stride == 1;
  const double transpose = by_rows ? 0 : kTransposePerElement * cols * rows;
  const double shared_rows = slice.schedule.col_parts > 1 && by_rows ? rows : 0;
  const double share_row =
      kSharedLineCycles + kOverrunCyclesPerLine * std::max(0.0, cols * sizeof(float) / kLineBytes - 1);
  const double traffic = runs_by_rows(slice, lanes_of(f)) ? kLongRowTraffic
                         : !streams                       ? kWriteTraffic
                         : by_rows                        ? kStreamTraffic
                                   : (kStreamTraffic + kWriteTraffic) / 2;  // if aligned
  double per_byte = traffic / write_rate(slice, bytes, f);
  if (streams) per_byte = std::max(per_byte, kStreamTraffic / f.l3_bytes_per_cycle);
  return bytes * per_byte + share_row * shared_rows + transpose;
}

}  // namespace

program::PhaseTimes element_cost(const ElementSlice& slice, const HostFigures& f) {
  program::PhaseTimes seconds;
  const ElementWeight& w = slice.weight;
  const double cols = slice.col_end - slice.col_begin;
  const double rows = w.chunk_begin[slice.chunk_end] - w.chunk_begin[slice.chunk_begin];
  if (cols == 0 || rows == 0) return seconds;

  const Counts counts(slice);
  const Panels panels = panels_of(slice, f);
  const bool single = std::min<double>(slice.schedule.panel_cols, cols) == 1;
  const double stream = counts.bytes / streaming_rate(counts.bytes, f);
  const double inner = single ? column_cycles(w, counts, f)
                       : runs_by_rows(slice, lanes_of(f))
                           ? row_cycles(slice, counts, panels.vectors, f)
                           : panel_cycles(slice, counts, panels.vectors, panels.lanes,
                                          waiting_rate(slice, rows, panels.vectors * panels.lanes, f), f);
  const double exposed = panels.vectors > 1 ? kExposedStream : 0;  // the single-column loop is all streaming
  const double pass = std::max(stream, inner + exposed * stream);

  const double hz = f.ghz * 1e9;
  seconds[program::Phase::rearrange] = pack_cycles(slice, panels, f) / hz;
  seconds[program::Phase::compute] = (panels.count * pass + write_cycles(slice, rows, f)) / hz;
  return seconds;
}

std::vector<ElementSchedule> element_candidates(const ElementWeight& w, uint32_t n, uint32_t threads,
                                                const HostFigures& f) {
  const auto lanes = static_cast<uint32_t>(lanes_of(f));
  std::vector<uint32_t> widths;
  for (uint32_t few : {1U, 4U, 8U})
    if (few < lanes && n <= 2 * few) widths.push_back(few);
  const bool by_rows = f.isa >= Isa::avx512 && w.k_blocks() == 1;
  for (uint32_t vectors = 1; vectors <= (by_rows ? 16 : 8); ++vectors) widths.push_back(vectors * lanes);
  // The first that holds all columns is the last useful one.
  std::vector<uint32_t> panels;
  for (uint32_t width : widths) {
    panels.push_back(width);
    if (width >= n) break;
  }
  uint32_t chunk_rows = 1;
  for (uint32_t c = 0; c < w.chunks; ++c)
    chunk_rows = std::max(chunk_rows, w.chunk_begin[c + 1] - w.chunk_begin[c]);

  std::vector<ElementSchedule> schedules;
  for (uint32_t row_parts = 1; row_parts <= threads; ++row_parts) {
    if (threads % row_parts != 0 && row_parts != threads) continue;
    for (uint32_t panel : panels) {
      // About a quarter of the L2 cache for sums; X, W and the next rows of both pass through the rest.
      const uint64_t sums = uint64_t{chunk_rows} * panel * sizeof(float);
      ElementSchedule schedule;
      schedule.row_parts = static_cast<uint16_t>(row_parts);
      schedule.col_parts = static_cast<uint16_t>(threads / row_parts);
      schedule.panel_cols = static_cast<uint16_t>(panel);
      const auto fit = static_cast<uint32_t>(std::max<uint64_t>(f.l2_bytes * 9 / 32 / sums, 1));
      for (const uint32_t group : {std::min(fit, w.chunks), w.chunks})
        for (const bool stream_y : {false, true}) {
          if (stream_y && panel > kMaxTaskCols) continue;
          schedule.group_chunks = static_cast<uint16_t>(std::clamp(group, 1U, kMostGroupChunks));
          schedule.stream_y = stream_y;
          schedules.push_back(schedule);
        }
    }
  }
  return schedules;
}

}  // namespace tessera::kernels
