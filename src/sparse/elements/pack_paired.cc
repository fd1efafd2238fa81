#include "sparse/elements/pack_paired.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "sparse/elements/row_pairs.h"

namespace tessera::sparse {
namespace {

/// The non-empty slices of a chunk's rows in the k-block that starts at first_column. Advances
/// `next`, the first element of each row behind the earlier k-blocks.
std::vector<RowSlice> slice_rows(const Pattern& pattern, uint32_t row_begin, uint32_t row_end,
                                 uint32_t end_column, std::vector<uint64_t>& next) {
  std::vector<RowSlice> slices;
  for (uint32_t row = row_begin; row < row_end; ++row) {
    const uint32_t* first = pattern.col_indices.data() + next[row];
    const uint32_t* end = pattern.col_indices.data() + pattern.crow_indices[row + 1];
    const uint32_t* last = first;
    while (last != end && *last < end_column) ++last;
    if (last == first) continue;
    next[row] += last - first;
    slices.push_back({static_cast<uint16_t>(row - row_begin), static_cast<uint16_t>(last - first), first});
  }
  return slices;
}

/// The steps of a row group follow from its task with the fewest shared columns and from its longest row:
/// other shared columns of a task become unpaired.
RowGroup make_row_group(std::span<const RowPair> tasks, uint32_t chunk_rows) {
  RowGroup row_group{};
  row_group.tasks = static_cast<uint16_t>(tasks.size());
  std::fill(row_group.row_a, row_group.row_a + kRowGroupLanes, static_cast<uint16_t>(chunk_rows));
  std::fill(row_group.row_b, row_group.row_b + kRowGroupLanes, static_cast<uint16_t>(chunk_rows));
  uint16_t longest = 0;
  row_group.shared_steps = tasks[0].shared;
  for (size_t lane = 0; lane < tasks.size(); ++lane) {
    row_group.row_a[lane] = tasks[lane].a.row;
    if (tasks[lane].b.count > 0) row_group.row_b[lane] = tasks[lane].b.row;
    row_group.shared_steps = std::min(row_group.shared_steps, tasks[lane].shared);
    longest = std::max(longest, tasks[lane].a.count);
  }
  row_group.shared_steps -= row_group.shared_steps % 2;
  row_group.unpaired_steps = longest - row_group.shared_steps;
  for (size_t lane = 0; lane < tasks.size(); ++lane) {
    uint16_t& steps = row_group.quarter_steps[lane / kQuarterLanes];
    steps = std::max<uint16_t>(steps, tasks[lane].a.count - row_group.shared_steps);
  }
  return row_group;
}

/// Loads of a kernel per step of a task, at four vectors of columns and per half; and the weight of a skipped
/// step, which kernels for few columns do not skip.
constexpr uint64_t kSharedStepCost = 13;
constexpr uint64_t kUnpairedStepCost = 22;
constexpr uint64_t kSkippedStepCost = 6;

uint64_t cost_of_row_groups(std::span<const RowPair> tasks) {
  uint64_t cost = 0;
  for (size_t first = 0; first < tasks.size(); first += kRowGroupLanes) {
    const size_t count = std::min<size_t>(kRowGroupLanes, tasks.size() - first);
    const RowGroup row_group = make_row_group(tasks.subspan(first, count), 0);
    for (const uint16_t steps : row_group.quarter_steps)
      cost += kSharedStepCost * row_group.shared_steps + kUnpairedStepCost * steps +
              kSkippedStepCost * (row_group.unpaired_steps - steps);
  }
  return cost;
}

/// Sorts by shared columns in strips of `strip` tasks; in a strip, by the longer row, alternately ascending
/// and descending, so that neighbours across a border are similar too.
void sort_in_strips(std::vector<RowPair>& tasks, int strip) {
  std::stable_sort(tasks.begin(), tasks.end(), [=](const RowPair& x, const RowPair& y) {
    const int x_strip = x.shared / strip, y_strip = y.shared / strip;
    if (x_strip != y_strip) return x_strip > y_strip;
    return x_strip % 2 == 0 ? x.a.count > y.a.count : x.a.count < y.a.count;
  });
}

/// Sorts the tasks of each row group by their longer rows, ascending or descending like its strip.
void sort_lanes(std::vector<RowPair>& tasks) {
  for (size_t first = 0; first < tasks.size(); first += kRowGroupLanes) {
    const auto begin = tasks.begin() + static_cast<ptrdiff_t>(first);
    const auto end = tasks.begin() + static_cast<ptrdiff_t>(std::min(first + kRowGroupLanes, tasks.size()));
    const bool ascends = begin->a.count < std::prev(end)->a.count;
    std::stable_sort(begin, end, [=](const RowPair& x, const RowPair& y) {
      return ascends ? x.a.count < y.a.count : x.a.count > y.a.count;
    });
  }
}

/// Places similar tasks next to each other, which minimises filler in their row groups: small strips if there
/// are many tasks, large ones if there are few.
void sort_tasks(std::vector<RowPair>& tasks) {
  int best = 0;
  uint64_t least = UINT64_MAX;
  for (const int strip : {2, 4, 8, 1 << 16}) {
    sort_in_strips(tasks, strip);
    const uint64_t cost = cost_of_row_groups(tasks);
    if (cost >= least) continue;
    least = cost;
    best = strip;
  }
  sort_in_strips(tasks, best);
  sort_lanes(tasks);
}

/// Writes one task's lane of index words. `first_column` begins the k-block, `filler` is the index
/// of none.
void write_columns(const RowPair& task, const RowGroup& row_group, uint32_t first_column, uint32_t filler,
                   uint32_t* words) {
  std::vector<uint32_t> shared, a, b;
  uint32_t i = 0, j = 0;
  while (i < task.a.count || j < task.b.count) {
    const uint32_t column_a = i < task.a.count ? task.a.columns[i] : UINT32_MAX;
    const uint32_t column_b = j < task.b.count ? task.b.columns[j] : UINT32_MAX;
    const uint32_t index = std::min(column_a, column_b) - first_column;
    i += column_a <= column_b;
    j += column_b <= column_a;
    if (column_a == column_b && shared.size() < row_group.shared_steps) {
      shared.push_back(index);
      continue;
    }
    if (column_a <= column_b) a.push_back(index);
    if (column_b <= column_a) b.push_back(index);
  }
  a.resize(row_group.unpaired_steps, filler);
  b.resize(row_group.unpaired_steps, filler);
  for (size_t s = 0; s < shared.size(); s += 2, words += kRowGroupLanes) {
    *words = pack_columns(shared[s], shared[s + 1]);
  }
  for (size_t s = 0; s < a.size(); ++s, words += kRowGroupLanes) *words = pack_columns(a[s], b[s]);
}

void append_columns(const RowGroup& row_group, std::span<const RowPair> tasks, uint32_t first_column,
                    ElementIndex& index) {
  const size_t begin = index.words.size();
  index.words.resize(begin + row_group.index_count(), pack_columns(index.k_block, index.k_block));
  for (size_t lane = 0; lane < tasks.size(); ++lane) {
    write_columns(tasks[lane], row_group, first_column, index.k_block, &index.words[begin + lane]);
  }
}

/// The parts of an index that follow from each other, as far as it is packed.
struct Packed {
  ElementIndex& index;
  uint64_t values = 0;
  uint64_t words = 0;

