// Which operations run where, in which types: docs/networks.md has the table.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include "base/integer_types.h"
#include "random_values.h"
#include "support/golden.h"

namespace tessera::graph {
namespace {

/// The positions of the floating-point values of a case; of an update, those of gradient and weight.
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

/// Whether a case runs with its floating-point values in a type. Some but the first, such as logarithms of
/// sums and statistics of rows, may be FP32 whatever the type is.
bool runs_in(Type type, const Operation& operation, const Case& given, const Machine& machine) {
  const std::vector<size_t> typed = typed_inputs(operation, given);
  const uint32_t choices = type == Type::f32 || typed.empty() ? 1 : 1U << (typed.size() - 1);
  for (uint32_t wide = 0; wide < choices; ++wide) {
    Case c = given;
    for (size_t i = 0; i < typed.size(); ++i)
      c.inputs[typed[i]].type = i > 0 && (wide >> (i - 1) & 1) != 0 ? Type::f32 : type;
    if (runs(operation, c, machine)) return true;
  }
  return false;
}

TEST(Support, IsAsDocumented) {
  const Machine host = Machine::host(1), bow = Machine::find("bow");
  std::string table = "| operation | gradient | host | modelled machines |\n| --- | --- | --- | --- |\n";
  for (const Operation* operation : all_operations()) {
    const Case first = operation->cases().front();
    const auto types_on = [&](const Machine& machine, std::initializer_list<Type> types) {
      std::string text;
      for (Type type : types)
        if (first.body ? runs(*operation, first, machine) : runs_in(type, *operation, first, machine))
          text += fmt::format("{}{}", text.empty() ? "" : " ", name_of(type));
      return text;
    };
    table += fmt::format(
        "| {} | {} | {} | {} |\n", operation->name, operation->is_differentiable() ? "yes" : "",
        types_on(host, {Type::f32, Type::f16, Type::bf16}), types_on(bow, {Type::f32, Type::f16}));
  }
  testing::expect_golden(TESSERA_SUPPORT_TABLE, table);
}

}  // namespace
}  // namespace tessera::graph
