#include "ops/map/map.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "base/ceil_divide.h"
#include "base/memo.h"
#include "compiler/compile.h"
#include "ops/blocks.h"
#include "ops/map/key.h"
#include "ops/tiles/expected.h"
#include "program/cycles.h"

namespace tessera::ops {
namespace {

using base::ceil_divide;
using machine::Kind;
using machine::Machine;
using program::Box;
using program::BoxSeries;
using program::Phase;
using program::PhaseTimes;
using program::StepId;

/// An even partition into at most `row_parts` parts of rows, changed so that no box has a part of a group and
/// rows of another.
MapPartition within_groups(MapPartition partition, uint32_t row_parts, uint32_t group) {
  const uint32_t rows = partition.rows, each = partition.rows_per_tile;
  if (each == 0 || rows % group != 0 || each % group == 0 || group % each == 0) return partition;
  if (each > group) {
    partition.rows_per_tile = ceil_divide(each, group) * group;
    partition.row_parts = ceil_divide(rows, partition.rows_per_tile);
    return partition;
  }
  const uint32_t groups = rows / group;
  partition.rows_per_tile = ceil_divide(group, row_parts / groups);
  partition.row_parts = groups * ceil_divide(group, partition.rows_per_tile);
  if (group % partition.rows_per_tile != 0) partition.row_group = group;
  return partition;
}

std::vector<MapPartition> candidate_partitions(uint32_t rows, uint32_t cols, uint32_t tiles,
                                               uint32_t row_group) {
  std::vector<MapPartition> partitions;
  const auto add_new = [&](const MapPartition& partition) {
    if (std::find(partitions.begin(), partitions.end(), partition) == partitions.end())
      partitions.push_back(partition);
  };
  const auto add = [&](uint32_t row_parts, uint32_t col_parts) {
    const MapPartition even = partition_evenly(rows, cols, row_parts, col_parts);
    const MapPartition grouped = within_groups(even, row_parts, row_group);
    if (grouped.rows_per_tile != even.rows_per_tile) add_new(even);
    add_new(grouped);
  };
  for (uint32_t used = 1;; used = std::min(2 * used, tiles)) {
    const uint32_t by_rows = std::clamp(rows, 1U, used);
    const uint32_t by_cols = std::clamp(cols, 1U, used);
    add(by_rows, used / by_rows);
    add(used / by_cols, by_cols);
    if (used == tiles) return partitions;
  }
}

bool follows(const MapOperand& operand, const MapPartition& partition) {
  return (operand.split_rows || partition.row_parts <= 1) && (operand.split_cols || partition.col_parts <= 1);
}

/// Rows of the partitioned matrix for which vertices take the same rows of an operand.
uint32_t row_group_of(const MapOperation& operation) {
  uint32_t most = 1;
  for (const MapOperand& operand : operation.operands) most = std::max(most, operand.row_group);
  return most;
}

/// The boxes that the vertices of a run own.
std::vector<Box> own_boxes(const MapPartition& partition, const VertexRun& run) {
  std::vector<Box> boxes = run.own;
  if (boxes.empty())
    for (uint32_t i = 0; i < run.tiles * run.per_tile; ++i) boxes.push_back(partition.box(i));
  return boxes;
}

/// The boxes of an operand for the vertices of a run. Series are clipped to variables, so a box of one needs
/// a table.
BoxSeries operand_boxes(const MapOperand& operand, const Operand& at, bool is_whole,
                        const MapPartition& partition, const VertexRun& run) {
  if (run.own.empty() && is_whole && partition.row_group == 0 && operand.row_group == 1 &&
      !operand.transposed) {
    const Box first = operand_box(operand, {0, partition.rows_per_tile, 0, partition.cols_per_tile});
    return BoxSeries::grid(first,
                           {operand.split_rows ? partition.rows_per_tile * operand.rows_per_row : 0, 0},
                           std::max(1U, partition.col_parts),
                           {0, operand.split_cols ? partition.cols_per_tile * operand.cols_per_col : 0});
  }
  std::vector<Box> boxes;
  for (const Box& own : own_boxes(partition, run)) boxes.push_back(at.inside(operand_box(operand, own)));
  return BoxSeries::table(std::move(boxes));
}

std::vector<program::Param> params_of(const MapOperation& operation, const MapPartition& partition,
                                      const VertexRun& run) {
  std::vector<program::Param> params(operation.params.begin(), operation.params.end());
  if (!operation.takes_origin) return params;
  std::vector<int64_t> rows, cols;
  for (const Box& box : own_boxes(partition, run)) rows.push_back(box.row), cols.push_back(box.col);
  params.emplace_back(std::move(rows));
  params.emplace_back(std::move(cols));
  return params;
}

/// The boxes of an operand that vertices take, on their tiles.
std::vector<program::MappedBox> taken_boxes(const MapOperand& operand, const MapPartition& partition,
                                            const std::vector<VertexRun>& runs) {
  std::vector<program::MappedBox> taken;
  for (const VertexRun& run : runs) {
    const std::vector<Box> own = own_boxes(partition, run);
    for (size_t i = 0; i < own.size(); ++i)
      taken.push_back(
          {operand_box(operand, own[i]), run.first_tile + static_cast<uint32_t>(i / run.per_tile)});
  }
  return taken;
}

/// Replaces fields that go to or come from other tiles by too many transfers with temporaries in blocks: adds
/// the steps that fill them, and the copies from those that are written.
void bring_by_blocks(const Builder& builder, const MapOperation& operation, const MapPartition& partition,
                     const std::vector<VertexRun>& runs, std::vector<Operand>& fields,
                     std::vector<StepId>& steps, program::CopySet& after) {
  program::CopySet before{"to blocks", {}};
  uint64_t boxes = 0, on_a_tile = 0;
  for (const VertexRun& run : runs) {
    boxes += uint64_t{run.tiles} * run.per_tile;
    on_a_tile = std::max<uint64_t>(on_a_tile, run.per_tile);
  }
  for (size_t f = 0; f < fields.size(); ++f) {
    if (operation.operands[f].is_own() || !may_take_blocks(builder, fields[f], boxes, on_a_tile)) continue;
    const program::Access access = operation.codelet->fields[f].access;
    const std::vector<program::MappedBox> taken = taken_boxes(operation.operands[f], partition, runs);
    const Operand given = fields[f];
    fields[f] = reads(access)
                    ? read_by_blocks(builder, given, given, taken, before)
                    : blocks_between(builder, given, taken, builder.mapping_of(given)).value_or(given);
    if (writes(access) && fields[f] != given) after.groups.push_back(copy_of(fields[f], given));
  }
  builder.copy(std::move(before), steps);
}

/// Throws UsageError for operands that do not match the operation.
void check_operands(const Builder& builder, const MapOperation& operation,
                    std::span<const Operand> operands) {
  size_t next = 0;
  for (const MapOperand& wanted : operation.operands) {
    if (wanted.is_own()) continue;
    if (next < operands.size())
      builder.require(operands[next], wanted.name, wanted.type, wanted.rows, wanted.cols);
    ++next;
  }
  if (next != operands.size())
    throw UsageError(
        fmt::format("{} takes {} operands; there are {}", operation.codelet->name, next, operands.size()));
}

/// Cycles of the largest vertex, which is the first, and the sync after it.
PhaseTimes superstep_cycles(const MapOperation& operation, const MapPartition& partition, const Machine& m) {
  PhaseTimes cycles;
  if (partition.tiles() > 0) {
    std::vector<program::FieldView> fields;
    for (const MapOperand& operand : operation.operands) {
      const Box box = operand_box(operand, partition.box(0));
      // Costs may read constants.
      auto* const contents = const_cast<std::byte*>(operand.contents.get());
      fields.push_back({contents, operand.type, box.rows, box.cols, operand.cols, 1});
    }
    std::vector<int64_t> params = operation.params;
    if (operation.takes_origin) params.insert(params.end(), {0, 0});
    cycles = operation.codelet->cost({fields, params}, m);
  }
  cycles[Phase::sync] += program::sync_cycles(m, partition.tiles());
  return cycles;
}

/// The exact cost of a program on tiles. One that takes longer than `most_seconds` is rejected before
/// anything is placed.
PlanCandidate counted(const program::Program& program, const Machine& machine, double most_seconds) {
  constexpr double kRounding = 1 + 1e-9;  // of two that take equally long, the first is chosen
  const compiler::Estimate estimate =
      compiler::estimate(program, machine, {}, most_seconds * machine.clock_hz * kRounding);
  PlanCandidate candidate;
  candidate.seconds = estimate.cycles.scaled(1 / machine.clock_hz);
  if (!estimate.has_memory) {
    candidate.rejected = slower_than(candidate, most_seconds);
    return candidate;
  }
  candidate.max_tile_bytes = estimate.memory.max_tile_bytes;
  for (const compiler::TileMemory& tile : estimate.memory.tiles)
    candidate.exchange_code_bytes =
        std::max(candidate.exchange_code_bytes, tile[compiler::MemoryUse::exchange_code]);
  return candidate;
}

/// Counts in units of `size` elements; false: a unit would be divided.
bool count_in(uint32_t size, uint32_t& first, uint32_t& count) {
  if (first % size != 0 || count % size != 0) return false;
  first /= size;
  count /= size;
  return true;
}

/// The partition in which the result lies, if that partitions the operation: a result that is not split along
/// an axis must lie in boxes that are whole along it.
MapPartition as_result_lies(const Builder& builder, const MapOperation& operation, const Operand& result) {
  const MapOperand& described = operation.operands.back();
  if (described.transposed || described.row_group != 1) return {};
  MapPartition partition = partition_as_it_lies(builder, result);
  for (program::MappedBox& mapped : partition.boxes) {
    if (!described.split_rows && mapped.box.rows != result.rows()) return {};
    if (!described.split_cols && mapped.box.cols != result.cols()) return {};
    if (!described.split_rows) mapped.box.row = 0, mapped.box.rows = operation.rows;
    if (!described.split_cols) mapped.box.col = 0, mapped.box.cols = operation.cols;
    if (described.split_rows && !count_in(described.rows_per_row, mapped.box.row, mapped.box.rows)) return {};
    if (described.split_cols && !count_in(described.cols_per_col, mapped.box.col, mapped.box.cols)) return {};
  }
  partition.rows = operation.rows;
  partition.cols = operation.cols;
  return partition;
}

/// What the largest vertex takes, in a superstep where nothing is exchanged.
LeastSeconds least_seconds_on_tiles(const MapOperation& operation, const Machine& machine) {
  return [&operation, &machine](const MapPartition& partition) {
    const PhaseTimes cycles = superstep_cycles(operation, partition, machine);
    return (cycles.total() + program::superstep_cycles(machine, partition.tiles())) / machine.clock_hz;
  };
}

/// Lower bounds of the bytes and transfers that a tile has to receive, or to send.
struct LeastTraffic {
  double bytes = 0;
  double transfers = 0;

