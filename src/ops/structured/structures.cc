#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "ops/structured/structured.h"

namespace tessera {
namespace {

constexpr uint32_t kMostFeatures = 1U << 24;
constexpr uint64_t kMostElements = uint64_t{1} << 31;

void require_features(std::string_view what, uint64_t features, uint64_t most) {
  if (features == 0 || features > most)
    throw UsageError(fmt::format("{} is {}; it must be 1 to {}", what, features, most));
}

uint32_t levels_for(uint32_t inputs) {
  return static_cast<uint32_t>(std::bit_width(std::max(inputs, 2U) - 1));
}

uint32_t or_all(uint32_t given, uint64_t all) { return given != 0 ? given : static_cast<uint32_t>(all); }

void check(const Butterfly& s) {
  require_features("a butterfly's number of inputs", s.inputs, kMostFeatures);
  require_features("a butterfly's number of outputs", s.outputs, kMostFeatures);
  require_features("nblocks of a butterfly", s.nblocks, 64);
  if (s.tied && s.nblocks != 1)
    throw UsageError(fmt::format("a tied butterfly has one block of factors, not {}", s.nblocks));
}

void check(const Kronecker& s) {
  for (const uint32_t size : {s.a, s.b, s.c, s.d})
    require_features("a dimension of a Kronecker-sparse factor", size, kMostFeatures);
  const double most = 1.0 * std::max(s.b, s.c) * s.a * s.d;
  if (most > kMostFeatures || most * std::min(s.b, s.c) > static_cast<double>(kMostElements))
    throw UsageError(
        fmt::format("a Kronecker-sparse factor ({}, {}, {}, {}) is too large", s.a, s.b, s.c, s.d));
  require_features("a Kronecker-sparse factor's number of inputs", or_all(s.inputs, 1),
                   uint64_t{s.a} * s.c * s.d);
  require_features("a Kronecker-sparse factor's number of outputs", or_all(s.outputs, 1),
                   uint64_t{s.a} * s.b * s.d);
}

void check(const Circulant& s) {
  require_features("a circulant matrix's size", s.size, kMostFeatures);
  require_features("a circulant matrix's number of inputs", or_all(s.inputs, s.size), s.size);
  require_features("a circulant matrix's number of outputs", or_all(s.outputs, s.size), s.size);
}

void check(const Toeplitz& s) {
  require_features("a Toeplitz matrix's number of inputs", s.inputs, kMostFeatures);
  require_features("a Toeplitz matrix's number of outputs", s.outputs, kMostFeatures);
}

void check(const Fastfood& s) {
  require_features("fastfood's number of inputs", s.inputs, kMostFeatures);
  require_features("fastfood's number of outputs", s.outputs, kMostFeatures);
  const uint64_t size = s.size(), places = size * s.stacks();
  if (s.permutation.size() != places)
    throw UsageError(fmt::format("fastfood's permutation has {} places; {} × {} are needed",
                                 s.permutation.size(), s.stacks(), size));
  std::vector<bool> used(places);
  for (uint64_t i = 0; i < places; ++i) {
    const uint64_t place = i / size * size + s.permutation[i];
    if (s.permutation[i] >= size || used[place])
      throw UsageError(fmt::format("fastfood's permutation has {} at place {}, which is {}", s.permutation[i],
                                   i, s.permutation[i] >= size ? "too large" : "there already"));
    used[place] = true;
  }
}

std::vector<StructuredParameter> parameters(const Butterfly& s) {
  std::vector<uint32_t> shape = {s.stacks(), s.nblocks, s.levels(), s.size() / 2, 2, 2};
  if (s.tied) shape = {s.stacks(), s.size() - 1, 2, 2};
  if (s.complex) shape.push_back(2);
  return {{"twiddle", std::move(shape)}};
}
std::vector<StructuredParameter> parameters(const Kronecker& s) { return {{"weight", {s.a, s.d, s.b, s.c}}}; }
std::vector<StructuredParameter> parameters(const Circulant& s) { return {{"c", {s.size}}}; }
std::vector<StructuredParameter> parameters(const Toeplitz& s) { return {{"c", {s.outputs + s.inputs - 1}}}; }
std::vector<StructuredParameter> parameters(const Fastfood& s) {
  const std::vector<uint32_t> shape = {s.stacks(), s.size()};
  return {{"s", shape}, {"g", shape}, {"b", shape}};
}

using Features = ops::StructuredFeatures;

Features features(const Butterfly& s) {
  return {s.inputs * (s.complex ? 2 : 1), s.outputs * (s.complex ? 2 : 1)};
}
Features features(const Kronecker& s) {
  return {or_all(s.inputs, uint64_t{s.a} * s.c * s.d), or_all(s.outputs, uint64_t{s.a} * s.b * s.d)};
}
Features features(const Circulant& s) { return {or_all(s.inputs, s.size), or_all(s.outputs, s.size)}; }
Features features(const Toeplitz& s) { return {s.inputs, s.outputs}; }
Features features(const Fastfood& s) { return {s.inputs, s.outputs}; }

void check(const Structure& structure) {
  std::visit([](const auto& s) { check(s); }, structure);
}

std::vector<StructuredParameter> parameters(const Structure& structure) {
  return std::visit([](const auto& s) { return parameters(s); }, structure);
}

}  // namespace

uint32_t Butterfly::levels() const { return levels_for(inputs); }
uint32_t Fastfood::size() const { return 1U << levels_for(inputs); }

uint64_t StructuredParameter::elements() const {
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
}

std::string_view name_of(const Structure& structure) {
  constexpr std::string_view kNames[] = {"butterfly", "kronecker", "circulant", "toeplitz", "fastfood"};
  static_assert(std::size(kNames) == std::variant_size_v<Structure>);
  return kNames[structure.index()];
}

uint32_t inputs_of(const Structure& structure) {
  check(structure);
  return ops::features_of(structure).inputs;
}
uint32_t outputs_of(const Structure& structure) {
  check(structure);
  return ops::features_of(structure).outputs;
}

std::vector<StructuredParameter> parameters_of(const Structure& structure) {
  check(structure);
  auto all = parameters(structure);
  for (const StructuredParameter& parameter : all)
    if (parameter.elements() > kMostElements)
      throw UsageError(fmt::format("{} of a {} would have {} elements; at most {} are possible",
                                   parameter.name, name_of(structure), parameter.elements(), kMostElements));
  return all;
}

namespace ops {

StructuredFeatures features_of(const Structure& structure) {
  return std::visit([](const auto& s) { return features(s); }, structure);
}

ParameterMatrix bias_matrix(const StructuredProblem& problem) {
  const uint32_t outputs = features_of(problem.structure).outputs;
  return problem.transposed ? ParameterMatrix{outputs, 1} : ParameterMatrix{1, outputs};
}

std::vector<ParameterMatrix> parameter_matrices(const Structure& structure) {
  std::vector<ParameterMatrix> matrices;
  for (const StructuredParameter& parameter : parameters(structure)) {
    uint64_t rows = 1;
    if (const auto* butterfly = std::get_if<Butterfly>(&structure))
      rows = uint64_t{butterfly->stacks()} * (butterfly->tied ? 1 : butterfly->nblocks * butterfly->levels());
    if (const auto* factor = std::get_if<Kronecker>(&structure)) rows = uint64_t{factor->a} * factor->d;
    if (std::holds_alternative<Fastfood>(structure)) rows = parameter.shape[0];
    matrices.push_back({static_cast<uint32_t>(rows), static_cast<uint32_t>(parameter.elements() / rows)});
  }
  return matrices;
}

}  // namespace ops
}  // namespace tessera
