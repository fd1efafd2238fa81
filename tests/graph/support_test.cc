// Which operations run where, in which types: docs/operations.md is the table, docs/networks.md explains it.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/integer_types.h"
#include "random_values.h"
#include "support/golden.h"

namespace tessera::graph {
namespace {

/// The positions of the floating-point values of a case; for an update, of gradient and weight.
std::vector<size_t> typed_inputs(const Operation& operation, const Case& c) {
  std::vector<size_t> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i)
    if (!is_integer(c.inputs[i].type) && (!is_update(operation) || i == 0 || i == 2)) inputs.push_back(i);
  return inputs;
}

bool runs(const Operation& operation, const Case& c, const Machine& machine) {
  try {
    const CaseGraph graph(operation, c, 1);
    const Session session(graph.graph, machine);
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

/// Whether a case runs with its floating-point values in a type. Where that is a floating-point type, some
/// but the first, such as logarithms of sums and statistics of rows, may be FP32 whatever the type is.
bool runs_in(Type type, const Operation& operation, const Case& given, const Machine& machine) {
  const std::vector<size_t> typed = typed_inputs(operation, given);
  if (typed.empty()) return false;
  const uint32_t choices = type == Type::f32 || is_integer(type) ? 1 : 1U << (typed.size() - 1);
  for (uint32_t wide = 0; wide < choices; ++wide) {
    Case c = given;
    for (size_t i = 0; i < typed.size(); ++i)
      c.inputs[typed[i]].type = i > 0 && (wide >> (i - 1) & 1) != 0 ? Type::f32 : type;
    if (runs(operation, c, machine)) return true;
  }
  return false;
}

/// The types of the values that an operation takes on a machine, by asking its shape rule and its lowering:
/// for floating-point types the first case, for integers all, as some have attributes that integers cannot.
std::set<Type> types_on(const Machine& machine, const std::set<Type>& floats, const Operation& operation) {
  const std::vector<Case> cases = operation.cases();
  const Case& first = cases.front();
  std::set<Type> types;
  if (typed_inputs(operation, first).empty() && runs(operation, first, machine))
    for (const TensorType& input : first.inputs) types.insert(input.type);
  for (Type type : floats)
    if (runs_in(type, operation, first, machine)) types.insert(type);
  for (Type type : {Type::u32, Type::i32})
    if (std::ranges::any_of(cases, [&](const Case& c) { return runs_in(type, operation, c, machine); }))
      types.insert(type);
  return types;
}

/// The types of operands that are integers whatever the other operands are: ids, counts, numbers of steps.
std::set<Type> integers_beside(const Operation& operation) {
  std::set<Type> types;
  for (const Case& c : operation.cases()) {
    if (typed_inputs(operation, c).empty()) continue;
    for (const TensorType& input : c.inputs)
      if (is_integer(input.type)) types.insert(input.type);
  }
  return types;
}

std::string names_of(const std::set<Type>& types) {
  std::string text;
  for (Type type : types) text += fmt::format("{}{}", text.empty() ? "" : " ", name_of(type));
  return text;
}

std::string row_of(const Operation& operation) {
  static const Machine host = Machine::host(1), bow = Machine::find("bow");
  const bool has_function = operation.cases().front().body != nullptr;
  const auto on = [&](const Machine& machine, const std::set<Type>& floats) {
    return has_function ? "as its function" : names_of(types_on(machine, floats, operation));
  };
  return fmt::format("| {} | {} | {} | {} | {} |\n", operation.name,
                     operation.is_differentiable() ? "yes" : "", on(host, {Type::f32, Type::f16, Type::bf16}),
                     on(bow, {Type::f32, Type::f16}), names_of(integers_beside(operation)));
}

TEST(Support, IsAsDocumented) {
  std::string table =
      "# Operations\n\n"
      "This table shows for each operation of a graph whether it has a gradient, and in which types it runs "
      "by itself; [networks](networks.md)\nexplains the columns. On modelled machines, `spiking_gradients` "
      "runs only in graphs with its forward pass, because it reads the results\nof that pass in place "
      "([spiking networks](spiking.md#on-tiles)).\n\n"
      "| operation | gradient | host | modelled machines | ids, counts, steps |\n"
      "| --- | --- | --- | --- | --- |\n";
  for (const Operation* operation : all_operations()) table += row_of(*operation);
  testing::expect_golden(TESSERA_SUPPORT_TABLE, table);
}

}  // namespace
}  // namespace tessera::graph
