#include "graph/broadcast.h"

#include <algorithm>

namespace tessera::graph {

using ops::Broadcast;

std::optional<Broadcast> broadcast_of(const TensorType& value, const TensorType& out) {
  if (value.pattern != out.pattern && value.elements() != 1) return {};
  if (value.elements() == out.elements()) return Broadcast::none;
  if (value.elements() == 1) return Broadcast::scalar;
  if (value.cols() == out.cols() && value.rows() == 1) return Broadcast::row;
  if (value.cols() == 1 && value.rows() == out.rows()) return Broadcast::column;
  return {};
}

std::vector<uint64_t> broadcast_steps(const TensorType& value, const TensorType& out) {
  std::vector<uint64_t> steps(out.shape.size());
  const auto matrix_steps = [&](uint64_t of_row, uint64_t of_column) {
    for (size_t d = steps.size(); d-- > 0;) {
      steps[d] = d + 1 == steps.size() ? of_column : of_row;
      if (d + 1 < steps.size()) of_row *= out.shape[d];
    }
    return steps;
  };
  if (const std::optional<Broadcast> how = broadcast_of(value, out)) {
    const bool has_rows = *how == Broadcast::none || *how == Broadcast::column;
    const bool has_columns = *how == Broadcast::none || *how == Broadcast::row;
    return matrix_steps(has_rows ? value.cols() : 0, has_columns ? 1 : 0);
  }
  uint64_t step = 1;
  for (size_t d = value.shape.size(); d-- > 0;) {
    if (value.shape[d] != 1) steps[steps.size() - value.shape.size() + d] = step;
    step *= value.shape[d];
  }
  return steps;
}

ArrayIndex broadcast_index(const TensorType& value, const TensorType& out) {
  // A sparse value has the elements of its blocks.
  const auto dense = [](const TensorType& type) {
    return type.pattern ? TensorType{type.type, {static_cast<uint32_t>(type.elements())}, {}, {}} : type;
  };
  const TensorType to = dense(out);
  return {to.shape, broadcast_steps(dense(value), to)};
}

Value sum_to(Value gradient, const TensorType& type) {
  const TensorType& from = gradient.type();
  if (from.elements() == type.elements()) return reshape(gradient, type.shape);
  if (type.elements() == 1) return reshape(sum(gradient), type.shape);
  std::vector<int> dims;
  const std::vector<uint64_t> steps = broadcast_steps(type, from);
  for (size_t d = 0; d < steps.size(); ++d)
    if (steps[d] == 0 && from.shape[d] != 1) dims.push_back(static_cast<int>(d));
  return reshape(sum(gradient, dims), type.shape);
}

std::optional<Shape> common_shape(const Shape& a, const Shape& b) {
  Shape shape(std::max(a.size(), b.size()), 1);
  const auto merge = [&](const Shape& from) {
    for (size_t i = 0; i < from.size(); ++i) {
      uint32_t& size = shape[shape.size() - from.size() + i];
      if (size != 1 && from[i] != 1 && size != from[i]) return false;
      size = std::max(size, from[i]);
    }
    return true;
  };
  if (!merge(a) || !merge(b)) return {};
  return shape;
}

bool can_broadcast(const TensorType& value, const TensorType& out) {
  const std::optional<Broadcast> how = broadcast_of(value, out);
  if (value.pattern || out.pattern || value.elements() == 1) return how.has_value();
  // A column with a number for each row may have all but the last dimension of the result as one.
  const bool is_column = value.shape.size() == 2 && how == Broadcast::column;
  return is_column || common_shape(value.shape, out.shape) == out.shape;
}

bool broadcasting_keeps_samples(const Divided& divided) {
  const Shape& out = divided.graph.type(divided.node.outputs[0]).shape;
  for (size_t i = 0; i < divided.operands.size(); ++i) {
    const Shape& shape = divided.shape(i);
    const bool has_first = shape.size() == out.size() && shape[0] == out[0];
    const bool is_repeated = shape.size() < out.size() ? common_shape(shape, out) == out : shape[0] == 1;
    if (divided.operands[i] ? !has_first : !is_repeated) return false;
  }
  return true;
}

}  // namespace tessera::graph
