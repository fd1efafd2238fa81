// Ranks that divide the parts of a program: who holds what, and the results of one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/communicator.h>
#include <tessera/error.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collective_program.h"
#include "compiler/compile.h"
#include "engine/holders.h"
#include "engine/session.h"
#include "engine/touches.h"
#include "program/collective.h"
#include "program/program.h"
#include "support/error_of.h"
#include "support/on_ranks.h"
#include "support/toy_codelets.h"
#include "support/toy_machine.h"

namespace tessera::engine {
namespace {

using program::Program;
using program::Role;
using program::StepId;
using program::VariableId;
using ::testing::Each;

using Ranks = std::shared_ptr<Communicator>;
using Executable = std::shared_ptr<const compiler::Executable>;

constexpr uint32_t kElements = 4, kRuns = 3;
/// Size of a message of one variable.
constexpr uint64_t kBytes = 16 + kElements * sizeof(float);

/// Steps of a program of rows x, which the caller gives, y, which it gets, and the state s.
struct PartsProgram {
  Program program;
  std::vector<StepId> steps;
  VariableId x = add("x", Role::input), y = add("y", Role::output), s = add("s", Role::state);

  VariableId add(const std::string& name, Role role = Role::temporary, uint32_t rows = 1,
                 Type type = Type::f32) {
    return program.add(testing::variable(name, type, rows, type == Type::u32 ? 1 : kElements, role));
  }
  void run(uint32_t part, const program::Codelet& codelet, const std::vector<testing::Taken>& fields,
           std::vector<program::Param> params = {}) {
    const program::PartScope scope(program, part);
    steps.push_back(testing::execute(program, codelet, fields, std::move(params)));
  }
  void copy(uint32_t part, program::CopyGroup group) {
    const program::PartScope scope(program, part);
    steps.push_back(program.copy({"copy", {std::move(group)}}));
  }
  void call(uint32_t part, program::FunctionId function, const std::vector<VariableId>& passed) {
    const program::PartScope scope(program, part);
    program::Call call{function, {}};
    for (const VariableId each : passed) call.operands.push_back({each, {0, 1, 0, kElements}});
    steps.push_back(program.add(program::Step{std::move(call)}));
  }
  StepId sequence() { return program.sequence(std::exchange(steps, {})); }
};

/// y and s after each run.
using Results = std::vector<std::vector<float>>;

std::vector<float> state_of(const Session& session) {
  std::vector<float> state(kElements);
  session.read("s", {reinterpret_cast<std::byte*>(state.data()), Type::f32, 1, kElements, kElements, 1});
  return state;
}

Results run_alone(Session& session, const PartsProgram& of) {
  Results results;
  for (uint32_t run = 0; run < kRuns; ++run) {
    std::vector<float> x, y(kElements);
    for (uint32_t i = 0; i < kElements; ++i) x.push_back(static_cast<float>(run + 3 * i));
    const uint64_t before = session.sent_bytes(), predicted = session.run({}, {.dry = true}).sent_bytes;
    session.run(std::vector<Binding>{{of.x, x.data(), kElements, 1}, {of.y, y.data(), kElements, 1}},
                {.threads = 1});
    EXPECT_EQ(session.sent_bytes() - before, predicted);
    results.push_back(y);
    results.push_back(state_of(session));
  }
  return results;
}

/// The results of one process, which both ranks share, and the bytes that each rank has sent.
struct Divided {
  Results results;
  std::vector<uint64_t> sent;
};

Divided divided(PartsProgram& of) {
  of.program.set_main(of.sequence());
  const Executable executable = compiler::compile(of.program, testing::toy_host(2));
  Session whole(executable);
  Divided found{run_alone(whole, of), std::vector<uint64_t>(2)};
  const auto errors = test::errors_on_ranks(connect_threads(2), [&](const Ranks& ranks) {
    Session session(executable, ranks);
    EXPECT_EQ(session.own_replicas(), 1U);
    EXPECT_EQ(session.first_replica(), 0U);
    EXPECT_EQ(run_alone(session, of), found.results);
    found.sent[ranks->rank()] = session.sent_bytes();
  });
  EXPECT_THAT(errors, Each(""));
  return found;
}

TEST(Parts, HaveTheResultsOfOneProcess) {
  PartsProgram of;
  const VariableId a = of.add("a"), b = of.add("b");
  of.run(0, testing::add_codelet, {of.x, of.x, a});
  of.run(1, testing::add_codelet, {a, of.x, b});
  of.run(1, testing::accumulate_codelet, {b, of.s});
  of.run(1, testing::accumulate_codelet, {a, of.s});
  of.run(0, testing::add_codelet, {a, b, of.y});
  const Divided found = divided(of);
  EXPECT_EQ(found.results[2], (std::vector<float>{5, 20, 35, 50}));
  EXPECT_EQ(found.results[3], (std::vector<float>{5, 35, 65, 95}));
  // In each run a, and at its end y, go to the second rank, and b to the first. Reading state is not a run.
  EXPECT_EQ(found.sent, (std::vector<uint64_t>{kRuns * 2 * kBytes, kRuns * kBytes}));
}

/// Here the last one has none; its rank gets the results of the others.
TEST(Parts, MayHaveNoSteps) {
  PartsProgram of;
  of.program.set_parts(2);
  of.run(0, testing::add_codelet, {of.x, of.x, of.y});
  of.run(0, testing::accumulate_codelet, {of.x, of.s});
  const Divided found = divided(of);
  EXPECT_EQ(found.results[2], (std::vector<float>{2, 8, 14, 20}));
  EXPECT_EQ(found.sent, (std::vector<uint64_t>{kRuns * kBytes, 0}));
}

TEST(Parts, SendOnlyTheBoxesThatOthersLack) {
  PartsProgram of;
  const VariableId rows = of.add("rows", Role::temporary, 4);
  const auto box = [&](uint32_t row, uint32_t count) {
    return testing::field(rows, {row, count, 0, kElements});
  };
  of.run(0, testing::fill_codelet, {box(0, 3)}, {1});
  of.run(1, testing::fill_codelet, {box(3, 1)}, {2});
  of.run(1, testing::fill_codelet, {box(2, 1)}, {5});
  of.run(0, testing::add_codelet, {box(1, 1), box(3, 1), of.y});
  of.run(0, testing::accumulate_codelet, {of.x, of.s});
  of.run(0, testing::accumulate_codelet, {box(2, 1), of.s});
  const Divided found = divided(of);
  EXPECT_EQ(found.sent, (std::vector<uint64_t>{kRuns * kBytes, kRuns * 2 * kBytes}));
}

/// All ranks run the steps that belong to no part.
TEST(Parts, RunWhatBelongsToNone) {
  PartsProgram of;
  const VariableId a = of.add("a"), b = of.add("b");
  of.run(program::kEveryPart, testing::add_codelet, {of.x, of.x, a});
  of.run(1, testing::add_codelet, {a, of.x, b});
  of.run(program::kEveryPart, testing::accumulate_codelet, {b, of.s});
  of.run(0, testing::add_codelet, {of.s, b, of.y});
  EXPECT_EQ(divided(of).sent, (std::vector<uint64_t>{kRuns * kBytes, kRuns * kBytes}));
}

/// A function runs where it is called, with the operands of its arguments.
TEST(Parts, CallFunctions) {
  PartsProgram of;
  const VariableId a = of.add("a"), b = of.add("b");
  const VariableId in = of.add("in", Role::argument), out = of.add("out", Role::argument);
  of.run(program::kEveryPart, testing::add_codelet, {in, of.x, out});
  const program::FunctionId function = of.program.add(
      program::Function{"add x", of.sequence(), {{in, program::Access::in}, {out, program::Access::out}}});
  of.call(0, function, {of.x, a});
  of.call(1, function, {a, b});
  of.call(0, function, {b, of.y});
  of.run(1, testing::accumulate_codelet, {of.y, of.s});
  // y goes to the second rank once.
  EXPECT_EQ(divided(of).sent, (std::vector<uint64_t>{kRuns * 2 * kBytes, kRuns * kBytes}));
}

/// A call without steps brings data that is needed later; data written in between comes after it.
TEST(Parts, BringAheadWhatCallsPass) {
  for (const bool is_changed : {false, true}) {
    PartsProgram of;
    const VariableId a = of.add("a"), b = of.add("b"), in = of.add("in", Role::argument);
    const program::FunctionId later =
        of.program.add(program::Function{"later", of.sequence(), {{in, program::Access::in}}});
    of.run(0, testing::add_codelet, {of.x, of.x, a});
    of.call(1, later, {a});
    if (is_changed) of.run(0, testing::scale_codelet, {a}, {2});
    of.run(0, testing::accumulate_codelet, {a, of.s});
    of.run(1, testing::add_codelet, {a, of.x, b});
    of.run(1, testing::add_codelet, {a, b, of.y});
    const uint64_t messages = is_changed ? 2 : 1;
    EXPECT_EQ(divided(of).sent, (std::vector<uint64_t>{kRuns * messages * kBytes, kRuns * kBytes}));
  }
}

/// All ranks follow the decisions of one part, and the rows that are chosen when the program runs.
TEST(Parts, DecideTogether) {
  PartsProgram of;
  Program& p = of.program;
  const VariableId flag = of.add("flag", Role::temporary, 1, Type::u32),
                   counter = of.add("counter", Role::temporary, 1, Type::u32);
  const VariableId rows = of.add("rows", Role::temporary, 3), a = of.add("a");
  const auto row = program::BoxSeries::same({0, 1, 0, kElements});
  of.copy(0, {of.x, rows, 1, row, row, {}, {}, program::RuntimeRow{counter, 1}});
  const StepId repeat = p.repeat(3, of.sequence(), counter);
  of.run(1, testing::odd_codelet, {of.x, flag});
  of.copy(1, {rows, a, 1, program::BoxSeries::same({2, 1, 0, kElements}), row, {}, {}, {}});
  const StepId decide = of.sequence();
  of.run(0, testing::accumulate_codelet, {a, of.s});
  const StepId then = of.sequence();
  of.run(1, testing::accumulate_codelet, {of.x, of.s});
  const StepId otherwise = of.sequence();
  of.steps = {repeat, decide, p.add(program::Step{program::If{flag, then, otherwise}})};
  of.run(0, testing::add_codelet, {of.s, of.x, of.y});
  p.set_main(of.sequence());
  const Executable executable = compiler::compile(p, testing::toy_host(2));
  const auto results_on = [&](Session& session) {
    Results results;
    for (uint32_t run = 0; run < kRuns; ++run) {
      // An odd number if read as an integer, or an even one.
      std::vector<float> x = {run == 1 ? std::nextafter(1.0F, 2.0F) : 1.0F, 2, 3, 4}, y(kElements);
      session.run(std::vector<Binding>{{of.x, x.data(), kElements, 1}, {of.y, y.data(), kElements, 1}},
                  {.threads = 1});
      results.push_back(y);
      results.push_back(state_of(session));
    }
    return results;
  };
  Session whole(executable);
  const Results expected = results_on(whole);
  const auto errors = test::errors_on_ranks(connect_threads(2), [&](const Ranks& ranks) {
    Session session(executable, ranks);
    EXPECT_EQ(results_on(session), expected);
  });
  EXPECT_THAT(errors, Each(""));
}

/// Opens when a rank gets a message.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    if (!opened_.wait_for(lock, std::chrono::seconds(5), [&] { return is_open_; }))
      throw RankError("the message waits for the sum");
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
};

/// Two replicas with two ranks each: the last rank sums with the other replica only when rank 0 has got a
/// message from the other rank of its replica.
class Gated final : public Communicator {
 public:
  Gated(Ranks of, Gate& gate) : of_(std::move(of)), gate_(gate) {}
  uint32_t rank() const override { return of_->rank(); }
  uint32_t size() const override { return of_->size(); }
  std::chrono::milliseconds longest_wait() const override { return of_->longest_wait(); }
  void exchange(std::span<const Outgoing> sent, std::span<const Incoming> received) override {
    if (rank() == 3 && !received.empty() && received.front().from == 1) gate_.pass();
    of_->exchange(sent, received);
    if (rank() == 0 && !received.empty() && received.front().from == 1) gate_.open();
  }
  void abort(const std::string& message) noexcept override { of_->abort(message); }

