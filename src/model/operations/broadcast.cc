#include "model/operations/broadcast.h"

#include <algorithm>

namespace tessera::model {

std::optional<ops::Broadcast> broadcast_of(const TensorType& value, const TensorType& out) {
  using ops::Broadcast;
  if (value.pattern != out.pattern && value.elements() != 1) return {};
  if (value.elements() == out.elements()) return Broadcast::none;
  if (value.elements() == 1) return Broadcast::scalar;
  if (value.cols() == out.cols() && value.rows() == 1) return Broadcast::row;
  if (value.cols() == 1 && value.rows() == out.rows()) return Broadcast::column;
  return {};
}

ops::Broadcast broadcast_of(const ops::Operand& operand, const ops::Operand& out) {
  const bool row = operand.rows() == 1 && out.rows() != 1, column = operand.cols() == 1 && out.cols() != 1;
  if (row) return column ? ops::Broadcast::scalar : ops::Broadcast::row;
  return column ? ops::Broadcast::column : ops::Broadcast::none;
}

Value sum_to(Value gradient, const TensorType& type) {
  if (gradient.type().elements() == type.elements())
    return gradient.shape() == type.shape ? gradient : reshape(gradient, type.shape);
  Value total = gradient;
  switch (*broadcast_of(type, gradient.type())) {
    case ops::Broadcast::row: total = sum(gradient, "rows"); break;
    case ops::Broadcast::column: total = sum(gradient, "columns"); break;
    default: total = sum(gradient, "all"); break;
  }
  return total.shape() == type.shape ? total : reshape(total, type.shape);
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

}  // namespace tessera::model
