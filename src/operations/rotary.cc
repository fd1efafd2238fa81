// Rotary positions (Su et al. 2021), of slices and products.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/graph.h>

#include <cmath>

namespace tessera::graph {

RotaryTables rotary_tables(Graph& graph, uint32_t positions, uint32_t features, double base) {
  if (features == 0 || features % 2 != 0)
    throw UsageError(
        fmt::format("rotary_tables: {} features do not form pairs: use an even number", features));
  if (!(base > 0 && std::isfinite(base)))
    throw UsageError(fmt::format("rotary_tables: the base is {}; it must be a positive number", base));
  const uint32_t pairs = features / 2;
  std::vector<float> cosines, sines;
  for (uint32_t position = 0; position < positions; ++position)
    for (uint32_t i = 0; i < pairs; ++i) {
      const double angle = position * std::pow(base, -2.0 * i / features);
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
  return {graph.constant("", {positions, pairs}, std::move(cosines)),
          graph.constant("", {positions, pairs}, std::move(sines))};
}

Value rotary(Value x, const RotaryTables& tables, bool interleaved) {
  const TensorType& type = x.type();
  if (type.shape.empty() || type.cols() % 2 != 0)
    throw UsageError(
        fmt::format("rotary: x is {}; it must be [..., positions, features], an even number of "
                    "features",
                    to_string(type)));
  const uint32_t features = type.cols(), pairs = features / 2;
  const auto last = static_cast<uint32_t>(type.shape.size() - 1);
  const auto every_second = [&](uint32_t first) {
    std::vector<uint32_t> places;
    for (uint32_t i = 0; i < pairs; ++i) places.push_back(first + 2 * i);
    return select_features(x, places);
  };
  const Value a = interleaved ? every_second(0) : slice(x, last, 0, pairs);
  const Value b = interleaved ? every_second(1) : slice(x, last, pairs, features);
  const Value cosines = cast(tables.cosines, type.type), sines = cast(tables.sines, type.type);
  const Value y = concatenate({a * cosines - b * sines, b * cosines + a * sines}, last);
  if (!interleaved) return y;
  std::vector<uint32_t> places;
  for (uint32_t i = 0; i < features; ++i) places.push_back(i % 2 * pairs + i / 2);
  return permute_features(y, places);
}

}  // namespace tessera::graph
