#include "ops/map/elementwise.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <utility>

#include "kernels/common/element.h"
#include "kernels/map/elementwise/codelet.h"
#include "ops/types.h"

namespace tessera::ops {
namespace {

using program::Role;

void require_addend(const BinaryProblem& p) {
  if (!p.addend || *p.addend == p.type) return;
  require_float(*p.addend, "an elementwise operation");
  if (p.op != kernels::Binary::add_scaled || p.type != Type::f32)
    throw UsageError(
        fmt::format("an elementwise operation of {} and {}: only add_scaled takes two types, and "
                    "adds to f32",
                    name_of(p.type), name_of(*p.addend)));
}

template <class Problem>
MapOperand operand_of(const char* name, const Problem& p, Broadcast broadcast) {
  return broadcast_operand(name, p.type, p.rows, p.cols, broadcast);
}

}  // namespace

MapOperand broadcast_operand(std::string name, Type type, uint32_t rows, uint32_t cols, Broadcast broadcast) {
  const bool is_row = broadcast == Broadcast::row || broadcast == Broadcast::scalar;
  const bool is_column = broadcast == Broadcast::column || broadcast == Broadcast::scalar;
  return {std::move(name), type, Role::input, is_row ? 1 : rows, is_column ? 1 : cols, !is_row, !is_column};
}

MapOperation operation_of(const UnaryProblem& p) {
  require_float(p.type, "an elementwise operation");
  MapOperation operation{.codelet = &kernels::codelet_of(p.op), .rows = p.rows, .cols = p.cols};
  operation.operands = {{"in", p.type, Role::input, p.rows, p.cols},
                        {"out", p.type, Role::output, p.rows, p.cols}};
  if (kernels::takes_factor(p.op)) operation.params = {kernels::param_of(p.factor)};
  return operation;
}

MapOperation operation_of(const BinaryProblem& p) {
  const auto require = kernels::takes_integers(p.op) ? require_number : require_float;
  require(p.type, "an elementwise operation");
  require_addend(p);
  MapOperation operation{.codelet = &kernels::codelet_of(p.op), .rows = p.rows, .cols = p.cols};
  operation.operands = {
      operand_of("a", p, p.a), operand_of("b", p, p.b), {"out", p.type, Role::output, p.rows, p.cols}};
  operation.operands[1].type = p.addend.value_or(p.type);
  if (kernels::takes_factor(p.op)) operation.params = {kernels::param_of(p.factor)};
  return operation;
}

MapOperation operation_of(const ExactProblem& p) {
  MapOperation operation{.codelet = &kernels::exact_codelet, .rows = p.rows, .cols = p.cols};
  operation.operands = {
      operand_of("a", p, p.a), operand_of("b", p, p.b), {"out", p.type, Role::output, p.rows, p.cols}};
  operation.params = {static_cast<int64_t>(p.op)};
  return operation;
}

MapOperation operation_of(const WhereProblem& p) {
  require_number(p.type, "an elementwise operation");
  MapOperation operation{.codelet = &kernels::where_codelet, .rows = p.rows, .cols = p.cols};
  operation.operands = {operand_of("condition", p, p.condition),
                        operand_of("a", p, p.a),
                        operand_of("b", p, p.b),
                        {"out", p.type, Role::output, p.rows, p.cols}};
  return operation;
}

}  // namespace tessera::ops
