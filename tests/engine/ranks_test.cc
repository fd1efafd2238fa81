// Replicas that are divided among ranks: the bits of one process, and how failures travel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/communicator.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "collective_program.h"
#include "compiler/compile.h"
#include "engine/session.h"
#include "program/collective.h"
#include "support/error_of.h"
#include "support/on_ranks.h"
#include "support/toy_codelets.h"
#include "support/toy_machine.h"

namespace tessera::engine {
namespace {

using program::CollectiveAlgorithm;
using program::CollectiveKind;
using program::Program;
using program::Role;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Ranks = std::shared_ptr<Communicator>;
using Executable = std::shared_ptr<const compiler::Executable>;

constexpr RunOptions kOnOneThread = {.threads = 1};

Executable compiled(const Program& program) {
  return compiler::compile(program, testing::toy_chips(program.replicas(), 2, machine::Topology::all_to_all));
}

/// The arrays of all replicas, one after the other.
struct Values {
  std::vector<float> whole;
  std::vector<float> part;

  bool operator==(const Values&) const = default;
};

/// Numbers whose sum is different in every order.
std::vector<float> numbers(uint64_t count, uint64_t seed) {
  base::RandomSequence random(base::RandomStream(seed, 1));
  std::vector<float> values;
  for (uint64_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>(random.below(1000)) / static_cast<float>(1 + random.below(7)));
  return values;
}

/// An array of all replicas as one rank binds it: from its first replica on.
Binding binding_of(const Program& program, program::VariableId id, std::vector<float>& all, uint32_t first) {
  const program::Variable& v = program.variable(id);
  return {id, all.data() + first * v.elements(), v.cols, 1, static_cast<int64_t>(v.elements())};
}

/// The values after a collective.
Values after(const CollectiveProgram& of, const Executable& executable, uint32_t ranks) {
  const Program& program = of.program;
  Values all{numbers(program.replicas() * program.variable(of.whole).elements(), 1), {}};
  const bool has_parts = program.variables().size() > 1 && program.variable(1).name == "part";
  if (has_parts) all.part = numbers(program.replicas() * program.variable(of.part).elements(), 2);
  const auto errors = test::errors_on_ranks(connect_threads(ranks), [&](const Ranks& own) {
    Session session(executable, own);
    EXPECT_EQ(session.own_replicas(), program.replicas() / ranks);
    EXPECT_EQ(session.first_replica(), own->rank() * session.own_replicas());
    std::vector<Binding> arrays = {binding_of(program, of.whole, all.whole, session.first_replica())};
    if (has_parts) arrays.push_back(binding_of(program, of.part, all.part, session.first_replica()));
    const Profile run = session.run(arrays, kOnOneThread);
    const Profile predicted = session.run({}, {.dry = true});
    EXPECT_EQ(predicted.cycles.at, run.cycles.at);
    EXPECT_EQ(predicted.sent_bytes, run.sent_bytes);
    EXPECT_EQ(session.sent_bytes(), run.sent_bytes);
  });
  EXPECT_THAT(errors, Each(""));
  return all;
}

TEST(Ranks, HaveTheBitsOfOneProcess) {
  for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                    CollectiveKind::scatter, CollectiveKind::all_gather})
    for (const CollectiveAlgorithm algorithm : {CollectiveAlgorithm::ring, CollectiveAlgorithm::tree})
      for (const auto& [replicas, group] : std::initializer_list<std::pair<uint32_t, uint32_t>>{
               {2, 0}, {3, 0}, {4, 0}, {12, 0}, {4, 1}, {4, 2}, {6, 3}, {12, 4}}) {
        SCOPED_TRACE(::testing::Message() << name_of(kind) << " by " << name_of(algorithm) << ", " << replicas
                                          << " replicas in groups of " << group);
        const CollectiveProgram of = collective_program(kind, algorithm, replicas, 2, 23, group);
        const Executable executable = compiled(of.program);
        const Values expected = after(of, executable, 1);
        for (uint32_t ranks = 2; ranks <= replicas; ++ranks)
          if (replicas % ranks == 0) {
            EXPECT_EQ(after(of, executable, ranks), expected) << ranks << " ranks";
          }
      }
}

/// For hosts: y is the sum of x over four replicas, and `first` is x.
struct HostSum {
  Program program;
  program::VariableId x = 0, y = 0, first = 0;