  /// Adds a box, which may partly lie on the tile. By way of blocks it takes at least one transfer, and in
  /// one of the two exchanges all the bytes that the tile lacks.
  template <class TakesBlocks>
  void add(std::span<const program::MappedBox> mapping, const Box& box, program::TileId tile, Type type,
           const TakesBlocks& takes_blocks) {
    uint64_t elsewhere = box.elements();
    uint32_t parts = 0;
    for (const program::MappedBox& mapped : mapping) {
      const uint64_t common = intersection(mapped.box, box).elements();
      if (mapped.tile == tile)
        elsewhere -= std::min(common, elsewhere);
      else if (common > 0)
        ++parts;
    }
    if (elsewhere == 0) return;
    bytes += static_cast<double>(elsewhere * size_of(type));
    transfers += parts > 1 && takes_blocks() ? 1 : parts;
  }

  double cycles(const Machine& m) const {
    if (transfers == 0) return 0;
    const double traffic = bytes / (m.exchange_bytes_per_cycle * m.paired_exchange_factor) +
                           transfers * m.exchange_transfer_cycles;
    PhaseTimes exchange;
    add_exchange(m, traffic, exchange);
    return exchange.total();
  }
};

/// Includes the exchanges of a tile in the middle, before and after the superstep.
LeastSeconds least_seconds_in_place(const Builder& builder, const MapOperation& operation,
                                    std::span<const Operand> operands) {
  std::vector<std::vector<program::MappedBox>> mappings;
  for (const Operand& operand : operands) mappings.push_back(builder.mapping_of(operand));
  return [&builder, &operation, operands, mappings = std::move(mappings)](const MapPartition& partition) {
    const Machine& m = builder.machine();
    if (partition.tiles() == 0) return 0.0;
    const program::TileId tile = partition.tiles() / 2;
    LeastTraffic before, after;
    std::vector<std::pair<program::VariableId, Box>> received;
    size_t next = 0;
    for (size_t f = 0; f < operation.operands.size(); ++f) {
      const MapOperand& operand = operation.operands[f];
      if (operand.is_own()) continue;
      const Box box = operand_box(operand, partition.box(tile));
      const program::Access access = operation.codelet->fields[f].access;
      const auto takes_blocks = [&] {
        if (m.exchange_transfer_cycles == 0 ||
            !may_take_blocks(builder, operands[next], partition.tiles(), 1))
          return false;
        const std::vector<program::MappedBox> taken = taken_boxes(operand, partition, vertex_runs(partition));
        return reads(access) ? takes_many_transfers(mappings[next], taken)
                             : takes_many_transfers(taken, mappings[next]);
      };
      // A tile receives data that two operands share only once.
      const std::pair shared(operands[next].variable, operands[next].inside(box));
      if (reads(access) && std::ranges::find(received, shared) == received.end()) {
        received.push_back(shared);
        before.add(mappings[next], box, tile, operand.type, takes_blocks);
      }
      if (writes(access)) after.add(mappings[next], box, tile, operand.type, takes_blocks);
      ++next;
    }
    return least_seconds_on_tiles(operation, m)(partition) +
           (before.cycles(m) + after.cycles(m)) / m.clock_hz;
  };
}

/// Whether cores write parts of the same rows, and so the same cache lines, although there are enough rows
/// for all cores.
bool divides_rows(const MapOperation& operation, const MapPartition& partition, const Machine& machine) {
  constexpr uint32_t kRowsOfCore = 8;
  const MapOperand& result = operation.operands.back();
  const bool may_divide = result.transposed ? result.split_cols : result.split_rows;
  const uint32_t rows = result.transposed ? operation.cols : operation.rows;
  return may_divide && rows >= kRowsOfCore * machine.tiles && partition.tiles() > 1 &&
         operand_box(result, partition.box(0)).cols < result.cols;
}

PlanCandidate predict_on_host(const MapOperation& operation, const MapPartition& partition,
                              const Machine& machine) {
  PlanCandidate candidate;
  candidate.seconds = superstep_cycles(operation, partition, machine).scaled(1 / machine.clock_hz);
  if (divides_rows(operation, partition, machine)) candidate.rejected = "cores write parts of the same rows";
  for (const MapOperand& operand : operation.operands)
    candidate.max_tile_bytes += uint64_t{operand.rows} * operand.cols * size_of(operand.type);
  return candidate;
}

MapPlan plan_on_host(const MapOperation& operation, const Machine& machine) {
  return choose_partition(
      operation.rows, operation.cols, machine,
      [&](const MapPartition& partition, double) { return predict_on_host(operation, partition, machine); });
}

/// What the plan of an operation depends on if its operands are mapped as the plan wants.
struct AloneKey {
  MapOperation operation;
  Machine machine;

