#include "check/verification.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "check/judge.h"
#include "engine/pool.h"

namespace tessera::check {
namespace {

constexpr uint32_t kSampledColumns = 32;
constexpr uint32_t kPanel = 32;     // columns of X held in float64 at a time
constexpr uint32_t kRowGrain = 16;  // block rows that a thread takes at a time

uint64_t longest_row(const Pattern& p) {
  uint64_t longest = 0;
  for (uint32_t r = 0; r < p.block_rows(); ++r)
    longest = std::max(longest, p.crow_indices[r + 1] - p.crow_indices[r]);
  return longest * p.block_size;
}

std::vector<uint32_t> all_columns(uint32_t n) {
  std::vector<uint32_t> columns(n);
  for (uint32_t j = 0; j < n; ++j) columns[j] = j;
  return columns;
}

/// Seeded columns, and the last ones of panels of common widths.
std::vector<uint32_t> sddmm_columns(uint32_t n, uint64_t seed) {
  std::set<uint32_t> columns = {0, n - 1};
  for (uint32_t edge : {15U, 16U, 47U, 48U, 63U, 64U, n / 2 - 1, n / 2})
    if (edge < n) columns.insert(edge);
  base::RandomSequence random{base::RandomStream(seed, 0, 0x76657269)};
  while (columns.size() < std::min(kSampledColumns, n)) columns.insert(random.below(n));
  return {columns.begin(), columns.end()};
}

/// Columns of X side by side, in float64.
struct Panel {
  uint32_t width = 0;
  std::vector<double> elements;  // k × width

  const double* row(uint64_t i) const { return elements.data() + i * width; }
};

class Verifier {
 public:
  Verifier(const ComputedProduct& product, uint32_t threads)
      : product_(product), team_(engine::Pool::shared(), std::max(1U, threads)) {
    result_.tolerance = tolerance_of(longest_row(product.w.pattern), product.accumulation, product.result);
    result_.underflow = underflow_of(longest_row(product.w.pattern), product.partials, product.result);
    // The magnitudes of partial sums add up to at most that of all products.
    if (product.partials != product.accumulation)
      result_.tolerance += product.roundings * epsilon_of(product.partials) / 2;
    result_.verified = true;
  }

  void check_columns(const std::vector<uint32_t>& columns) {
    for (size_t begin = 0; begin < columns.size(); begin += kPanel) {
      const size_t end = std::min(columns.size(), begin + kPanel);
      const std::span<const uint32_t> some(columns.data() + begin, end - begin);
      compare(gather(some), [&](uint32_t row, const double* sum, const double* magnitude, Verification& own) {
        for (uint32_t j = 0; j < some.size(); ++j) judge(product_.y(row, some[j]), sum[j], magnitude[j], own);
      });
    }
  }

  /// Compares Y·r with W·(X·r), so that a single wrong element of Y shows. The magnitude |W|·(|X|·|r|) bounds
  /// every element's error.
  void check_random_vector(uint64_t seed) {
    const uint32_t n = product_.n;
    std::vector<float> r(n);
    base::RandomStream(seed, 1, 0x76657269).fill_symmetric(r);
    Panel sums{2, std::vector<double>(2 * uint64_t{product_.w.pattern.cols})};
    for (uint32_t i = 0; i < product_.w.pattern.cols; ++i)
      for (uint32_t j = 0; j < n; ++j) {
        const double term = double{product_.x(i, j)} * r[j];
        sums.elements[2 * uint64_t{i}] += term;
        sums.elements[2 * uint64_t{i} + 1] += std::abs(term);
      }
    const Verification columns = result_;
    compare(sums, [&](uint32_t row, const double* sum, const double* magnitude, Verification& own) {
      double y = 0;
      for (uint32_t j = 0; j < n; ++j) y += double{product_.y(row, j)} * r[j];
      judge(y, sum[0], magnitude[1], own);
    });
    const bool vector_verified = result_.verified;
    result_ = columns;
    result_.verified &= vector_verified;
  }

  Verification& result() { return result_; }

 private:
  Panel gather(std::span<const uint32_t> columns) const {
    Panel panel{static_cast<uint32_t>(columns.size()), {}};
    const uint64_t k = product_.w.pattern.cols;
    panel.elements.resize(k * panel.width);
    for (uint64_t i = 0; i < k; ++i)
      for (uint32_t j = 0; j < panel.width; ++j)
        panel.elements[i * panel.width + j] = product_.x(static_cast<int64_t>(i), columns[j]);
    return panel;
  }

