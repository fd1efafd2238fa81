// Integers that are exact, or an error of the run.
#include <gtest/gtest.h>
#include <tessera/graph.h>
#include <tessera/machine.h>

#include <string>
#include <vector>

#include "support/error_of.h"

namespace tessera::graph {
namespace {

/// `last` is the last x for which 32 bits hold the result with y; `beyond` is an x for which they do not.
struct ExactUse {
  const char* function;
  float last, beyond, y;
};

constexpr float kTwoTo30 = 1 << 30;
constexpr ExactUse kExactUses[] = {{"add", kTwoTo30 - 128, kTwoTo30, kTwoTo30},
                                   {"sub", -kTwoTo30, -kTwoTo30 - 128, kTwoTo30},
                                   {"mul", 32767, 32768, 65536},
                                   {"mul", -32768, -32769, 65536}};

Value exact_of(Value a, Value b, const std::string& function) {
  return a.owner().apply("exact", {a, b}, {{"function", function}})[0];
}

TEST(Exact, IsAnErrorBeyond32Bits) {
  for (const ExactUse& use : kExactUses)
    for (const Machine& machine : {Machine::host(2), Machine::find("gc200").with("tiles", 6)}) {
      SCOPED_TRACE(std::string(use.function) + " on " + machine.name());
      Graph g;
      const Value x = g.input("x", {3}, Type::i32), y = g.input("y", {}, Type::i32);
      g.output("z", exact_of(x, y, use.function));
      Session session(g, machine);
      const auto run = [&](float last) { return session.run({{"x", {1, 0, last}}, {"y", {use.y}}}).at("z"); };
      const std::vector<float> before = run(use.last);
      EXPECT_USAGE_ERROR(
          std::string(use.function) +
              " of integers that come from 'x', 'y' is beyond 32 bits, which integers have here",
          run(use.beyond));
      EXPECT_EQ(run(use.last), before) << "it runs again";
    }
}

TEST(Exact, IsOfIntegersWithASign) {
  Graph g;
  const Value x = g.input("x", {3}), n = g.input("n", {3}, Type::u32), i = g.input("i", {3}, Type::i32);
  EXPECT_USAGE_ERROR("both must be i32", exact_of(x, x, "add"));
  EXPECT_USAGE_ERROR("both must be i32", exact_of(n, n, "add"));
  EXPECT_USAGE_ERROR("both must be i32", exact_of(i, g.input("j", {2}, Type::i32), "add"));
  EXPECT_USAGE_ERROR("unknown function 'div' (choose from add, sub, mul)", exact_of(i, i, "div"));
}

}  // namespace
}  // namespace tessera::graph
