#include "ops/structured/definition.h"

#include <bit>
#include <cmath>

#include "ops/structured/structured.h"

namespace tessera::ops {
namespace {

using Stages = std::vector<StructuredStage>;

/// The first outputs of a vector.
StructuredStage truncate(uint32_t outputs) {
  StructuredStage stage{outputs};
  for (uint32_t i = 0; i < outputs; ++i) stage.terms.push_back({i, i});
  return stage;
}

/// Copies of a vector, one below the other, each with zeros up to a size.
StructuredStage stack(uint32_t inputs, uint32_t size, uint32_t stacks) {
  StructuredStage stage{size * stacks};
  for (uint32_t s = 0; s < stacks; ++s)
    for (uint32_t i = 0; i < inputs; ++i) stage.terms.push_back({s * size + i, i});
  return stage;
}

/// Adds out += twiddle · in, of numbers or complex numbers.
void add_number(StructuredStage& stage, bool is_complex, uint32_t out, uint32_t in, uint64_t twiddle) {
  if (!is_complex) return stage.terms.push_back({out, in, 1, twiddle});
  const uint64_t re = 2 * twiddle, im = re + 1;
  stage.terms.push_back({2 * out, 2 * in, 1, re});
  stage.terms.push_back({2 * out, 2 * in + 1, -1, im});
  stage.terms.push_back({2 * out + 1, 2 * in, 1, im});
  stage.terms.push_back({2 * out + 1, 2 * in + 1, 1, re});
}

/// The factor of one stride, of all stacks.
StructuredStage butterfly_factor(const Butterfly& s, uint32_t block, uint32_t level) {
  const uint32_t n = s.size(), levels = s.levels();
  const bool decreases = s.decreasing != (block % 2 == 1);
  const uint32_t stride = 1U << (decreases ? levels - 1 - level : level);
  StructuredStage stage{n * s.stacks() * (s.complex ? 2 : 1)};
  for (uint32_t of_stack = 0; of_stack < s.stacks(); ++of_stack)
    for (uint32_t i = 0; i < n / 2; ++i) {
      const uint32_t low = i % stride, first = of_stack * n + 2 * (i - low) + low;
      uint64_t matrix = ((uint64_t{of_stack} * s.nblocks + block) * levels + level) * (n / 2) + i;
      if (s.tied) matrix = uint64_t{of_stack} * (n - 1) + stride - 1 + low;
      for (uint32_t r = 0; r < 2; ++r)
        for (uint32_t q = 0; q < 2; ++q)
          add_number(stage, s.complex, first + r * stride, first + q * stride, 4 * matrix + 2 * r + q);
    }
  return stage;
}

Stages stages(const Butterfly& s) {
  const uint32_t numbers = s.complex ? 2 : 1;
  Stages all = {stack(s.inputs * numbers, s.size() * numbers, s.stacks())};
  for (uint32_t block = 0; block < s.nblocks; ++block)
    for (uint32_t level = 0; level < s.levels(); ++level) all.push_back(butterfly_factor(s, block, level));
  all.push_back(truncate(s.outputs * numbers));
  return all;
}

Stages stages(const Kronecker& s) {
  const auto [inputs, outputs] = features_of(s);
  StructuredStage stage{outputs};
  for (uint32_t i = 0; i < s.a; ++i)
    for (uint32_t t = 0; t < s.d; ++t)
      for (uint32_t r = 0; r < s.b; ++r)
        for (uint32_t q = 0; q < s.c; ++q) {
          const uint32_t out = (i * s.b + r) * s.d + t, in = (i * s.c + q) * s.d + t;
          if (out < stage.outputs && in < inputs)
            stage.terms.push_back({out, in, 1, ((uint64_t{i} * s.d + t) * s.b + r) * s.c + q});
        }
  return {stage};
}

Stages stages(const Circulant& s) {
  const auto [inputs, outputs] = features_of(s);
  StructuredStage stage{outputs};
  for (uint32_t i = 0; i < stage.outputs; ++i)
    for (uint32_t j = 0; j < inputs; ++j) stage.terms.push_back({i, j, 1, (i + s.size - j) % s.size});
  return {stage};
}

Stages stages(const Toeplitz& s) {
  StructuredStage stage{s.outputs};
  for (uint32_t i = 0; i < s.outputs; ++i)
    for (uint32_t j = 0; j < s.inputs; ++j) stage.terms.push_back({i, j, 1, i + s.inputs - 1 - j});
  return {stage};
}

StructuredStage diagonal(uint32_t size, uint64_t parameter) {
  StructuredStage stage{size};
  for (uint32_t i = 0; i < size; ++i) stage.terms.push_back({i, i, 1, parameter + i});
  return stage;
}

StructuredStage hadamard(uint32_t size, uint32_t stacks) {
  StructuredStage stage{size * stacks};
  const double scale = 1 / std::sqrt(size);
  for (uint32_t s = 0; s < stacks; ++s)
    for (uint32_t i = 0; i < size; ++i)
      for (uint32_t j = 0; j < size; ++j)
        stage.terms.push_back({s * size + i, s * size + j, std::popcount(i & j) % 2 == 1 ? -scale : scale});
  return stage;
}

Stages stages(const Fastfood& f) {
  const uint32_t n = f.size(), all = n * f.stacks();
  StructuredStage permute{all};
  for (uint32_t i = 0; i < all; ++i) permute.terms.push_back({i, i / n * n + f.permutation[i]});
  const StructuredStage h = hadamard(n, f.stacks());
  return {stack(f.inputs, n, f.stacks()),
          diagonal(all, 2 * all),
          h,
          permute,
          diagonal(all, all),
          h,
          diagonal(all, 0),
          truncate(f.outputs)};
}

double value_of(const StructuredTerm& term, std::span<const double> parameters) {
  return term.parameter ? term.scale * parameters[*term.parameter] : term.scale;
}

}  // namespace

Stages stages_of(const Structure& structure) {
  parameters_of(structure);
  return std::visit([](const auto& s) { return stages(s); }, structure);
}

std::vector<std::vector<double>> apply_stages(std::span<const StructuredStage> stages,
                                              std::span<const double> parameters, std::span<const double> x) {
  std::vector<std::vector<double>> vectors = {{x.begin(), x.end()}};
  for (const StructuredStage& stage : stages) {
    std::vector<double> y(stage.outputs);
    for (const StructuredTerm& term : stage.terms)
      y[term.out] += value_of(term, parameters) * vectors.back()[term.in];
    vectors.push_back(std::move(y));
  }
  return vectors;
}

std::vector<double> differentiate_stages(std::span<const StructuredStage> stages,
                                         std::span<const double> parameters,
                                         std::span<const std::vector<double>> vectors,
                                         std::span<const double> dy, std::span<double> dparameters) {
  std::vector<double> gradient(dy.begin(), dy.end());
  for (size_t k = stages.size(); k-- > 0;) {
    std::vector<double> dx(vectors[k].size());
    for (const StructuredTerm& term : stages[k].terms) {
      dx[term.in] += value_of(term, parameters) * gradient[term.out];
      if (term.parameter)
        dparameters[*term.parameter] += term.scale * vectors[k][term.in] * gradient[term.out];
    }
    gradient = std::move(dx);
  }
  return gradient;
}

}  // namespace tessera::ops
