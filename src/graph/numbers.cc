#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/numbers.h>

#include <utility>
#include <vector>

namespace tessera::graph {
namespace {

constexpr LossScale fixed_scale(double scale) { return {.initial = scale, .grow_after = 0}; }

/// FP16 parameters, products and partial sums.
constexpr Numbers fp16_numbers(Type sums, Type state, double loss_scale) {
  return {Type::f16, Type::f16, Type::f16, sums, state, Rounding::stochastic, fixed_scale(loss_scale), {}};
}

constexpr std::pair<std::string_view, Numbers> kNumbers[] = {
    {"fp32", {}},
    {"bf16", {.products = Type::bf16, .partials = Type::f32}},
    {"mlperf-v1", fp16_numbers(Type::f16, Type::f32, 64)},
    {"mlperf-v2", fp16_numbers(Type::f16, Type::f16, 10)},
    {"mlperf-slides", fp16_numbers(Type::f32, Type::f16, 64)}};

}  // namespace

Numbers numbers_named(std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto& [known, numbers] : kNumbers) {
    if (known == name) return numbers;
    names.push_back(known);
  }
  throw UsageError(fmt::format("unknown numbers '{}' (choose from {})", name, fmt::join(names, ", ")));
}

void set_numbers(TrainingOptions& options, const Numbers& numbers) {
  options.partials = numbers.partials;
  options.sums = numbers.sums;
  options.state = numbers.state;
  options.rounding = numbers.rounding;
  options.roundings = numbers.roundings;
  options.loss_scale = numbers.loss_scale;
}

}  // namespace tessera::graph