  /// Calls judge_row(row, W · panel, |W|·|panel|, verdict) for every row, with block rows distributed over
  /// the threads.
  template <class JudgeRow>
  void compare(const Panel& panel, const JudgeRow& judge_row) {
    const uint32_t block_rows = product_.w.pattern.block_rows();
    std::atomic<uint32_t> next{0};
    const Verification before = result_;
    team_.run([&](uint32_t) {
      Verification own = before;
      std::vector<double> sum;
      std::vector<double> magnitude;
      for (uint32_t first; (first = next.fetch_add(kRowGrain)) < block_rows;)
        for (uint32_t r = first; r < std::min(first + kRowGrain, block_rows); ++r)
          compare_block_row(panel, judge_row, r, sum, magnitude, own);
      const std::lock_guard lock(mutex_);
      merge(own, result_);
    });
  }

  template <class JudgeRow>
  void compare_block_row(const Panel& panel, const JudgeRow& judge_row, uint32_t block_row,
                         std::vector<double>& sum, std::vector<double>& magnitude, Verification& own) const {
    const Pattern& p = product_.w.pattern;
    const uint32_t b = p.block_size;
    const uint32_t rows = std::min(b, p.rows - block_row * b);
    sum.assign(uint64_t{rows} * panel.width, 0.0);
    magnitude.assign(sum.size(), 0.0);
    for (uint64_t block = p.crow_indices[block_row]; block < p.crow_indices[block_row + 1]; ++block) {
      const uint32_t first_col = p.col_indices[block] * b;
      const uint32_t cols = std::min(b, p.cols - first_col);
      for (uint32_t r = 0; r < rows; ++r)
        for (uint32_t c = 0; c < cols; ++c) {
          const double w = product_.w.values[(block * b + r) * b + c];
          const double* x = panel.row(uint64_t{first_col} + c);
          double* s = &sum[uint64_t{r} * panel.width];
          double* a = &magnitude[uint64_t{r} * panel.width];
          for (uint32_t j = 0; j < panel.width; ++j) {
            s[j] += w * x[j];
            a[j] += std::abs(w * x[j]);
          }
        }
    }
    for (uint32_t r = 0; r < rows; ++r)
      judge_row(block_row * b + r, &sum[uint64_t{r} * panel.width], &magnitude[uint64_t{r} * panel.width],
                own);
  }

  const ComputedProduct& product_;
  engine::Pool::Team team_;
  std::mutex mutex_;
  Verification result_;
};

}  // namespace

double underflow_of(uint64_t length, Type partials, Type result) {
  // Spacing of a type's numbers below its normal range.
  const auto spacing = [](Type type) {
    return type == Type::f16 ? 0x1p-24 : type == Type::bf16 ? 0x1p-133 : 0x1p-149;
  };
  return spacing(result) / 2 + std::sqrt(static_cast<double>(length)) * spacing(partials);
}

void judge(double element, double reference, double magnitude, Verification& verdict) {
  if (!std::isfinite(reference) || !std::isfinite(element)) {
    if (element == reference) return;
    verdict.max_abs_error = worse(verdict.max_abs_error, std::abs(element - reference));
    verdict.max_rel_error = worse(verdict.max_rel_error, std::abs(element - reference));
    verdict.verified &= std::isnan(reference) && std::isnan(element);
    return;
  }
  const double error = std::abs(element - reference);
  verdict.max_abs_error = worse(verdict.max_abs_error, error);
  if (error <= verdict.underflow) return;
  const double relative = (error - verdict.underflow) / magnitude;
  verdict.max_rel_error = worse(verdict.max_rel_error, relative);
  if (!(relative <= verdict.tolerance)) verdict.verified = false;
}

void merge(const Verification& own, Verification& verdict) {
  verdict.verified &= own.verified;
  verdict.max_abs_error = worse(verdict.max_abs_error, own.max_abs_error);
  verdict.max_rel_error = worse(verdict.max_rel_error, own.max_rel_error);
}

double tolerance_of(uint64_t length, Type accumulation, Type result) {
  const double sum = (4 * std::sqrt(static_cast<double>(length)) + 8) * epsilon_of(accumulation);
  return result == accumulation ? sum : sum + epsilon_of(result);
}

Verification verify_product(const ComputedProduct& product, Extent extent, uint64_t seed, uint32_t threads) {
  const double flops = 2.0 * static_cast<double>(product.w.values.size()) * product.n;
  Verifier verifier(product, threads);
  if (product.n == 0) return verifier.result();
  if (extent == Extent::automatic) extent = flops <= kFullUpToFlops ? Extent::full : Extent::sample;
  if (extent == Extent::full || product.n <= kSampledColumns) {
    verifier.check_columns(all_columns(product.n));
    return verifier.result();
  }
  verifier.check_columns(sddmm_columns(product.n, seed));
  verifier.check_random_vector(seed);
  verifier.result().sampled = true;
  return verifier.result();
}

SparseMatrix rounded(SparseMatrix matrix, Type type) {
  if (type == Type::f16)
    for (float& v : matrix.values) v = base::to_float(base::to_half(v));
  if (type == Type::bf16)
    for (float& v : matrix.values) v = base::to_float(base::to_bfloat16(v));
  return matrix;
}

}  // namespace tessera::check