  bool operator==(const AloneKey& other) const {
    return operation == other.operation && machine.is_like(other.machine);
  }
};

MapPlan plan_on_tiles(const MapOperation& operation, const Machine& machine) {
  const auto predicted = [&](const MapPartition& partition, double most_seconds) {
    program::Program program;
    const Builder builder(program, machine);
    const std::vector<Operand> operands = add_externals(builder, operation, partition);
    program.set_main(build_map(builder, operation, {partition, {}, {}}, operands));
    return counted(program, machine, most_seconds);
  };
  constexpr size_t kMost = 64;
  static base::Memo<AloneKey, MapPlan> plans(kMost);
  return plans.get({operation, machine}, [&] {
    return choose_partition(operation.rows, operation.cols, machine, predicted, {},
                            least_seconds_on_tiles(operation, machine), row_group_of(operation));
  });
}

/// Throws Error if not even the chosen plan fits.
void require_fit(const MapPlan& plan, const MapOperation& operation, const Machine& machine) {
  if (plan.chosen.rejected.empty()) return;
  throw Error(fmt::format(
      "{} of {} × {} elements does not fit {}: its smallest plan {}; use fewer elements, "
      "or a machine with more tiles or memory",
      operation.codelet->name, operation.rows, operation.cols, machine.name, plan.chosen.rejected));
}

}  // namespace

std::vector<VertexRun> vertex_runs(const MapPartition& partition) {
  if (partition.boxes.empty()) {
    if (partition.tiles() == 0) return {};
    return {{.tiles = partition.tiles()}};
  }
  std::vector<VertexRun> runs;
  for (size_t begin = 0, end = 0; begin < partition.boxes.size(); begin = end) {
    VertexRun on_tile{partition.boxes[begin].tile, 1};
    for (end = begin; end < partition.boxes.size() && partition.boxes[end].tile == on_tile.first_tile; ++end)
      on_tile.own.push_back(partition.boxes[end].box);
    on_tile.per_tile = static_cast<uint32_t>(on_tile.own.size());
    if (!runs.empty() && runs.back().first_tile + runs.back().tiles == on_tile.first_tile &&
        runs.back().per_tile == on_tile.per_tile) {
      ++runs.back().tiles;
      runs.back().own.insert(runs.back().own.end(), on_tile.own.begin(), on_tile.own.end());
    } else {
      runs.push_back(std::move(on_tile));
    }
  }
  return runs;
}

std::string overflow_of(const PlanCandidate& candidate, const Machine& machine, bool can_stay) {
  constexpr uint64_t kShareForCode = 32;
  if (const uint64_t capacity = machine.kind == Kind::host ? machine.shared_bytes : machine.tile_bytes;
      candidate.max_tile_bytes > capacity)
    return fmt::format("needs {} bytes {} and has {}", candidate.max_tile_bytes,
                       machine.kind == Kind::host ? "of memory" : "on a tile", capacity);
  if (const uint64_t most = machine.tile_bytes / kShareForCode;
      can_stay && candidate.exchange_code_bytes > most)
    return fmt::format("needs {} bytes of exchange code on a tile; an operation may take {}",
                       candidate.exchange_code_bytes, most);
  return {};
}

std::vector<program::MappedBox> map_operand(const MapOperand& operand, const MapPartition& partition) {
  std::vector<program::MappedBox> mapping;
  for (program::TileId tile = 0; tile < partition.tiles(); ++tile)
    mapping.push_back({operand_box(operand, partition.box(tile)), tile});
  return mapping;
}

Box operand_box(const MapOperand& operand, const Box& own) {
  Box box{0, operand.rows, 0, operand.cols};
  if (operand.transposed) box = transpose(box);
  if (operand.split_rows && own.rows > 0) {
    const uint32_t first = own.row / operand.row_group, last = (own.row_end() - 1) / operand.row_group;
    box.row = first * operand.rows_per_row;
    box.rows = (last - first + 1) * operand.rows_per_row;
  }
  if (operand.split_cols)
    box.col = own.col * operand.cols_per_col, box.cols = own.cols * operand.cols_per_col;
  if (operand.transposed) box = transpose(box);
  return intersection(box, {0, operand.rows, 0, operand.cols});
}

uint32_t MapPartition::tiles() const {
  if (boxes.empty()) return row_parts * col_parts;
  uint32_t tiles = 1;
  for (size_t i = 1; i < boxes.size(); ++i) tiles += boxes[i].tile != boxes[i - 1].tile ? 1 : 0;
  return tiles;
}

Box MapPartition::box(program::TileId tile) const {
  const uint32_t group = row_group == 0 ? rows : row_group;
  const uint32_t parts = ceil_divide(group, rows_per_tile);  // of a group
  const uint32_t i = tile / col_parts, first = i / parts * group;
  const Box moved{first + i % parts * rows_per_tile, rows_per_tile, tile % col_parts * cols_per_tile,
                  cols_per_tile};
  return intersection(moved, {first, group, 0, cols});
}

MapPartition partition_evenly(uint32_t rows, uint32_t cols, uint32_t row_parts, uint32_t col_parts) {
  MapPartition partition{rows, cols};
  if (rows == 0 || cols == 0) return partition;
  partition.rows_per_tile = ceil_divide(rows, std::max(1U, row_parts));
  partition.cols_per_tile = ceil_divide(cols, std::max(1U, col_parts));
  partition.row_parts = ceil_divide(rows, partition.rows_per_tile);
  partition.col_parts = ceil_divide(cols, partition.cols_per_tile);
  return partition;
}

std::string to_string(const MapPartition& partition) {
  if (!partition.boxes.empty())
    return fmt::format("in place, {} boxes on {} tiles", partition.boxes.size(), partition.tiles());
  return fmt::format("{} × {} tiles, {} × {} per tile", partition.row_parts, partition.col_parts,
                     partition.rows_per_tile, partition.cols_per_tile);
}

MapPlan choose_partition(uint32_t rows, uint32_t cols, const Machine& machine,
                         const PredictPartition& predict, const MapPartition& as_it_lies,
                         const LeastSeconds& least, uint32_t row_group) {
  std::vector<MapPartition> partitions = candidate_partitions(rows, cols, machine.tiles, row_group);
  if (!as_it_lies.boxes.empty()) partitions.insert(partitions.begin(), as_it_lies);
  std::vector<size_t> order(partitions.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<double> at_least(partitions.size());
  for (size_t i = 0; least && i < partitions.size(); ++i)
    if (partitions[i].boxes.empty()) at_least[i] = least(partitions[i]);
  std::ranges::stable_sort(order, {}, [&](size_t i) { return at_least[i]; });
  double fastest = std::numeric_limits<double>::infinity();
  MapPlan plan;
  plan.candidates.resize(partitions.size());
  for (const size_t i : order) {
    PlanCandidate& candidate = plan.candidates[i];
    if (at_least[i] > fastest) {
      candidate.seconds[Phase::compute] = at_least[i];
      candidate.rejected = fmt::format("computes for {:.3g} us, slower than {:.3g} us in all",
                                       at_least[i] * 1e6, fastest * 1e6);
    } else {
      candidate = predict(partitions[i], fastest);
    }
    candidate.partition = to_string(partitions[i]);
    if (candidate.rejected.empty())
      candidate.rejected = overflow_of(candidate, machine, !as_it_lies.boxes.empty());
    if (candidate.rejected.empty()) fastest = std::min(fastest, candidate.total());
  }
  const size_t best = choose_fastest(plan.candidates);
  plan.partition = partitions[best];
  plan.chosen = plan.candidates[best];
  return plan;
}

MapPlan plan_map(const MapOperation& operation, const Machine& machine) {
  MapPlan plan =
      machine.kind == Kind::host ? plan_on_host(operation, machine) : plan_on_tiles(operation, machine);
  require_fit(plan, operation, machine);
  return plan;
}

MapPlan plan_map(const Builder& builder, const MapOperation& operation, std::span<const Operand> operands) {
  check_operands(builder, operation, operands);
  if (builder.is_host()) return plan_map(operation, builder.machine());
  const auto plan = [&] {
    return choose_partition(
        operation.rows, operation.cols, builder.machine(),
        [&](const MapPartition& partition, double most_seconds) {
          return predict(
              builder, partition, operands,
              [&](const Builder& scratch, const MapPlan& planned, std::span<const Operand> copies) {
                return build_map(scratch, operation, planned, copies);
              },
              most_seconds);
        },
        as_result_lies(builder, operation, operands.back()),
        least_seconds_in_place(builder, operation, operands), row_group_of(operation));
  };
  constexpr size_t kMost = 256;
  static base::Memo<MapKey, MapPlan> plans(kMost);
  return plans.get(key_of(builder, operation, operands), plan);
}

PlanCandidate predict(const Builder& builder, const MapPartition& partition,
                      std::span<const Operand> operands, const BuildInPlace& build, double most_seconds) {
  Machine machine = builder.whole_machine();
  machine.tiles = builder.first_tile() + builder.machine().tiles;
  program::Program program;
  std::map<program::VariableId, program::VariableId> copies;
  std::vector<Operand> in_place(operands.begin(), operands.end());
  for (Operand& operand : in_place) {
    const auto [copy, is_new] = copies.try_emplace(operand.variable);
    if (is_new) {
      const program::Variable& variable = builder.program().variable(operand.variable);
      for (const program::MappedBox& mapped : variable.mapping)
        machine.tiles = std::max(machine.tiles, mapped.tile + 1);
      copy->second = program.add(variable);
    }
    operand.variable = copy->second;
  }
  const Builder scratch(program, machine, builder.first_tile(), builder.machine().tiles);
  program.set_main(build(scratch, {partition, {}, {}}, in_place));
  return counted(program, machine, most_seconds);
}

PlanCandidate predict(const Builder& builder, std::string partition, std::span<const Operand> operands,
                      const std::function<program::StepId(const Builder&, std::span<const Operand>)>& build) {
  PlanCandidate candidate = predict(builder, MapPartition(), operands,
                                    [&](const Builder& scratch, const MapPlan&,
                                        std::span<const Operand> copies) { return build(scratch, copies); });
  candidate.partition = std::move(partition);
  candidate.rejected = overflow_of(candidate, builder.machine(), true);
  return candidate;
}

MapPartition partition_as_it_lies(const Builder& builder, const Operand& operand) {
  if (builder.is_host() || !builder.holds(operand)) return {};
  MapPartition partition{operand.rows(), operand.cols()};
  partition.boxes = builder.mapping_of(operand);
  std::ranges::stable_sort(partition.boxes, {}, &program::MappedBox::tile);
  return partition;
}

StepId build_map(const Builder& builder, const MapOperation& operation, const MapPlan& plan,
                 std::span<const Operand> operands) {
  check_operands(builder, operation, operands);
  const MapPartition& partition = plan.partition;
  std::vector<Operand> fields;
  size_t next = 0;
  for (const MapOperand& wanted : operation.operands)
    fields.push_back(!wanted.is_own() ? operands[next++]
                                      : builder.constant(wanted.name, wanted.type, wanted.rows, wanted.cols,
                                                         wanted.contents));
  std::vector<StepId> steps;
  program::CopySet after{"from blocks", {}};
  const std::vector<VertexRun> runs = vertex_runs(partition);
  if (!builder.is_host()) bring_by_blocks(builder, operation, partition, runs, fields, steps, after);
  program::ComputeSet set{std::string(operation.codelet->name), operation.phase, {}};
  for (const VertexRun& run : runs) {
    program::VertexGroup group{operation.codelet, run.first_tile, run.tiles, run.per_tile, {}, {}};
    for (size_t f = 0; f < fields.size(); ++f) {
      const bool is_whole = fields[f].box == builder.program().variable(fields[f].variable).whole();
      group.fields.push_back(
          {fields[f].variable, operand_boxes(operation.operands[f], fields[f], is_whole, partition, run)});
    }
    group.params = params_of(operation, partition, run);
    set.groups.push_back(std::move(group));
  }
  steps.push_back(builder.execute(std::move(set)));
  builder.copy(std::move(after), steps);
  return builder.in_order(std::move(steps));
}

std::vector<Operand> add_externals(const Builder& builder, const MapOperation& operation,
                                   const MapPartition& partition) {
  std::vector<Operand> operands;
  for (const MapOperand& operand : operation.operands) {
    if (operand.is_own()) continue;
    std::vector<program::MappedBox> mapping;
    if (!builder.is_host() && follows(operand, partition)) mapping = map_operand(operand, partition);
    operands.push_back(builder.external(operand.name, operand.role, operand.type, operand.rows, operand.cols,
                                        std::move(mapping)));
  }
  return operands;
}

}  // namespace tessera::ops