 private:
  const Ranks of_;
  Gate& gate_;
};

/// Messages between the parts of a replica do not wait for a sum over replicas that began before.
TEST(Parts, ExchangeMessagesBesideSumsOfReplicas) {
  PartsProgram of;
  Program& p = of.program;
  p.set_replicas(2);
  const VariableId sum = of.add("sum"), a = of.add("a");
  const auto room = static_cast<uint32_t>(
      program::buffer_elements(program::CollectiveAlgorithm::ring, kElements, p.replicas()));
  const VariableId buffer = p.add(testing::variable("buffer", Type::f32, 1, room, Role::temporary));
  of.run(1, testing::add_codelet, {of.x, of.x, a});
  of.run(0, testing::accumulate_codelet, {a, of.s});
  const StepId beside = of.sequence();
  of.run(1, testing::add_codelet, {of.x, of.x, sum});
  const program::CollectiveId collective = p.add(all_reduce(sum, buffer));
  of.steps.push_back(p.add(program::Step{program::Collect{collective, beside}}));
  of.run(1, testing::add_codelet, {sum, of.x, of.y});
  p.set_main(of.sequence());
  const Executable executable = compiler::compile(p, testing::toy_host(1));
  Gate gate;
  std::vector<Ranks> all;
  for (Ranks& each : connect_threads(4)) all.push_back(std::make_shared<Gated>(std::move(each), gate));
  const auto errors = test::errors_on_ranks(std::move(all), [&](const Ranks& ranks) {
    Session session(executable, ranks);
    std::vector<float> x(kElements, session.first_replica() == 0 ? 1.0F : 10.0F), y(kElements);
    session.run(std::vector<Binding>{{of.x, x.data(), kElements, 1}, {of.y, y.data(), kElements, 1}},
                {.threads = 1});
    EXPECT_EQ(y, std::vector<float>(kElements, 22 + x[0]));
    EXPECT_EQ(state_of(session), std::vector<float>(kElements, 2 * x[0]));
  });
  EXPECT_THAT(errors, Each(""));
}

/// A dry run, of a single rank, follows the state of that rank.
TEST(Parts, RefuseDryRunsThatFollowTheStateOfOthers) {
  PartsProgram of;
  const VariableId counter = of.add("counter", Role::state, 1, Type::u32),
                   flag = of.add("flag", Role::temporary, 1, Type::u32);
  of.run(1, testing::below_codelet, {counter, flag}, {1});
  of.run(1, testing::increment_codelet, {counter}, {1});
  const StepId decide = of.sequence();
  of.run(0, testing::accumulate_codelet, {of.x, of.s});
  const StepId then = of.sequence();
  of.steps = {decide, of.program.add(program::Step{program::If{flag, then, program::kNoStep}})};
  of.run(0, testing::add_codelet, {of.s, of.x, of.y});
  of.program.set_main(of.sequence());
  const Executable executable = compiler::compile(of.program, testing::toy_host(1));
  const auto run = [&](Session& session) {
    std::vector<float> x(kElements, 1), y(kElements);
    session.run(std::vector<Binding>{{of.x, x.data(), kElements, 1}, {of.y, y.data(), kElements, 1}},
                {.threads = 1});
  };
  const auto predicted = [](Session& session) { return session.run({}, {.dry = true}).supersteps; };
  Session whole(executable);
  const uint64_t before = predicted(whole);
  run(whole);
  const uint64_t after = predicted(whole);
  EXPECT_LT(after, before);
  const auto errors = test::errors_on_ranks(connect_threads(2), [&](const Ranks& ranks) {
    Session session(executable, ranks);
    const auto expect = [&](uint64_t supersteps) {
      if (ranks->rank() == 0)
        EXPECT_ERROR("'flag', which only a full run computes", predicted(session));
      else
        EXPECT_EQ(predicted(session), supersteps);
    };
    expect(before);
    run(session);
    expect(after);
    session.share("counter");
    EXPECT_EQ(predicted(session), after);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Parts, KeepTheirState) {
  PartsProgram of;
  of.run(0, testing::add_codelet, {of.x, of.x, of.y});
  of.run(1, testing::accumulate_codelet, {of.x, of.s});
  of.program.set_main(of.sequence());
  const Executable executable = compiler::compile(of.program, testing::toy_host(1));
  const auto errors = test::errors_on_ranks(connect_threads(2), [&](const Ranks& ranks) {
    Session session(executable, ranks);
    std::vector<float> values = {1, 2, 3, 4}, y(kElements);
    std::byte* const bytes = reinterpret_cast<std::byte*>(values.data());
    const std::vector<Binding> arrays = {{of.x, values.data(), kElements, 1}, {of.y, y.data(), kElements, 1}};
    session.write("s", {bytes, Type::f32, 1, kElements, kElements, 1});
    session.run(arrays, {.threads = 1});
    const std::vector<float> twice = {2, 4, 6, 8};
    EXPECT_EQ(state_of(session), twice);
    std::vector<float> all(kElements);
    session.read_all("s", std::as_writable_bytes(std::span(all)));
    EXPECT_EQ(all, twice);
    session.share("s");
    const program::FieldView memory = session.memory_of("s");
    EXPECT_EQ(std::vector<float>(memory.as<float>(), memory.as<float>() + kElements), twice);
    session.reset();
    EXPECT_EQ(state_of(session), std::vector<float>(kElements));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Parts, AreDividedEqually) {
  PartsProgram of;
  for (uint32_t part = 0; part < 3; ++part) of.run(part, testing::accumulate_codelet, {of.x, of.s});
  of.run(0, testing::add_codelet, {of.x, of.x, of.y});
  of.program.set_main(of.sequence());
  const Executable executable = compiler::compile(of.program, testing::toy_host(1));
  EXPECT_USAGE_ERROR("1 replicas with 3 stages each cannot be divided among 2 ranks equally",
                     Session(executable, connect_threads(2).front()));
}

TEST(Parts, EndWithTheErrorOfOne) {
  PartsProgram of;
  const VariableId a = of.add("a");
  of.run(0, testing::throw_codelet, {of.x});
  of.run(0, testing::add_codelet, {of.x, of.x, a});
  of.run(1, testing::add_codelet, {a, of.x, of.y});
  of.run(1, testing::accumulate_codelet, {a, of.s});
  of.program.set_main(of.sequence());
  const Executable executable = compiler::compile(of.program, testing::toy_host(1));
  const auto errors = test::errors_on_ranks(connect_threads(2), [&](const Ranks& ranks) {
    Session session(executable, ranks);
    std::vector<float> x(kElements), y(kElements);
    session.run(std::vector<Binding>{{of.x, x.data(), kElements, 1}, {of.y, y.data(), kElements, 1}},
                {.threads = 1});
  });
  EXPECT_EQ(errors[0], "vertex failed");
  EXPECT_EQ(errors[1], "rank 0: vertex failed");
}

TEST(Holders, KnowWhatRanksLack) {
  PartsProgram of;
  const VariableId rows = of.add("rows", Role::temporary, 4);
  for (const uint32_t part : {0U, 1U}) of.run(part, testing::accumulate_codelet, {of.x, of.s});
  of.run(1, testing::fill_codelet, {of.y}, {1});
  of.program.set_main(of.sequence());
  Touches touches(of.program);
  Holders holders(of.program, touches, 2);
  EXPECT_EQ(holders.all(), 3U);
  EXPECT_EQ(holders.home(of.y), 2U);
  EXPECT_EQ(holders.home(of.s), 3U);
  EXPECT_EQ(holders.home(rows), 3U);  // no step touches it
  const Positions first = 1, second = 2;
  const auto meet = [&](const Touch& touch, Positions ranks) {
    std::vector<Lack> lacks;
    holders.meet(std::span(&touch, 1), ranks, lacks);
    return lacks;
  };
  const Touch write_half{rows, {0, 2, 0, kElements}, false, true},
      read{rows, {0, 4, 0, kElements}, true, false}, write_middle{rows, {1, 2, 1, 2}, false, true};
  EXPECT_TRUE(meet(write_half, first).empty());
  EXPECT_TRUE(meet(read, first).empty());
  std::vector<Lack> lacks = meet(read, second);
  ASSERT_EQ(lacks.size(), 1U);
  EXPECT_EQ(lacks[0].box, write_half.box);
  EXPECT_EQ(lacks[0].from, 0U);
  EXPECT_EQ(lacks[0].to, second);
  EXPECT_TRUE(meet(read, second).empty());
  EXPECT_TRUE(meet(write_middle, second).empty());
  EXPECT_EQ(holders.holder_of(rows), 1U);
  lacks = meet(read, holders.all());
  ASSERT_EQ(lacks.size(), 1U);
  EXPECT_EQ(lacks[0].box, write_middle.box);
  EXPECT_EQ(lacks[0].to, first);
  EXPECT_TRUE(holders.lacks_of(rows, holders.all()).empty());
  holders.set(rows, first);
  EXPECT_EQ(holders.lacks_of(rows, second).size(), 1U);
  EXPECT_EQ(holders.lacks_of(rows, second).size(), 1U);
}

}  // namespace
}  // namespace tessera::engine
