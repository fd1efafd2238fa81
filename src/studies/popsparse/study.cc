#include "studies/popsparse/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tessera::studies::popsparse {
namespace {

constexpr uint32_t kPaperSize = 4096;
constexpr uint32_t kPaperBlock = 16;
constexpr double kPaperDensity = 1.0 / 16;

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

bool is_published(const Precision& precision) { return !precision.f32_partials; }

}  // namespace

Operand dense_of(const Operand& o) { return {Mode::dense, o.precision, o.size, 1, 1}; }

const PowerLaw& published_law() {
  static const PowerLaw law{0.0013, {0.59, -0.54, 0.50}};
  return law;
}

std::string law_text(const PowerLaw& law) {
  return fmt::format("{:#.2g}·m^{:.2f}·d^{:.2f}·b^{:.2f}", law.scale, law.exponents.at(0),
                     law.exponents.at(1), law.exponents.at(2));
}

Study::Study(Outcome outcome, const std::filesystem::path& published)
    : outcome_(std::move(outcome)), ratios_(read_ratios(published)), dense_(read_dense(published)) {
  std::set<Precision> precisions;
  std::set<uint32_t> sizes, blocks, columns, dense_columns;
  std::set<double> densities;
  for (const auto& [cell, result] : outcome_.results) {
    const Operand& o = cell.operand;
    modes_.insert(o.mode);
    precisions.insert(o.precision);
    sizes.insert(o.size);
    (o.mode == Mode::dense ? dense_columns : columns).insert(cell.n);
    if (o.mode == Mode::dense) continue;
    blocks.insert(o.block);
    densities.insert(o.density);
  }
  precisions_ = list_of(precisions);
  std::sort(precisions_.begin(), precisions_.end(),
            [](const Precision& a, const Precision& b) { return ops::name_of(a) < ops::name_of(b); });
  sizes_ = list_of(sizes);
  blocks_ = list_of(blocks);
  densities_.assign(densities.rbegin(), densities.rend());
  columns_ = list_of(columns.empty() ? dense_columns : columns);
}

Precision Study::precision() const {
  const Precision f16{Type::f16};
  if (precisions_.empty() || std::find(precisions_.begin(), precisions_.end(), f16) != precisions_.end())
    return f16;
  return precisions_.front();
}
uint32_t Study::size() const { return nearest(sizes_, kPaperSize); }
uint32_t Study::block() const { return nearest(blocks_, kPaperBlock); }
double Study::density() const { return nearest(densities_, kPaperDensity); }

Operand Study::operand(Mode mode, uint32_t size, uint32_t block, double density) const {
  const Operand sparse{mode, precision(), size, block, density};
  return mode == Mode::dense ? dense_of(sparse) : sparse;
}

const Result* Study::find(const Cell& cell) const {
  const auto found = outcome_.results.find(cell);
  return found == outcome_.results.end() ? nullptr : &found->second;
}

std::optional<double> Study::tflops(const Cell& cell) const {
  const Result* result = find(cell);
  return result == nullptr ? std::nullopt : result->value("tflops");
}

std::optional<Best> Study::best(const Operand& operand) const {
  std::optional<Best> best;
  for (uint32_t n : columns_) {
    const Result* result = find({operand, n});
    if (result == nullptr || !result->value("tflops")) continue;
    const double rate = n / *result->value("seconds");
    if (!best || rate > best->columns_per_second) best = Best{n, *result->value("tflops"), rate};
  }
  return best;
}

std::optional<double> Study::speedup(const Cell& cell) const {
  const auto seconds_of = [&](const Cell& of) {
    const Result* result = find(of);
    return result == nullptr ? std::nullopt : result->value("seconds");
  };
  const auto sparse = seconds_of(cell), dense = seconds_of({dense_of(cell.operand), cell.n});
  if (cell.operand.mode == Mode::dense || !sparse || !dense) return std::nullopt;
  return *dense / *sparse;
}

std::optional<double> Study::best_speedup(const Operand& operand) const {
  const auto sparse = best(operand), dense = best(dense_of(operand));
  if (operand.mode == Mode::dense || !sparse || !dense) return std::nullopt;
  return sparse->columns_per_second / dense->columns_per_second;
}

std::optional<double> Study::break_even(Mode mode, uint32_t block) const {
  std::optional<std::pair<double, double>> before;  // logarithms of density and speed-up
  for (double density : densities_) {
    const auto speedup = best_speedup(operand(mode, size(), block, density));
    if (!speedup) continue;
    const double x = std::log(density), y = std::log(*speedup);
    if (before && before->second < 0 && y >= 0)
      return std::exp(x + (before->first - x) * y / (y - before->second));
    before = {x, y};
  }
  return std::nullopt;
}

std::vector<PowerLawSample> Study::law_samples(Mode mode) const {
  std::vector<PowerLawSample> samples;
  for (uint32_t size : sizes_)
    for (double density : densities_)
      for (uint32_t block : blocks_)
        if (const auto speedup = best_speedup(operand(mode, size, block, density)))
          samples.push_back({{static_cast<double>(size), density, static_cast<double>(block)}, *speedup});
  return samples;
}

std::optional<PowerLawFit> Study::law(Mode mode) const { return fit_power_law(law_samples(mode)); }

std::optional<double> Study::published_dense(const Precision& precision, uint32_t size, uint32_t n) const {
  for (const DenseCell& cell : dense_)
    if (is_published(precision) && cell.type == precision.type && cell.size == size && cell.n == n)
      return cell.tflops;
  return std::nullopt;
}

std::vector<uint32_t> Study::published_dense_columns(const Precision& precision, uint32_t size) const {
  std::set<uint32_t> columns;
  for (const DenseCell& cell : dense_)
    if (is_published(precision) && cell.type == precision.type && cell.size == size) columns.insert(cell.n);
  return list_of(columns);
}

std::optional<double> Study::published_best_dense(const Operand& o) const {
  std::optional<double> best;
  for (uint32_t n : published_dense_columns(o.precision, o.size))
    if (!columns_.empty() && n <= columns_.back())
      best = std::max(best.value_or(0), *published_dense(o.precision, o.size, n));
  return best;
}

const RatioCell* Study::published_ratio(const Cell& cell) const {
  const Operand& o = cell.operand;
  if (o.mode != Mode::static_sparse || o.precision != Precision{Type::f16}) return nullptr;
  for (const RatioCell& ratio : ratios_)
    if (ratio.block == o.block && 1.0 / ratio.inverse_density == o.density && ratio.size == o.size &&
        ratio.n == cell.n)
      return &ratio;
  return nullptr;
}

std::optional<double> Study::published_rate(const Operand& o) const {
  if (o.mode == Mode::dense) return published_best_dense(o);
  if (o.precision != Precision{Type::f16} || o.size != kPaperSize) return std::nullopt;
  for (const RateCell& rate : published_rates())
    if (rate.dynamic == (o.mode == Mode::dynamic_sparse) && rate.block == o.block &&
        1.0 / rate.inverse_density == o.density)
      return rate.tflops;
  return std::nullopt;
}

std::optional<double> Study::published_best_speedup(const Operand& o) const {
  if (o.mode == Mode::dense || o.size != kPaperSize || o.density != kPaperDensity ||
      !is_published(o.precision))
    return std::nullopt;
  for (const BestCell& cell : published_best())
    if (cell.block == o.block && cell.type == o.precision.type)
      return o.mode == Mode::dynamic_sparse ? cell.dynamic_speedup : cell.static_speedup;
  return std::nullopt;
}

}  // namespace tessera::studies::popsparse
