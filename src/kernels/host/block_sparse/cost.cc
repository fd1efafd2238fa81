#include "kernels/host/block_sparse/cost.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/cost.h"
#include "kernels/common/seen_cost.h"
#include "kernels/host/block_sparse/layout.h"

namespace tessera::kernels {
namespace {

// Fraction of the reads of X from the L2 cache that multiply-adds do not hide, and the extra cost per line if
// X is read in place, over many pages.
constexpr double kExposedPanelReads = 0.25;
constexpr double kInPlaceLineCycles = 0.35;
// Fraction of the stream of W that multiply-adds do not hide, or vice versa.
constexpr double kExposedStream = 0.15;
// Eight sums just cover the latency of multiply-adds, four cycles with two each: any delay shows.
constexpr double kFewSums = 8;
constexpr double kFewSumsFactor = 1.07;
// Prologue and epilogue of a micro-kernel: call, clearing and storing sums, a mispredicted branch.
constexpr double kTileCycles = 40;
// Expanding one entry of the index.
constexpr double kIndexCycles = 0.5;
// Finding a block by its slot, and its values if the previous block's are not adjacent.
constexpr double kSlotCycles = 6;
// Load, convert and store of one vector of 16-bit values, mostly overlapped with multiply-adds.
constexpr double kWidenCycles = 2;
// Transposing in registers on the way from a column-major X or to a column-major Y.
constexpr double kTransposeCyclesPerVector = 6;
// A row of Y that is not whole vectors: a masked store.
constexpr double kRaggedRowCycles = 4;
// Beginning a row of a micro-tile in a Y beyond the L2 cache: prefetchers begin with each.
constexpr double kFarRowCycles = 80;
// A cache line of Y written by two cores at about the same time.
constexpr double kSharedLineCycles = 60;
// Reducing and finishing the sums of one vector of the few-column kernel.
constexpr double kFewColumnFinishCycles = 12;
// Reducing one sum of the few-column kernel from a vector that also holds other rows' sums.
constexpr double kTransposedFinishCycles = 8;
// Addresses of one block's rows of X, and of those to prefetch.
constexpr double kLookupCycles = 3;
// A transposed product reads 256 bytes of a block at a time, which only its own prefetches anticipate: if
// values come from beyond the L2 cache, the fraction of their reads that is not hidden.
constexpr double kExposedPieces = 1.5;
// Fraction of the L2 cache that a panel may take before the streams of W and Y evict some of it, for rows in
// place and for a packed panel; and the number of L2 caches at which none of it stays: up to then prefetching
// works well.
constexpr double kInPlaceFractionOfL2 = 0.5;
constexpr double kPanelFractionOfL2 = 0.75;
constexpr double kPanelFractionLost = 1.5;

/// The sizes of a slice.
struct Sizes {
  double blocks, values, value_bytes, block_rows, rows, cols, lanes;
};

Sizes sizes_of(const BlockSlice& slice, const machine::HostFigures& f) {
  const BlockWeight& w = slice.weight;
  Sizes s{};
  s.block_rows = slice.block_row_end - slice.block_row_begin;
  s.blocks = blocks_of(slice);
  s.values = s.blocks * w.block_size * w.block_size;
  s.value_bytes = s.values * static_cast<double>(size_of(w.type)) +
                  s.blocks * static_cast<double>(size_of(w.column_type));
  s.rows = s.block_rows * w.block_size;
  s.cols = slice.col_end - slice.col_begin;
  s.lanes = lanes_of(f);
  return s;
}

// An unknown pattern belongs to a weight whose blocks have slots.
bool has_slots(const BlockWeight& w) { return w.slots != nullptr || w.row_begin == nullptr; }

double micro_rows_of(const BlockSlice& slice) {
  return slice.weight.block_size == 4 ? 4 : std::min<double>(slice.schedule.micro_rows, 8);
}

// Whether all rows of X begin at a vector if the first one does.
bool aligns_rows(const BlockSlice& slice, const Sizes& s) {
  return !slice.seen && slice.x.row_stride % static_cast<int64_t>(s.lanes) == 0;
}

// Cycles of one pass of a slice's values through registers, for one micro-tile of `vectors`. in_place: the
// fraction of the calls that read X where it is.
double tile_cycles(const BlockSlice& slice, const Sizes& s, double vectors, double panel_rate,
                   double in_place, const machine::HostFigures& f) {
  const double micro_rows = micro_rows_of(slice);
  const double multiply_adds = micro_rows * vectors * 2 * s.lanes / f.flops_per_cycle;
  // A vector that crosses cache lines is two loads.
  const double crossing = aligns_rows(slice, s) ? 0 : in_place * vectors;
  const double loads = (micro_rows + 2 * vectors + crossing) * s.lanes * 4 / f.l1_bytes_per_cycle;
  const double line_cycles = in_place * kInPlaceLineCycles;
  const double panel = vectors * s.lanes * 4 / panel_rate;
  const double lines = vectors * s.lanes * 4 / kLineBytes;
  const double waiting = micro_rows * vectors <= kFewSums ? kFewSumsFactor : 1;
  const double step = waiting * std::max(multiply_adds, loads) +
                      f.exposed_loads * std::min(multiply_adds, loads) + kExposedPanelReads * panel +
                      line_cycles * lines;
  return s.values / micro_rows * step + s.rows / micro_rows * (kTileCycles + micro_rows * vectors);
}

double copy_cycles(const BlockSlice& slice, const Sizes& s, const machine::HostFigures& f) {
  if (slice.seen) return gather_cycles(slice.seen, slice.x, s.cols, f);
  const double bytes = 4.0 * slice.weight.cols * s.cols;
  double cycles = bytes / streaming_rate(bytes, f) + bytes / kLineBytes * kCopyLineCycles;
  if (slice.x.col_stride != 1) cycles += bytes / 4 / s.lanes * kTransposeCyclesPerVector;
  return cycles;
}

// Arrays begin at a cache line or 16 bytes after one: a knob that needs aligned vectors takes effect in half
// of the calls.
constexpr double kAlignedCalls = 0.5;

// Fraction of the calls that copy X.
double packed_calls(const BlockSlice& slice, const Sizes& s) {
  if (slice.schedule.copy_x) return 1;
  if (slice.seen) return 0;
  const auto micro_rows = static_cast<uint32_t>(micro_rows_of(slice));
  const bool rotated = can_rotate(static_cast<size_t>(s.lanes), micro_rows, static_cast<uint32_t>(s.cols));
  const bool is_read_often =
      reads_of_x(slice, micro_rows) >= reads_worth_a_copy(rotated, slice.weight.block_size);
  if (!is_read_often) return 0;
  return aligns_rows(slice, s) ? 1 - kAlignedCalls : 1;
}

// Writing Y: an ordinary store reads the line first.
double write_cycles(const BlockSlice& slice, const Sizes& s, const machine::HostFigures& f) {
  const double bytes = 4 * s.rows * s.cols;
  const bool by_columns = slice.y.col_stride != 1;
  const double passes = !slice.schedule.stream_y               ? 2
                        : slice.schedule.copy_x && !by_columns ? 1
                                                               : 2 - kAlignedCalls;
  double cycles = passes * bytes / streaming_rate(bytes + s.value_bytes, f);
  if (slice.schedule.stream_y) cycles = std::max(cycles, bytes / f.l3_bytes_per_cycle);
  if (by_columns) cycles += bytes / 4 / s.lanes * kTransposeCyclesPerVector;
  if (!by_columns && bytes > static_cast<double>(f.l2_bytes))
    cycles += kFarRowCycles * s.rows * std::ceil(s.cols / s.lanes / slice.schedule.micro_vectors);
  return cycles;
}

// Costs at the borders of a slice. Cores that share the columns of a row-major Y meet in the cache lines
// between them, unless each has several panels: then they are there at different times.
double border_cycles(const BlockSlice& slice, const Sizes& s, double panels) {
  const bool ragged = std::fmod(s.cols, s.lanes) != 0;
  const bool meets = slice.y.col_stride == 1 && slice.schedule.col_parts > 1 && panels == 1;
  return s.rows * ((ragged ? kRaggedRowCycles : 0) + (meets ? kSharedLineCycles : 0));
}

// Reads of values in pieces that are not hidden.
double piece_cycles(const BlockWeight& w, const Sizes& s, double streaming, const machine::HostFigures& f) {
  const bool is_far = s.value_bytes > static_cast<double>(f.l2_bytes);
  if (!w.transposed || !is_far) return 0;
  // The pieces of large blocks are adjacent, and one strip after another takes them.
  return kExposedPieces * std::min(1.0, 8.0 / w.block_size) * streaming;
}

program::PhaseTimes wide_cycles(const BlockSlice& slice, const machine::HostFigures& f) {
  const Sizes s = sizes_of(slice, f);
  const BlockWeight& w = slice.weight;
  const double panels = panels_of(slice.schedule, slice.col_end - slice.col_begin).tiles();
  const double packed = packed_calls(slice, s);
  const double panel_bytes =
      4.0 * (slice.seen && packed == 0 ? slice.seen.channels : w.cols) * s.cols / panels;
  const double panel_rate = resident_rate(panel_bytes, kPanelFractionOfL2, kPanelFractionLost, f);

  program::PhaseTimes cycles;
  cycles[program::Phase::rearrange] = packed * copy_cycles(slice, s, f);
  const double panel_vectors = std::ceil(s.cols / s.lanes) / panels;
  const double tiles = std::ceil(panel_vectors / slice.schedule.micro_vectors);
  double compute = panels * tiles * tile_cycles(slice, s, panel_vectors / tiles, panel_rate, 1 - packed, f);
  compute += panels * s.blocks * (kIndexCycles + (has_slots(w) ? kSlotCycles : 0));
  if (w.type != Type::f32) compute += panels * s.values / s.lanes * kWidenCycles;
  const double streaming = panels * s.value_bytes / streaming_rate(s.value_bytes + panel_bytes, f);
  cycles[program::Phase::compute] =
      std::max(compute, streaming) + kExposedStream * std::min(compute, streaming) +
      piece_cycles(w, s, streaming, f) + write_cycles(slice, s, f) + border_cycles(slice, s, panels);
  return cycles;
}

program::PhaseTimes few_column_cycles(const BlockSlice& slice, const machine::HostFigures& f) {
  const Sizes s = sizes_of(slice, f);
  const double vectors = kGroupValues / s.lanes;
  const bool transposed = slice.weight.transposed;
  const double most_cols = s.lanes < 16 ? (transposed ? 1 : 4) : (transposed ? 4 : kFewColumns);
  const double tile_cols = std::min(s.cols, most_cols);
  const double tiles = std::ceil(s.cols / std::max(1.0, tile_cols));
  const double together = transposed && slice.weight.block_size > 4 ? 4  // groups that share one load of X
                          : slice.weight.block_size >= 16 && s.lanes >= 16 ? 2
                                                                           : 1;
  const double multiply_adds = tile_cols * vectors * 2 * s.lanes / f.flops_per_cycle;
  const double loads = (tile_cols / together + 3 * vectors) * s.lanes * 4 / f.l1_bytes_per_cycle;
  const double repeats = transposed ? sparse::order_of(slice.weight.block_size).group : 1;
  const double panel = 4.0 * slice.weight.cols * s.cols * repeats;

  program::PhaseTimes cycles;
  cycles[program::Phase::rearrange] = 2 * panel / f.l2_bytes_per_cycle;
  const double groups = s.values / kGroupValues;
  // A 4 × 4 block is a single group: the cost of finding its rows of X is not spread over several.
  const double lookup = slice.weight.block_size == 4 ? kLookupCycles : 0;
  const double finish = transposed ? kTransposedFinishCycles : kFewColumnFinishCycles / s.lanes;
  const double rows = s.rows * tile_cols * finish + s.block_rows * 2 * kTileCycles +
                      (has_slots(slice.weight) ? s.blocks * kSlotCycles : 0);
  const double compute = tiles * (groups * (std::max(multiply_adds, loads) + lookup) + rows);
  const double streaming = s.value_bytes / streaming_rate(s.value_bytes, f);
  // Prefetching ends with a block row, and of several passes only the first streams, so the shorter part is
  // not entirely hidden.
  const double exposed = tiles > 1 ? 0.5 : 0.15;
  cycles[program::Phase::compute] = std::max(compute, streaming) + exposed * std::min(compute, streaming);
  return cycles;
}

program::PhaseTimes bf16_cycles(const BlockSlice& slice, const machine::HostFigures& f) {
  // Distance from the rate of tiles, making a step of rows of blocks, and finishing a vector of Y.
  constexpr double kSlack = 1.45, kTransposeStep = 90, kFinishVector = 8, kPackVector = 4;
  const Sizes s = sizes_of(slice, f);
  const BlockWeight& w = slice.weight;
  const double panels =
      std::ceil(s.cols / Bf16BlockScratch(w.cols, w.block_size, slice.col_end - slice.col_begin).panel_cols);
  const double tiles = std::ceil(s.cols / kBf16Columns), halves = w.block_size / double{kBf16BlockRows};
  // A product of tiles takes as long with half of the terms.
  const double terms = f.isa == Isa::amx ? kBf16Step : w.block_size;
  const double flops = 2 * s.blocks * halves * kBf16BlockRows * terms * tiles * kBf16Columns;
  const double rate = f.bf16_flops_per_cycle > 0 ? f.bf16_flops_per_cycle : f.flops_per_cycle;
  const double steps = s.blocks * halves * w.block_size / kBf16Step;
  program::PhaseTimes cycles;
  cycles[program::Phase::rearrange] = w.cols * tiles / 2 * kPackVector;
  cycles[program::Phase::compute] =
      std::max(kSlack * flops / rate, panels * s.value_bytes / streaming_rate(s.value_bytes, f)) +
      panels * steps * kTransposeStep + s.rows * tiles * kFinishVector +
      s.rows / kBf16BlockRows * std::ceil(tiles / kBf16BlockTiles) * kTileCycles;
  return cycles;
}

// Factorisations of `threads` into rows × columns.
std::vector<std::pair<uint16_t, uint16_t>> splits(uint32_t threads, uint32_t most_cols) {
  std::vector<std::pair<uint16_t, uint16_t>> out;
  for (uint32_t cols = 1; cols <= std::min(threads, most_cols); ++cols) {
    if (threads % cols == 0)
      out.emplace_back(static_cast<uint16_t>(threads / cols), static_cast<uint16_t>(cols));
  }
  return out;
}

struct TileShape {
  uint8_t rows, vectors;
};

// Micro-tiles that keep both multiply-add units busy: AVX-512 has 32 registers, others 16.
std::vector<TileShape> tile_shapes(uint32_t block_size, uint32_t lanes, uint32_t n) {
  if (lanes < 16 && block_size > 4 && n <= 2 * lanes) return {{8, 1}, {4, 2}};
  if (lanes < 16) return {{4, 3}, {4, 2}};
  if (block_size == 4) return {{4, 6}, {4, 4}, {4, 3}};
  return {{8, 3}, {8, 2}, {4, 4}, {4, 6}};
}

// Whether X may be read in place: whole vectors, or masks, whole blocks, and no row stride that evicts other
// rows from the L2 cache.
bool can_stay(const BlockProblem& p, uint32_t lanes, const machine::HostFigures& f) {
  if (p.can_shift) return lanes == kMaxLanes;
  const bool whole = !p.sees_images && !p.x_column_major && (p.n % lanes == 0 || lanes == kMaxLanes) &&
                     p.k % p.block_size == 0;
  return whole && 4.0 * p.k * p.n <= kInPlaceFractionOfL2 * static_cast<double>(f.l2_bytes);
}

}  // namespace

program::PhaseTimes block_cost(const BlockSlice& slice, const machine::HostFigures& figures) {
  if (slice.block_row_begin == slice.block_row_end || slice.col_begin == slice.col_end) return {};
  const auto cycles_of = [&] {
    switch (slice.schedule.kernel) {
      case BlockSchedule::Kernel::bf16: return bf16_cycles(slice, figures);
      case BlockSchedule::Kernel::few_columns: return few_column_cycles(slice, figures);
      default: return wide_cycles(slice, figures);
    }
  };
  return cycles_of().scaled(1 / (figures.ghz * 1e9));
}

std::vector<BlockSchedule> block_candidates(const BlockProblem& p, const machine::HostFigures& figures) {
  const auto lanes = static_cast<uint32_t>(lanes_of(figures));
  std::vector<BlockSchedule> schedules;
  for (const auto& [row_parts, col_parts] : splits(p.threads, std::max(1U, p.n / lanes))) {
    if (p.is_bf16) {
      schedules.push_back(
          {.kernel = BlockSchedule::Kernel::bf16, .row_parts = row_parts, .col_parts = col_parts});
      continue;
    }
    for (const TileShape& shape : tile_shapes(p.block_size, lanes, p.n)) {
      const uint32_t tile_cols = shape.vectors * lanes;
      for (uint32_t tiles = 1; tiles <= 4; ++tiles) {
        if (tiles > 1 && (tiles - 1) * tile_cols >= p.n / col_parts) break;
        const uint32_t panel_cols = tiles * tile_cols;
        for (const bool copy_x : {true, false}) {
          if (!copy_x && !can_stay(p, lanes, figures)) continue;
          for (const bool stream_y : {false, true})
            schedules.push_back({BlockSchedule::Kernel::wide, row_parts, col_parts, shape.rows, shape.vectors,
                                 panel_cols, copy_x, stream_y});
        }
      }
    }
  }
  constexpr uint32_t kMostFewColumns = 32;
  if (p.n <= kMostFewColumns && !p.sees_images && !p.is_bf16) {
    BlockSchedule schedule;
    schedule.kernel = BlockSchedule::Kernel::few_columns;
    schedule.row_parts = static_cast<uint16_t>(p.threads);
    schedules.push_back(schedule);
  }
  return schedules;
}

}  // namespace tessera::kernels