  explicit HostSum(uint32_t elements) {
    Program& p = program;
    p.set_replicas(4);
    const auto add = [&](const std::string& name, uint32_t count, Role role) {
      return p.add(testing::variable(name, Type::f32, 1, count, role));
    };
    x = add("x", elements, Role::input);
    const auto sum = add("sum", elements, Role::temporary);
    const auto buffer =
        add("buffer", static_cast<uint32_t>(program::buffer_elements(CollectiveAlgorithm::ring, elements, 4)),
            Role::temporary);
    y = add("y", elements, Role::output);
    first = add("first", elements, Role::output);
    const auto copy = [&](program::VariableId from, program::VariableId to) {
      const auto whole = program::BoxSeries::same({0, 1, 0, elements});
      return p.copy({"copy", {{from, to, 1, whole, whole, {}, {}, {}}}});
    };
    const auto collect = p.collect(all_reduce(sum, buffer));
    p.set_main(p.sequence({copy(x, sum), collect, copy(sum, y), copy(x, first)}));
  }
};

/// On a host replicas take turns, or are divided among ranks. The first one fills an array that all share.
TEST(Ranks, RunOnHosts) {
  const HostSum of(8);
  const Executable executable = compiler::compile(of.program, testing::toy_host(2));
  std::vector<float> xs = numbers(32, 1);
  std::vector<std::vector<float>> results;
  for (const uint32_t ranks : {1U, 2U, 4U}) {
    std::vector<float>& ys = results.emplace_back(32);
    const auto errors = test::errors_on_ranks(connect_threads(ranks), [&](const Ranks& own) {
      Session session(executable, own);
      const uint32_t replica = session.first_replica();
      std::vector<float> shared(8);
      session.run(std::vector<Binding>{binding_of(of.program, of.x, xs, replica),
                                       binding_of(of.program, of.y, ys, replica),
                                       {of.first, shared.data(), 8, 1, 0}},
                  kOnOneThread);
      const auto begin = xs.begin() + int64_t{8} * replica;
      EXPECT_EQ(shared, std::vector<float>(begin, begin + 8));
      EXPECT_TRUE(session.run({}, {.dry = true}).chips.empty());
      // In each of six rounds one message: 16 bytes, and a quarter of the sums.
      EXPECT_EQ(session.sent_bytes(), ranks == 1 ? 0U : 6U * (16 + 8));
    });
    EXPECT_THAT(errors, Each(""));
    EXPECT_EQ(results.front(), ys) << ranks << " ranks";
  }
  for (uint32_t i = 0; i < 32; ++i) {
    const float expected = xs[i % 8] + xs[8 + i % 8] + xs[16 + i % 8] + xs[24 + i % 8];
    EXPECT_NEAR(results.front()[i], expected, 1e-5F * expected);
  }
}

TEST(Ranks, AddOnSeveralThreads) {
  constexpr uint32_t kElements = (1 << 20) + 7;
  const HostSum of(kElements);
  const Executable executable = compiler::compile(of.program, testing::toy_host(2));
  std::vector<float> xs = numbers(uint64_t{4} * kElements, 1), first(kElements);
  std::vector<std::vector<float>> results;
  for (const uint32_t threads : {1U, 2U}) {
    std::vector<float>& ys = results.emplace_back(xs.size());
    Session(executable)
        .run(std::vector<Binding>{binding_of(of.program, of.x, xs, 0),
                                  binding_of(of.program, of.y, ys, 0),
                                  {of.first, first.data(), kElements, 1, 0}},
             {.threads = threads});
  }
  EXPECT_TRUE(results[0] == results[1]);
}

/// They wait for each other's messages while they run, so they must not wait for each other's threads.
TEST(Ranks, OfOneProcessHaveSeveralThreadsEach) {
  constexpr uint32_t kElements = (1 << 20) + 7;
  const HostSum of(kElements);
  const Executable executable = compiler::compile(of.program, testing::toy_host(2));
  std::vector<float> xs = numbers(uint64_t{4} * kElements, 1);
  std::vector<std::vector<float>> results;
  for (const uint32_t ranks : {1U, 2U}) {
    std::vector<float>& ys = results.emplace_back(xs.size());
    const auto errors = test::errors_on_ranks(connect_threads(ranks), [&](const Ranks& own) {
      Session session(executable, own);
      std::vector<float> first(kElements);
      session.run(std::vector<Binding>{binding_of(of.program, of.x, xs, session.first_replica()),
                                       binding_of(of.program, of.y, ys, session.first_replica()),
                                       {of.first, first.data(), kElements, 1, 0}},
                  {.threads = 2});
    });
    EXPECT_THAT(errors, Each(""));
  }
  EXPECT_TRUE(results[0] == results[1]);
}

