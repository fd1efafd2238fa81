#include "studies/popsparse/products.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "studies/popsparse/study.h"

namespace tessera::studies::popsparse {
namespace {

/// The value nearest to `wanted` in logarithms; `wanted` if there are none.
template <class T>
T nearest(const std::vector<T>& values, T wanted) {
  const auto distance = [&](T value) {
    return std::abs(std::log(static_cast<double>(value) / static_cast<double>(wanted)));
  };
  const auto found =
      std::min_element(values.begin(), values.end(), [&](T a, T b) { return distance(a) < distance(b); });
  return found == values.end() ? wanted : *found;
}

template <class T>
std::vector<T> list_of(const std::set<T>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

Products::Products(const Study& study, const Part& part) : part_(part), published_(study.published) {
  std::set<Precision> precisions;
  std::set<uint32_t> sizes, blocks, columns, dense_columns;
  std::set<double> densities;
  for (const auto& [operand, all_n] : sweep_of(study.request, part.machine))
    for (const uint32_t n : all_n) {
      const Result* result = part.find(kProducts, key_of({operand, n}, study.request.planner));
      if (result == nullptr) continue;
      results_[{operand, n}] = result;
      precisions.insert(operand.precision);
      sizes.insert(operand.size);
      (operand.mode == Mode::dense ? dense_columns : columns).insert(n);
      if (operand.mode == Mode::dense) continue;
      blocks.insert(operand.block);
      densities.insert(operand.density);
    }
  precisions_ = list_of(precisions);
  std::ranges::sort(precisions_, {}, [](const Precision& p) { return ops::name_of(p); });
  sizes_ = list_of(sizes);
  blocks_ = list_of(blocks);
  densities_.assign(densities.rbegin(), densities.rend());
  columns_ = list_of(columns.empty() ? dense_columns : columns);
}

std::set<Operand> Products::operands() const {
  std::set<Operand> operands;
  for (const auto& [what, result] : results_) operands.insert(what.operand);
  return operands;
}

Precision Products::precision() const {
  const Precision f16{Type::f16};
  const bool has_f16 = precisions_.empty() || std::ranges::find(precisions_, f16) != precisions_.end();
  return has_f16 ? f16 : precisions_.front();
}
uint32_t Products::size() const { return nearest(sizes_, 4096U); }
uint32_t Products::block() const { return nearest(blocks_, 16U); }
double Products::density() const { return nearest(densities_, 1.0 / 16); }

Operand Products::operand(Mode mode, uint32_t size, uint32_t block, double density) const {
  const Operand sparse{mode, precision(), size, block, density};
  return mode == Mode::dense ? dense_of(sparse) : sparse;
}

const Result* Products::find(const Case& what) const {
  const auto found = results_.find(what);
  return found == results_.end() ? nullptr : found->second;
}

std::optional<double> Products::value(const Case& what, const char* name) const {
  const Result* result = find(what);
  return result == nullptr ? std::nullopt : result->value(name);
}

std::optional<uint32_t> Products::best_n(const Operand& operand) const {
  std::optional<uint32_t> best;
  const auto seconds = [&](uint32_t n) { return *value({operand, n}, "seconds") / n; };
  for (uint32_t n : columns_)
    if (value({operand, n}, "tflops") && (!best || seconds(n) < seconds(*best))) best = n;
  return best;
}

std::optional<double> Products::best_seconds(const Operand& operand) const {
  const auto n = best_n(operand);
  return n ? std::optional(*value({operand, *n}, "seconds") / *n) : std::nullopt;
}

Comparison Products::compare(const std::string& name, std::string group, std::optional<double> ours,
                             const char* table, const char* column) const {
  const auto published = published_.number(table, name, column);
  return {.what = fmt::format("{}, {}", name, part_.machine.name),
          .published = published,
          .ours = ours,
          .group = std::move(group),
          .published_as_impossible = !published && published_.find(table, name) != nullptr,
          .is_measured = part_.is_host()};
}

Comparison Products::tflops(const Case& what) const {
  return compare(name_of(what), fmt::format("{} TFLOP/s (figure 2)", ops::name_of(what.operand.mode)),
                 value(what, "tflops"), "figure-2.csv", "tflops");
}

Comparison Products::speedup(const Case& what) const {
  const auto sparse = value(what, "seconds"), dense = value({dense_of(what.operand), what.n}, "seconds");
  return compare(name_of(what), fmt::format("{} over dense (figure 7)", ops::name_of(what.operand.mode)),
                 sparse && dense ? std::optional(*dense / *sparse) : std::nullopt, "figure-7.csv", "speedup");
}

Comparison Products::rate(const Case& what) const {
  const auto over_dense = speedup(what).published, dense = tflops({dense_of(what.operand), what.n}).published;
  const auto ours = value(what, "tflops");
  return {.what = fmt::format("{}, TFLOP/s, {}", name_of(what), part_.machine.name),
          .published =
              over_dense && dense ? std::optional(*over_dense * *dense * what.operand.density) : std::nullopt,
          .ours = ours,
          .group = fmt::format("{} TFLOP/s at the same n (figures 2 and 7)", ops::name_of(what.operand.mode)),
          .is_measured = part_.is_host()};
}

Comparison Products::best_tflops(const Operand& operand) const {
  const auto n = best_n(operand);
  Comparison rate = compare(
      name_of(operand), fmt::format("{} TFLOP/s, best over n (figures 3a, 4a)", ops::name_of(operand.mode)),
      n ? value({operand, *n}, "tflops") : std::nullopt, "figures-3a-4a.csv", "tflops");
  if (operand.mode == Mode::dense)
    for (uint64_t columns = 1; !columns_.empty() && columns <= columns_.back(); columns *= 2)
      if (const auto one = tflops({operand, static_cast<uint32_t>(columns)}).published)
        rate.published = std::max(rate.published.value_or(0), *one);
  return rate;
}

Comparison Products::best_speedup(const Operand& operand) const {
  const auto sparse = best_seconds(operand), dense = best_seconds(dense_of(operand));
  return compare(name_of(operand),
                 fmt::format("{} over dense, best over n (table 3)", ops::name_of(operand.mode)),
                 sparse && dense ? std::optional(*dense / *sparse) : std::nullopt, "table-3.csv", "speedup");
}

std::optional<double> Products::break_even(Mode mode, uint32_t block) const {
  std::optional<std::pair<double, double>> before;  // logarithms of density and speed-up
  for (double density : densities_) {
    const auto speedup = best_speedup(operand(mode, size(), block, density)).ours;
    if (!speedup) continue;
    const double x = std::log(density), y = std::log(*speedup);
    if (before && before->second < 0 && y >= 0)
      return std::exp(x + (before->first - x) * y / (y - before->second));
    before = {x, y};
  }
  return std::nullopt;
}

std::vector<PowerLawSample> Products::law_samples(Mode mode) const {
  std::vector<PowerLawSample> samples;
  for (uint32_t size : sizes_)
    for (double density : densities_)
      for (uint32_t block : blocks_)
        if (const auto speedup = best_speedup(operand(mode, size, block, density)).ours)
          samples.push_back({{static_cast<double>(size), density, static_cast<double>(block)}, *speedup});
  return samples;
}

}  // namespace tessera::studies::popsparse
