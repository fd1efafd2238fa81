// Normalisation over the last dimensions.
#include <numeric>

#include "onnx/call.h"
#include "onnx/values.h"

namespace tessera::onnx {
namespace {

using graph::Shape;
using graph::Value;

/// The last dimensions from an axis on as one.
struct Flattened {
  Flattened(Call& call, int64_t axis)
      : x(call.value(0)), shape(x.shape()), from(Call::dimension(axis, shape.size())) {
    const auto middle = shape.begin() + static_cast<int64_t>(from);
    size = std::accumulate(middle, shape.end(), 1U, std::multiplies<>());
    Shape flat(shape.begin(), middle);
    flat.push_back(size);
    if (flat != shape) x = reshape(x, flat);
  }

  /// A parameter of all of these dimensions, as one; none: it has to be broadcast.
  std::optional<Value> whole(const Call& call, size_t input) const {
    const Dims last(shape.begin() + static_cast<int64_t>(from), shape.end());
    if (!call.has(input) || call[input].dims != last || call[input].type != call[0].type) return {};
    return reshape(call.value(input), {size});
  }

  Value restored(Value y) const { return y.shape() == shape ? y : reshape(y, shape); }

  Value x;
  Shape shape;
  size_t from;
  uint32_t size = 1;
};

/// Mean and reciprocal deviation of each row.
void add_statistics(Call& call, Results& results, const Flattened& of, double epsilon) {
  if (call.node.output_size() < 2) return;
  const Value wide = cast(of.x, Type::f32), average = mean(wide, {-1}, true);
  const Value reciprocal = rsqrt(mean(square(wide - average), {-1}, true) + epsilon);
  Shape shape(of.shape.begin(), of.shape.begin() + static_cast<int64_t>(of.from));
  shape.resize(of.shape.size(), 1);
  results.push_back(known(reshape(average, shape), DataType::f32));
  results.push_back(known(reshape(reciprocal, shape), DataType::f32));
}

Results layer_normalization(Call& call) {
  const Flattened of(call, call.integer("axis", -1));
  const double epsilon = call.number("epsilon", 1e-5);
  const auto weight = of.whole(call, 1), bias = of.whole(call, 2);
  const bool is_whole = weight && (bias || !call.has(2));
  Value y = of.restored(
      layer_norm(of.x, is_whole ? weight : std::nullopt, is_whole ? bias : std::nullopt, epsilon));
  if (!is_whole) {
    y = y * call.value(1);
    if (call.has(2)) y = y + call.value(2);
  }
  Results results = {known(y, call[0].type)};
  add_statistics(call, results, of, epsilon);
  return results;
}

Results rms_normalization(Call& call) {
  const Flattened of(call, call.integer("axis", -1));
  const auto weight = of.whole(call, 1);
  Value y = of.restored(rms_norm(of.x, weight, call.number("epsilon", 1e-5)));
  if (!weight) y = y * call.value(1);
  return {known(y, call[0].type)};
}

Results mean_variance_normalization(Call& call) {
  const Value given = call.value(0), x = widened(given);
  std::vector<int> dims;
  for (const int64_t axis : call.integers_if("axes").value_or(std::vector<int64_t>{0, 2, 3}))
    dims.push_back(static_cast<int>(Call::dimension(axis, x.shape().size())));
  const Value centred = x - mean(x, dims, true);
  const Value y = centred / (sqrt(mean(square(centred), dims, true)) + 1e-9);
  return {known(cast(y, given.type().type), call[0].type)};
}

constexpr Operator kNormsOperators[] = {{"LayerNormalization", layer_normalization, 3},
                                        {"MeanVarianceNormalization", mean_variance_normalization},
                                        {"RMSNormalization", rms_normalization, 2}};

}  // namespace

std::span<const Operator> norm_operators() { return kNormsOperators; }

}  // namespace tessera::onnx
