#include "ops/map/fill.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cmath>

#include "base/integer_types.h"
#include "kernels/common/element.h"
#include "kernels/map/fill/codelet.h"

namespace tessera::ops {
namespace {

/// Whether an integer type holds the number; floating-point types round it.
bool holds(Type type, float value) {
  if (!is_integer(type)) return true;
  const double bits = 8.0 * static_cast<double>(size_of(type));
  const double limit = std::ldexp(1.0, static_cast<int>(bits) - (type == Type::i32 ? 1 : 0));
  const double least = type == Type::i32 ? -limit : 0;
  const auto number = static_cast<double>(value);
  return number >= least && number < limit && std::trunc(number) == number;
}

}  // namespace

MapOperation operation_of(const FillProblem& p) {
  if (!holds(p.type, p.value))
    throw UsageError(
        fmt::format("{} cannot hold {}, with which a matrix is to be filled", name_of(p.type), p.value));
  MapOperation operation{.codelet = &kernels::fill_codelet, .rows = p.rows, .cols = p.cols};
  operation.operands = {{"out", p.type, program::Role::output, p.rows, p.cols}};
  operation.params = {kernels::param_of(p.value)};
  return operation;
}

}  // namespace tessera::ops
