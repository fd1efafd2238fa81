#include "sparse/packed_elements.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <iterator>
#include <span>

#include "base/half.h"
#include "sparse/row_pairs.h"

namespace tessera::sparse {
namespace {

/// Rows of a chunk: enough for like tasks to find each other, few enough for their sums to wait in
/// the L2 cache. An eighth more where that keeps the last rows from making a chunk of their own.
constexpr uint32_t kChunkRows = 2048;
constexpr uint32_t kMostRows = kChunkRows + kChunkRows / 8;

/// Shorter chunks are mostly filler, and are not cut for the sake of more parts.
constexpr uint32_t kLeastRows = 128;

uint32_t choose_k_block(const Pattern& pattern) {
  const double cells = static_cast<double>(pattern.rows) * pattern.cols;
  const double density = cells > 0 ? pattern.blocks() / cells : 0;
  // With the row of zeros behind them, 2^i rows of X.
  if (density >= 3.0 / 8) return 63;
  if (density >= 3.0 / 64) return 127;
  if (density >= 3.0 / 256) return 255;
  return 1023;
}

void store(std::byte* values, Type type, uint64_t i, float value) {
  switch (type) {
    case Type::f16: {
      const base::Half bits = base::to_half(value);
      std::memcpy(values + 2 * i, &bits, 2);
      return;
    }
    case Type::bf16: {
      const base::Bfloat16 bits = base::to_bfloat16(value);
      std::memcpy(values + 2 * i, &bits, 2);
      return;
    }
    default: std::memcpy(values + 4 * i, &value, 4);
  }
}

float load(const std::byte* values, Type type, uint64_t i) {
  uint16_t bits = 0;
  float value = 0;
  if (type == Type::f32) {
    std::memcpy(&value, values + 4 * i, 4);
    return value;
  }
  std::memcpy(&bits, values + 2 * i, 2);
  return type == Type::f16 ? base::to_float(base::Half(bits))
                           : base::to_float(base::Bfloat16(bits));
}

/// The non-empty slices of a chunk's rows in the k-block that starts at first_column. Advances
/// `next`, the first element of each row behind the earlier k-blocks.
std::vector<RowSlice> slice_rows(const Pattern& pattern, uint32_t row_begin, uint32_t row_end,
                                 uint32_t end_column, std::vector<uint64_t>& next) {
  std::vector<RowSlice> slices;
  for (uint32_t row = row_begin; row < row_end; ++row) {
    const uint32_t* first = pattern.columns.data() + next[row];
    const uint32_t* end = pattern.columns.data() + pattern.row_begin[row + 1];
    const uint32_t* last = first;
    while (last != end && *last < end_column) ++last;
    if (last == first) continue;
    next[row] += last - first;
    slices.push_back(
        {static_cast<uint16_t>(row - row_begin), static_cast<uint16_t>(last - first), first});
  }
  return slices;
}

/// The steps of a bundle follow from its least shared and its longest row: where a task shares
/// more, the rest of its shared columns go apart.
ElementBundle make_bundle(std::span<const RowPair> tasks, uint32_t chunk_rows) {
  ElementBundle bundle{};
  bundle.tasks = static_cast<uint16_t>(tasks.size());
  std::fill(bundle.row_a, bundle.row_a + kBundleLanes, static_cast<uint16_t>(chunk_rows));
  std::fill(bundle.row_b, bundle.row_b + kBundleLanes, static_cast<uint16_t>(chunk_rows));
  uint16_t longest = 0;
  bundle.shared_steps = tasks[0].shared;
  for (size_t lane = 0; lane < tasks.size(); ++lane) {
    bundle.row_a[lane] = tasks[lane].a.row;
    if (tasks[lane].b.count > 0) bundle.row_b[lane] = tasks[lane].b.row;
    bundle.shared_steps = std::min(bundle.shared_steps, tasks[lane].shared);
    longest = std::max(longest, tasks[lane].a.count);
  }
  bundle.shared_steps -= bundle.shared_steps % 2;
  bundle.apart_steps = longest - bundle.shared_steps;
  return bundle;
}

/// Loads that a kernel spends on a step of a task, at four vectors of columns and per half.
constexpr uint64_t kSharedStepCost = 13;
constexpr uint64_t kApartStepCost = 22;

uint64_t cost_of_bundles(std::span<const RowPair> tasks) {
  uint64_t cost = 0;
  for (size_t first = 0; first < tasks.size(); first += kBundleLanes) {
    const size_t count = std::min<size_t>(kBundleLanes, tasks.size() - first);
    const ElementBundle bundle = make_bundle(tasks.subspan(first, count), 0);
    cost += kSharedStepCost * bundle.shared_steps + kApartStepCost * bundle.apart_steps;
  }
  return cost;
}

/// Sorts by shared columns in strips of `strip` of them; in a strip, by the longer row, up and down
/// in turn, so that neighbours across a border are alike too.
void sort_in_strips(std::vector<RowPair>& tasks, int strip) {
  std::stable_sort(tasks.begin(), tasks.end(), [=](const RowPair& x, const RowPair& y) {
    const int x_strip = x.shared / strip, y_strip = y.shared / strip;
    if (x_strip != y_strip) return x_strip > y_strip;
    return x_strip % 2 == 0 ? x.a.count > y.a.count : x.a.count < y.a.count;
  });
}

/// Puts tasks that are alike next to each other, so that their bundles lose the least: narrow
/// strips where there are many tasks, wide ones where there are few.
void sort_tasks(std::vector<RowPair>& tasks) {
  int best = 0;
  uint64_t least = UINT64_MAX;
  for (const int strip : {2, 4, 8, 1 << 16}) {
    sort_in_strips(tasks, strip);
    const uint64_t cost = cost_of_bundles(tasks);
    if (cost >= least) continue;
    least = cost;
    best = strip;
  }
  sort_in_strips(tasks, best);
}

/// A word of two column indices in a k-block.
uint32_t pack_columns(uint32_t lower, uint32_t upper) {
  return kColumnScale * (lower | upper << 16);
}

/// Writes one task's lane of index words. `first_column` begins the k-block, `filler` is the index
/// of none.
void write_columns(const RowPair& task, const ElementBundle& bundle, uint32_t first_column,
                   uint32_t filler, uint32_t* words) {
  std::vector<uint32_t> shared, a, b;
  uint32_t i = 0, j = 0;
  while (i < task.a.count || j < task.b.count) {
    const uint32_t column_a = i < task.a.count ? task.a.columns[i] : UINT32_MAX;
    const uint32_t column_b = j < task.b.count ? task.b.columns[j] : UINT32_MAX;
    const uint32_t index = std::min(column_a, column_b) - first_column;
    i += column_a <= column_b;
    j += column_b <= column_a;
    if (column_a == column_b && shared.size() < bundle.shared_steps) {
      shared.push_back(index);
      continue;
    }
    if (column_a <= column_b) a.push_back(index);
    if (column_b <= column_a) b.push_back(index);
  }
  a.resize(bundle.apart_steps, filler);
  b.resize(bundle.apart_steps, filler);
  for (size_t s = 0; s < shared.size(); s += 2, words += kBundleLanes) {
    *words = pack_columns(shared[s], shared[s + 1]);
  }
  for (size_t s = 0; s < a.size(); ++s, words += kBundleLanes) *words = pack_columns(a[s], b[s]);
}

void append_columns(const ElementBundle& bundle, std::span<const RowPair> tasks,
                    uint32_t first_column, uint32_t filler, std::vector<uint32_t>& indices) {
  const size_t begin = indices.size();
  indices.resize(begin + bundle.index_count(), pack_columns(filler, filler));
  for (size_t lane = 0; lane < tasks.size(); ++lane) {
    write_columns(tasks[lane], bundle, first_column, filler, &indices[begin + lane]);
  }
}

/// Cuts the rows into chunks of about chunk_rows, `parts` of them or more if the rows are enough,
/// with like numbers of non-zeros and at most most_rows.
std::vector<uint32_t> cut_rows(const Pattern& pattern, uint32_t chunk_rows, uint32_t most_rows, uint32_t parts) {
  const uint32_t rows = pattern.rows;
  const uint64_t chunks = std::max<uint64_t>((rows + uint64_t{chunk_rows} - 1) / chunk_rows,
                                             std::clamp(rows / kLeastRows, 1U, parts));
  // Rows count too, so that empty ones do not pile up.
  const auto work_before = [&](uint32_t row) { return pattern.row_begin[row] + row; };
  std::vector<uint32_t> begin = {0};
  for (uint32_t row = 1; row < rows; ++row) {
    const uint64_t target = work_before(rows) * begin.size() / chunks;
    const bool nearest = work_before(row) + work_before(row + 1) > 2 * target;
    if (nearest || row - begin.back() == most_rows) begin.push_back(row);
  }
  if (rows > 0) begin.push_back(rows);
  return begin;
}

}  // namespace

PackedElements::PackedElements(const SparseMatrix& matrix, Type type, const ElementPacking& packing)
    : rows_(matrix.pattern.rows),
      cols_(matrix.pattern.cols),
      type_(type),
      nonzeros_(matrix.pattern.blocks()),
      row_begin_(matrix.pattern.row_begin) {
  const Pattern& pattern = matrix.pattern;
  assert(pattern.block_size == 1);
  assert(type == Type::f32 || type == Type::f16 || type == Type::bf16);
  k_block_ = packing.k_block > 0 ? packing.k_block : choose_k_block(pattern);
  k_block_ = std::min(k_block_, kMaxKBlock);
  const uint32_t asked_rows = std::min(packing.chunk_rows, kMaxChunkRows);
  chunk_begin_ = asked_rows > 0 ? cut_rows(pattern, asked_rows, asked_rows, packing.parts)
                                : cut_rows(pattern, kChunkRows, kMostRows, packing.parts);
  chunk_nonzeros_.clear();
  for (uint32_t row : chunk_begin_) chunk_nonzeros_.push_back(row_begin_[row]);
  indices_.reserve(nonzeros_ + nonzeros_ / 8);

  std::vector<uint64_t> next(row_begin_.begin(), std::prev(row_begin_.end()));
  blocks_.clear();
  uint64_t value_count = 0;
  for (uint32_t chunk = 0; chunk < chunks(); ++chunk) {
    const uint32_t begin = chunk_begin_[chunk];
    const uint32_t end = chunk_begin_[chunk + 1];
    for (uint32_t column = 0; column < cols_; column += k_block_) {
      blocks_.push_back({bundles_.size(), value_count, indices_.size()});
      std::vector<RowPair> tasks =
          pair_rows(slice_rows(pattern, begin, end, column + k_block_, next), column, k_block_);
      sort_tasks(tasks);
      for (size_t first = 0; first < tasks.size(); first += kBundleLanes) {
        const size_t count = std::min<size_t>(kBundleLanes, tasks.size() - first);
        const auto lanes = std::span<const RowPair>(tasks).subspan(first, count);
        bundles_.push_back(make_bundle(lanes, end - begin));
        append_columns(bundles_.back(), lanes, column, k_block_, indices_);
        value_count += bundles_.back().value_count();
      }
    }
  }
  blocks_.push_back({bundles_.size(), value_count, indices_.size()});
  values_.resize(value_count * size_of(type_));
  set_values(matrix.values.data());
}

template <class Visit>
void PackedElements::for_each_nonzero(const Visit& visit) const {
  // In a row, k-blocks follow one another, and the shared columns of a task and those apart ascend:
  // merging the two recovers the order of the matrix without a stored permutation.
  std::vector<uint64_t> next(row_begin_.begin(), std::prev(row_begin_.end()));
  const uint32_t* words = indices_.data();
  uint64_t value = 0;
  uint32_t chunk = 0;
  for (uint64_t i = 0; i < bundles_.size(); ++i) {
    const ElementBundle& bundle = bundles_[i];
    while (i >= blocks_[uint64_t{chunk + 1} * k_blocks()].bundle) ++chunk;
    const auto visit_row = [&](uint32_t row, uint32_t lane, uint32_t side) {
      uint64_t& position = next[chunk_begin_[chunk] + row];
      const auto column = [&](uint32_t word, uint32_t half) {
        return (words[word * kBundleLanes + lane] >> (16 * half) & 0xFFFF) / kColumnScale;
      };
      uint32_t s = 0, a = 0;
      while (true) {
        const uint32_t shared = s < bundle.shared_steps ? column(s / 2, s % 2) : k_block_;
        const uint32_t apart =
            a < bundle.apart_steps ? column(bundle.shared_steps / 2 + a, side) : k_block_;
        if (shared == k_block_ && apart == k_block_) return;
        const uint32_t step = shared < apart ? s++ : bundle.shared_steps + a++;
        visit(position++, value + (2 * step + side) * kBundleLanes + lane);
      }
    };
    const uint32_t chunk_rows = chunk_begin_[chunk + 1] - chunk_begin_[chunk];
    for (uint32_t lane = 0; lane < bundle.tasks; ++lane) {
      visit_row(bundle.row_a[lane], lane, 0);
      if (bundle.row_b[lane] < chunk_rows) visit_row(bundle.row_b[lane], lane, 1);
    }
    value += bundle.value_count();
    words += bundle.index_count();
  }
}

void PackedElements::set_values(const float* values) {
  for_each_nonzero([&](uint64_t position, uint64_t packed) {
    store(values_.data(), type_, packed, values[position]);
  });
}

void PackedElements::get_values(float* values) const {
  for_each_nonzero([&](uint64_t position, uint64_t packed) {
    values[position] = load(values_.data(), type_, packed);
  });
}

std::vector<uint64_t> PackedElements::permutation() const {
  std::vector<uint64_t> packed_position(nonzeros_);
  for_each_nonzero([&](uint64_t position, uint64_t packed) { packed_position[position] = packed; });
  return packed_position;
}

size_t PackedElements::index_bytes() const {
  return indices_.size() * sizeof(indices_[0]) + bundles_.size() * sizeof(bundles_[0]) +
         blocks_.size() * sizeof(blocks_[0]);
}

}  // namespace tessera::sparse