  void begin_block() { index.blocks.push_back({index.row_groups.size(), values, words}); }
  void add(const RowGroup& row_group) {
    index.row_groups.push_back(row_group);
    values += row_group.value_count();
    words += row_group.index_count();
  }
};

/// Calls visit(slices, first column, rows of the chunk) for each k-block of each chunk.
template <class Visit>
void for_each_block(const Pattern& pattern, const ElementIndex& index, const Visit& visit) {
  std::vector<uint64_t> next(pattern.crow_indices.begin(), std::prev(pattern.crow_indices.end()));
  for (uint32_t chunk = 0; chunk < index.chunks(); ++chunk) {
    const uint32_t begin = index.chunk_begin[chunk], end = index.chunk_begin[chunk + 1];
    for (uint32_t column = 0; column < index.cols; column += index.k_block)
      visit(slice_rows(pattern, begin, end, column + index.k_block, next), column, end - begin);
  }
}

/// Calls visit(row group, its tasks) for the tasks of a k-block of a chunk.
template <class Visit>
void for_each_row_group(std::vector<RowSlice> slices, uint32_t first_column, uint32_t k_block,
                        uint32_t chunk_rows, const Visit& visit) {
  std::vector<RowPair> tasks = pair_rows(std::move(slices), first_column, k_block);
  sort_tasks(tasks);
  for (size_t first = 0; first < tasks.size(); first += kRowGroupLanes) {
    const size_t count = std::min<size_t>(kRowGroupLanes, tasks.size() - first);
    const auto lanes = std::span<const RowPair>(tasks).subspan(first, count);
    visit(make_row_group(lanes, chunk_rows), lanes);
  }
}

uint64_t elements_of(std::span<const RowSlice> slices) {
  uint64_t elements = 0;
  for (const RowSlice& slice : slices) elements += slice.count;
  return elements;
}

/// A row group with steps in this proportion.
RowGroup scaled(RowGroup row_group, double factor) {
  const auto scale = [&](uint16_t steps) {
    return static_cast<uint16_t>(std::min(std::lround(steps * factor), long{kMaxKBlock}));
  };
  row_group.shared_steps = static_cast<uint16_t>(scale(row_group.shared_steps) / 2 * 2);
  row_group.unpaired_steps = scale(row_group.unpaired_steps);
  for (uint16_t& steps : row_group.quarter_steps) steps = scale(steps);
  return row_group;
}

}  // namespace

void pack_paired(const Pattern& pattern, ElementIndex& index) {
  index.words.reserve(pattern.blocks() + pattern.blocks() / 8);
  index.blocks.clear();
  Packed packed{index};
  for_each_block(pattern, index, [&](std::vector<RowSlice> slices, uint32_t column, uint32_t chunk_rows) {
    packed.begin_block();
    for_each_row_group(std::move(slices), column, index.k_block, chunk_rows,
                       [&](const RowGroup& row_group, std::span<const RowPair> lanes) {
                         packed.add(row_group);
                         append_columns(row_group, lanes, column, index);
                       });
  });
  packed.begin_block();
}

void sample_paired(const Pattern& pattern, uint64_t sampled, ElementIndex& index) {
  const uint64_t every = std::max<uint64_t>(pattern.blocks() / std::max<uint64_t>(sampled, 1), 1);
  index.blocks.clear();
  Packed packed{index};
  uint64_t block = 0, elements = 0;  // of the sample
  size_t first = 0, last = 0;        // its row groups
  for_each_block(pattern, index, [&](std::vector<RowSlice> slices, uint32_t column, uint32_t chunk_rows) {
    packed.begin_block();
    const uint64_t here = elements_of(slices);
    if (block++ % every != 0 && elements > 0) {
      const double factor = static_cast<double>(here) / static_cast<double>(elements);
      for (size_t i = first; i < last; ++i) packed.add(scaled(index.row_groups[i], factor));
      return;
    }
    elements = here;
    first = index.row_groups.size();
    for_each_row_group(std::move(slices), column, index.k_block, chunk_rows,
                       [&](const RowGroup& row_group, std::span<const RowPair>) { packed.add(row_group); });
    last = index.row_groups.size();
  });
  packed.begin_block();
}

}  // namespace tessera::sparse
