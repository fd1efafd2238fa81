#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <vector>

#include "base/random.h"
#include "check/judge.h"
#include "engine/pool.h"

namespace tessera::check {
namespace {

constexpr double kSampleFlops = 1e8;
constexpr uint64_t kBlockGrain = 64;  // blocks that a thread takes at a time

/// All blocks; or the first, the last and a seeded sample.
std::vector<uint64_t> blocks_to_check(const ComputedSddmm& g, Extent extent, uint64_t seed) {
  const double flops = 2.0 * static_cast<double>(g.dw.values.size()) * g.n;
  const double most = extent == Extent::sample ? kSampleFlops : kFullUpToFlops;
  const auto one_in =
      static_cast<uint32_t>(extent == Extent::full ? 1.0 : std::clamp(std::ceil(flops / most), 1.0, 1e9));
  base::RandomSequence random{base::RandomStream(seed, 0, 0x67726164)};
  const uint64_t all = g.dw.pattern.blocks();
  std::vector<uint64_t> blocks;
  for (uint64_t i = 0; i < all; ++i)
    if (one_in == 1 || i == 0 || i + 1 == all || random.below(one_in) == 0) blocks.push_back(i);
  return blocks;
}

std::vector<uint32_t> block_rows_of(const Pattern& p) {
  std::vector<uint32_t> rows;
  rows.reserve(p.blocks());
  for (uint32_t r = 0; r < p.block_rows(); ++r)
    rows.insert(rows.end(), p.crow_indices[r + 1] - p.crow_indices[r], r);
  return rows;
}

void check_block(const ComputedSddmm& g, uint64_t block, uint32_t block_row, Verification& own) {
  const Pattern& p = g.dw.pattern;
  const uint32_t b = p.block_size;
  const uint32_t first_row = block_row * b;
  const uint32_t first_col = p.col_indices[block] * b;
  for (uint32_t r = 0; r < std::min(b, p.rows - first_row); ++r)
    for (uint32_t c = 0; c < std::min(b, p.cols - first_col); ++c) {
      double sum = 0;
      double magnitude = 0;
      for (uint32_t j = 0; j < g.n; ++j) {
        const double term = double{g.dy(first_row + r, j)} * g.x(first_col + c, j);
        sum += term;
        magnitude += std::abs(term);
      }
      judge(g.dw.values[(block * b + r) * b + c], sum, magnitude, own);
    }
}

}  // namespace

Verification verify_sddmm(const ComputedSddmm& g, Extent extent, uint64_t seed, uint32_t threads) {
  Verification result;
  result.verified = true;
  result.tolerance = tolerance_of(g.n, g.accumulation, g.result);
  result.underflow = underflow_of(g.n, g.partials, g.result);
  if (g.partials != g.accumulation) result.tolerance += epsilon_of(g.partials) / 2;
  const std::vector<uint64_t> blocks = blocks_to_check(g, extent, seed);
  result.sampled = blocks.size() < g.dw.pattern.blocks();
  const std::vector<uint32_t> row_of = block_rows_of(g.dw.pattern);
  std::atomic<uint64_t> next{0};
  std::mutex mutex;
  engine::Pool::Team team(engine::Pool::shared(), std::max(1U, threads));
  const Verification start = result;
  team.run([&](uint32_t) {
    Verification own = start;
    for (uint64_t first; (first = next.fetch_add(kBlockGrain)) < blocks.size();)
      for (uint64_t i = first; i < std::min<uint64_t>(first + kBlockGrain, blocks.size()); ++i)
        check_block(g, blocks[i], row_of[blocks[i]], own);
    const std::lock_guard lock(mutex);
    merge(own, result);
  });
  return result;
}

}  // namespace tessera::check
