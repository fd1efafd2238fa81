// Tessera itself, through its public interface.
#include <fmt/format.h>
#include <tessera/spmm.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/median.h"
#include "peers/registry.h"
#include "sparse/generate.h"

namespace tessera::bench {
namespace {

using base::seconds_of;

/// Another random pattern with the same number of blocks.
Pattern like(const Pattern& pattern) {
  const double cells = double{1} * pattern.block_rows() * pattern.block_cols();
  return sparse::generate_pattern({PatternKind::random, pattern.rows, pattern.cols,
                                   static_cast<double>(pattern.blocks()) / cells, pattern.block_size, 2});
}

/// Every twentieth block of one pattern that is missing in the other.
std::vector<BlockPosition> twentieth(const Pattern& of, const Pattern& without, size_t most) {
  std::vector<BlockPosition> positions;
  uint64_t seen = 0;
  for (uint32_t row = 0; row < of.block_rows(); ++row)
    for (uint64_t i = of.crow_indices[row]; i < of.crow_indices[row + 1]; ++i) {
      const auto begin = without.col_indices.begin() + static_cast<std::ptrdiff_t>(without.crow_indices[row]);
      const auto end =
          without.col_indices.begin() + static_cast<std::ptrdiff_t>(without.crow_indices[row + 1]);
      if (!std::binary_search(begin, end, of.col_indices[i]) && seen++ % 19 == 0 && positions.size() < most)
        positions.push_back({row, of.col_indices[i]});
    }
  return positions;
}

/// Median seconds of changing a weight's pattern and back.
PatternTimes pattern_times(Weight& weight) {
  constexpr int kTimes = 4;
  const Pattern one = weight.pattern(), other = like(one);
  const size_t count = one.blocks() / 20;
  const std::vector<BlockPosition> drop = twentieth(one, other, count), grow = twentieth(other, one, count);
  std::vector<double> replaced, changed;
  for (int i = 0; i < kTimes; ++i) {
    replaced.push_back(seconds_of([&] { weight.set_pattern(other); }));
    replaced.push_back(seconds_of([&] { weight.set_pattern(one); }));
    changed.push_back(seconds_of([&] { weight.replace(drop, grow); }));
    changed.push_back(seconds_of([&] { weight.replace(grow, drop); }));
  }
  return {base::median(replaced), base::median(changed)};
}

class TesseraProduct : public PreparedProduct {
 public:
  TesseraProduct(Weight weight, uint32_t n, const SpmmOptions& options)
      : weight_(std::move(weight)), transposed_(options.transpose), product_(weight_, n, options) {}

  PatternTimes change_pattern() override {
    return weight_.is_dynamic() ? pattern_times(weight_) : PatternTimes{};
  }

  void run(const Arrays& a) override { transposed_ ? product_(a.dy, a.dx) : product_(a.x, a.y); }
  uint64_t weight_bytes() const override { return weight_.bytes(); }
  double predicted_seconds() const override { return product_.predicted_seconds(); }
  std::string plan() const override { return product_.plan(); }

 private:
  Weight weight_;
  bool transposed_;
  Spmm product_;
};

class TesseraGradient : public PreparedProduct {
 public:
  TesseraGradient(Weight weight, const Pattern& pattern, uint32_t n, const SddmmOptions& options)
      : weight_(std::move(weight)), pattern_(pattern), gradient_(weight_, n, options) {}

  void run(const Arrays& a) override { gradient_(a.dy, a.x, a.dw); }
  uint64_t gradient_size() const override { return gradient_.packed_size(); }
  void get_gradient(const float* dw, std::span<float> stored) const override {
    const std::span<const float> packed(dw, gradient_.packed_size());
    if (!weight_.is_dense()) return weight_.unpack(packed, stored);
    std::vector<float> whole(uint64_t{weight_.rows()} * weight_.cols());
    weight_.unpack(packed, whole);
    pick_gradient(pattern_, whole.data(), stored);
  }
  uint64_t weight_bytes() const override { return weight_.bytes(); }
  double predicted_seconds() const override { return gradient_.predicted_seconds(); }
  std::string plan() const override { return gradient_.plan(); }

 private:
  Weight weight_;
  Pattern pattern_;  // of the compared elements
  Sddmm gradient_;
};

enum class Form { fixed, dynamic, dense };

class TesseraPeer : public Peer {
 public:
  TesseraPeer(const Limits& limits, Form form) : limits_(limits), form_(form) { restrict_isa(limits.isa); }

  std::string_view name() const override {
    constexpr std::string_view kNames[] = {"tessera", "tessera-dynamic", "tessera-dense"};
    return kNames[static_cast<size_t>(form_)];
  }
  Kind kind() const override {
    constexpr Kind kKinds[] = {Kind::tessera, Kind::tessera_dynamic, Kind::tessera_dense};
    return kKinds[static_cast<size_t>(form_)];
  }
  std::string version() const override {
    return fmt::format("Tessera, {} on {} threads", name_of(active_isa()), limits_.threads);
  }

  std::string why_not(const Work& work) const override {
    if (form_ != Form::dense || work.type == Type::f32) return {};
    return "compared in FP32 only";
  }

  std::unique_ptr<PreparedProduct> prepare(const Work& work) override {
    if (work.task == Task::sddmm) {
      const SddmmOptions options{
          .dy_layout = work.layout, .x_layout = work.layout, .threads = limits_.threads};
      return std::make_unique<TesseraGradient>(weight_of(work), work.weights.pattern, work.n, options);
    }
    SpmmOptions options;
    options.x_layout = options.y_layout = work.layout;
    options.threads = limits_.threads;
    options.transpose = work.task == Task::input_gradient;
    return std::make_unique<TesseraProduct>(weight_of(work), work.n, options);
  }

 private:
  Weight weight_of(const Work& work) const {
    switch (form_) {
      case Form::fixed: return Weight(work.weights, work.type);
      case Form::dynamic: return Weight::dynamic(work.weights, work.weights.pattern.blocks(), work.type);
      default: return Weight::dense(row_major(work.dense.data(), work.k()), work.m(), work.k());
    }
  }

  Limits limits_;
  Form form_;
};

}  // namespace

std::unique_ptr<Peer> tessera_sparse(const Limits& limits) {
  return std::make_unique<TesseraPeer>(limits, Form::fixed);
}
std::unique_ptr<Peer> tessera_dynamic(const Limits& limits) {
  return std::make_unique<TesseraPeer>(limits, Form::dynamic);
}
std::unique_ptr<Peer> tessera_dense(const Limits& limits) {
  return std::make_unique<TesseraPeer>(limits, Form::dense);
}

}  // namespace tessera::bench
