// Which operations run where, in which types: docs/networks.md has the table.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include "base/integer_types.h"
#include "random_values.h"
#include "support/golden.h"

namespace tessera::graph {
namespace {

/// The case with its floating-point values in another type; of an update, gradient and weight.
Case in_type(const Operation& operation, Case c, Type type) {
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const bool keeps = is_integer(c.inputs[i].type) || (is_update(operation) && i != 0 && i != 2);
    if (!keeps) c.inputs[i].type = type;
  }
  return c;
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

TEST(Support, IsAsDocumented) {
  const Machine host = Machine::host(1), bow = Machine::find("bow");
  std::string table = "| operation | gradient | host | modelled machines |\n| --- | --- | --- | --- |\n";
  for (const Operation* operation : all_operations()) {
    const Case first = operation->cases().front();
    const auto types_on = [&](const Machine& machine, std::initializer_list<Type> types) {
      std::string text;
      for (Type type : types)
        if (runs(*operation, first.body ? first : in_type(*operation, first, type), machine))
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
