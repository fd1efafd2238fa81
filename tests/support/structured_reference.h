// Structured maps by their definition in float64.
#pragma once

#include <tessera/structured.h>

#include <span>
#include <vector>

#include "ops/structured/definition.h"
#include "support/numbers.h"

namespace tessera::test {

using Vectors = std::vector<std::vector<float>>;

/// Seeded values of all parameters of a structure.
inline Vectors random_parameters(const Structure& structure, uint64_t seed) {
  Vectors all;
  for (const StructuredParameter& parameter : parameters_of(structure))
    all.push_back(random_floats(parameter.elements(), seed + all.size()));
  return all;
}

/// A fastfood map with permutations that differ from stack to stack.
inline Fastfood shuffled_fastfood(uint32_t inputs, uint32_t outputs) {
  Fastfood f{.inputs = inputs, .outputs = outputs};
  for (uint32_t i = 0; i < f.stacks() * f.size(); ++i)
    f.permutation.push_back((5 * i + 3 + i / f.size()) % f.size());
  return f;
}

/// Results of maps one after another. Samples are [batch, features].
struct StructuredReference {
  std::vector<double> y, dx;
  std::vector<std::vector<double>> gradients;  ///< gradients of all parameters

  /// `parameters` are the parameters of all maps.
  StructuredReference(std::span<const Structure> maps, const Vectors& parameters, const std::vector<float>& x,
                      const std::vector<float>& dy, uint32_t batch) {
    std::vector<Map> all;
    auto parameter = parameters.begin();
    for (const Structure& structure : maps) {
      Map& map = all.emplace_back(ops::stages_of(structure));
      for (size_t i = 0; i < parameters_of(structure).size(); ++i, ++parameter)
        map.parameters.insert(map.parameters.end(), parameter->begin(), parameter->end());
      map.gradients.resize(map.parameters.size());
    }
    for (uint32_t i = 0; i < batch; ++i) {
      std::vector<double> values = sample(x, i, batch);
      for (Map& map : all) {
        map.between = ops::apply_stages(map.stages, map.parameters, values);
        values = map.between.back();
      }
      y.insert(y.end(), values.begin(), values.end());
      values = sample(dy, i, batch);
      for (auto map = all.rbegin(); map != all.rend(); ++map)
        values =
            ops::differentiate_stages(map->stages, map->parameters, map->between, values, map->gradients);
      dx.insert(dx.end(), values.begin(), values.end());
    }
    std::vector<double> in_a_row;
    for (const Map& map : all) in_a_row.insert(in_a_row.end(), map.gradients.begin(), map.gradients.end());
    auto begin = in_a_row.begin();
    for (const auto& of : parameters) {
      gradients.emplace_back(begin, begin + static_cast<int64_t>(of.size()));
      begin += static_cast<int64_t>(of.size());
    }
  }

 private:
  struct Map {
    std::vector<ops::StructuredStage> stages;
    std::vector<double> parameters = {}, gradients = {};
    std::vector<std::vector<double>> between = {};
  };

  static std::vector<double> sample(const std::vector<float>& of, uint32_t i, uint32_t batch) {
    const auto features = static_cast<int64_t>(of.size() / batch);
    return {of.begin() + i * features, of.begin() + (i + 1) * features};
  }
};

/// The elements of a matrix with `rows` rows, column by column.
template <class T>
std::vector<T> transposed(const std::vector<T>& matrix, uint32_t rows) {
  const size_t cols = matrix.size() / rows;
  std::vector<T> other(matrix.size());
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < cols; ++j) other[j * rows + i] = matrix[i * cols + j];
  return other;
}

}  // namespace tessera::test