/// Adds x to the state of each replica, in every run.
Program adding_program(uint32_t replicas) {
  Program p;
  p.set_replicas(replicas);
  const auto x = p.add(testing::variable("x", Type::f32, 1, 4, Role::input, 0));
  const auto sum = p.add(testing::variable("sum", Type::f32, 1, 4, Role::state, 0));
  p.set_main(testing::execute(p, testing::accumulate_codelet, {x, sum}));
  return p;
}

TEST(Ranks, ReadTheStateOfAll) {
  const Executable executable = compiled(adding_program(4));
  std::vector<float> xs = numbers(16, 3);
  const auto errors = test::errors_on_ranks(connect_threads(2), [&](const Ranks& own) {
    Session session(executable, own);
    session.run(std::vector<Binding>{binding_of(*executable->program, 0, xs, session.first_replica())},
                kOnOneThread);
    std::vector<float> all(16);
    session.read_all("sum", std::as_writable_bytes(std::span(all)));
    EXPECT_EQ(all, xs);
    std::vector<float> second(4);
    session.read("sum", {reinterpret_cast<std::byte*>(second.data()), Type::f32, 1, 4, 4, 1}, 1);
    const auto its = xs.begin() + 4 * (session.first_replica() + 1);
    EXPECT_EQ(second, std::vector<float>(its, its + 4));
    EXPECT_USAGE_ERROR("'sum' has 16 bytes in each of 4 replicas; the array has 4",
                       session.read_all("sum", std::as_writable_bytes(std::span(all).first(1))));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Ranks, DivideReplicasEqually) {
  const Executable executable = compiled(adding_program(3));
  EXPECT_USAGE_ERROR("3 replicas cannot be divided among 2 ranks equally: use a multiple of 2",
                     Session(executable, connect_threads(2).front()));
}

TEST(Ranks, MustTakeTheSameWay) {
  Program p = collective_program(CollectiveKind::all_reduce, CollectiveAlgorithm::ring, 2, 1, 8).program;
  const auto x = p.add(testing::variable("x", Type::u32, 1, 1, Role::input, 0));
  const auto y = p.add(testing::variable("y", Type::f32, 1, 4, Role::temporary, 0));
  const auto fill = testing::execute(p, testing::fill_codelet, {y}, {0});
  const auto sum = p.main();
  p.set_main(p.sequence({p.add(program::Step{program::If{x, fill, program::kNoStep}}), sum}));
  const Executable executable = compiled(p);
  for (const bool same : {true, false}) {
    const auto errors = test::errors_on_ranks(connect_threads(2), [&](const Ranks& own) {
      Session session(executable, own);
      std::vector<float> whole(8, 1);
      uint32_t condition = same ? 1U : own->rank();
      session.run(std::vector<Binding>{{0, whole.data(), 8, 1, 8}, {x, &condition, 1, 1, 1}}, kOnOneThread);
      EXPECT_THAT(whole, Each(2.0F));
    });
    if (same)
      EXPECT_THAT(errors, Each(""));
    else
      EXPECT_THAT(errors, Each(HasSubstr("is elsewhere in the program than rank")));
  }
}

TEST(Ranks, EndWithTheErrorOfOne) {
  const CollectiveProgram of =
      collective_program(CollectiveKind::all_reduce, CollectiveAlgorithm::ring, 4, 1, 8);
  const Executable executable = compiled(of.program);
  const auto errors = test::errors_on_ranks(connect_threads(4), [&](const Ranks& own) {
    Session session(executable, own);
    std::vector<float> whole(8);
    std::vector<Binding> arrays = {{of.whole, whole.data(), 8, 1, 8}};
    if (own->rank() == 2) arrays.clear();
    session.run(arrays, kOnOneThread);
  });
  const std::string own = "no array is bound to 'whole' (1 × 8)", of_other = "rank 2: " + own;
  EXPECT_THAT(errors, ElementsAre(of_other, of_other, own, of_other));
}

TEST(Ranks, NoticeThatOneEnds) {
  const CollectiveProgram of =
      collective_program(CollectiveKind::all_reduce, CollectiveAlgorithm::ring, 4, 1, 8);
  const Executable executable = compiled(of.program);
  const auto errors = test::errors_on_ranks(connect_threads(4), [&](const Ranks& own) {
    if (own->rank() == 2) return;
    Session session(executable, own);
    std::vector<float> whole(8);
    session.run(std::vector<Binding>{{of.whole, whole.data(), 8, 1, 8}}, kOnOneThread);
  });
  EXPECT_THAT(errors, ElementsAre("rank 2 has ended", "rank 2 has ended", "", "rank 2 has ended"));
}

}  // namespace
}  // namespace tessera::engine
