// The order of steps, some of which come early, and the steps that run beside collectives.
#include "lower/overlap.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/map/elementwise/codelet.h"
#include "program/program.h"

namespace tessera::graph {
namespace {

using program::Program;
using program::Role;
using program::StepId;
using program::VariableId;

/// A program of two replicas, whose steps copy variables and sum them.
struct SummedCopies {
  SummedCopies() { all.set_replicas(2); }

  VariableId variable(const char* name, uint32_t elements = 4) {
    return all.add({name, Type::f32, 1, elements, Role::temporary, program::map_to_tile(1, elements, 0), {}});
  }
  VariableId streamed(const char* name) {
    program::Variable variable{name, Type::f32, 1, 4, Role::state, program::map_to_tile(1, 4, 0), {}};
    variable.streaming = true;
    return all.add(std::move(variable));
  }
  StepId copy(VariableId from, VariableId to) {
    const auto whole = program::BoxSeries::same({0, 1, 0, 4});
    return all.copy({"copy", {{from, to, 1, whole, whole, {}, {}, {}}}});
  }
  StepId sum(VariableId of) {
    return all.collect({"sum",
                        program::CollectiveKind::all_reduce,
                        program::CollectiveAlgorithm::ring,
                        &kernels::codelet_of(kernels::Binary::add),
                        {{of, {}, variable("buffer", 2)}}});
  }
  /// The collective of a step, and the steps beside it.
  const program::Collect& collect(StepId step) const {
    return std::get<program::Collect>(all.steps().at(step));
  }
  const std::vector<StepId>& beside(StepId step) const {
    return std::get<program::Sequence>(all.steps().at(collect(step).beside)).steps;
  }

  Program all;
};

TEST(StepOrder, BringsEarlyStepsToWhereTheyCanBegin) {
  SummedCopies s;
  const VariableId x = s.variable("x"), a = s.variable("a"), b = s.variable("b"), c = s.variable("c"),
                   d = s.variable("d");
  const StepId first = s.copy(x, a), second = s.copy(x, c), third = s.copy(a, d), early = s.copy(a, b),
               overwriting = s.copy(x, d);
  StepOrder order(s.all);
  for (const StepId step : {first, second, third}) order.add(step, false);
  order.add(early, true);
  EXPECT_EQ(order.written(a), 1U);
  EXPECT_EQ(order.written(b), 1U);
  EXPECT_EQ(order.written(d), 3U);
  order.add(overwriting, true);
  EXPECT_EQ(order.steps(), (std::vector{first, early, second, third, overwriting}));
}

TEST(StepOrder, KeepsEarlyStepsAfterThoseThatReadWhatTheyWrite) {
  SummedCopies s;
  const VariableId x = s.variable("x"), a = s.variable("a"), b = s.variable("b");
  const StepId reading = s.copy(a, b), other = s.copy(b, x), early = s.copy(b, a);
  StepOrder order(s.all);
  order.add(reading, false);
  order.add(other, false);
  order.add(early, true);
  EXPECT_EQ(order.steps(), (std::vector{reading, early, other}));
}

TEST(StepOrder, RunsWhatFollowsBesideEarlyCollectives) {
  SummedCopies s;
  const VariableId x = s.variable("x"), a = s.variable("a"), b = s.variable("b"), c = s.variable("c"),
                   d = s.variable("d");
  const StepId give_a = s.copy(x, a), between = s.copy(x, c), give_b = s.copy(x, b), take_b = s.copy(b, d),
               take_a = s.copy(a, d), sum_a = s.sum(a), sum_b = s.sum(b);
  StepOrder order(s.all);
  for (const StepId step : {give_a, between, give_b}) order.add(step, false);
  for (const StepId step : {sum_a, sum_b}) order.add(step, true);
  for (const StepId step : {take_b, take_a}) order.add(step, false);
  EXPECT_EQ(order.in_order(), (std::vector{give_a, sum_a, between, give_b, sum_b, take_b, take_a}));
  const std::vector<StepId> steps = order.steps();
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[0], give_a);
  EXPECT_EQ(s.collect(steps[1]).collective, s.collect(sum_a).collective);
  EXPECT_EQ(steps[2], take_a);
  // Nothing is left for the second sum, which the next step takes.
  EXPECT_EQ(s.beside(steps[1]), (std::vector{between, give_b, sum_b, take_b}));
  s.all.set_main(s.all.sequence(steps));
  EXPECT_NO_THROW(program::verify(s.all, 1, false));
}

TEST(FetchedAhead, RunsWhatFollowsTheFetchBeforeBesideTheNext) {
  SummedCopies s;
  const VariableId one = s.streamed("one"), two = s.streamed("two"), three = s.streamed("three");
  const VariableId a = s.variable("a"), b = s.variable("b"), c = s.variable("c"), d = s.variable("d");
  const StepId before = s.copy(c, d), fetch_a = s.copy(one, a), use_a = s.copy(a, c), more = s.copy(c, d),
               fetch_b = s.copy(two, b), use_b = s.copy(b, c), again = s.copy(three, b),
               loop = s.all.repeat(2, s.copy(b, c)), last = s.copy(one, a);
  const std::vector<StepId> steps =
      fetched_ahead(s.all, {before, fetch_a, use_a, more, fetch_b, use_b, again, loop, last},
                    {fetch_a, fetch_b, again, last});
  ASSERT_EQ(steps.size(), 7U);
  // The first one has nothing before it, the third needs what the second one's user takes, and loops wait.
  EXPECT_EQ((std::vector{steps[0], steps[1], steps[3], steps[4], steps[5], steps[6]}),
            (std::vector{before, fetch_a, use_b, again, loop, last}));
  const auto set_of = [&](StepId step) { return std::get<program::Copy>(s.all.steps().at(step)).set; };
  EXPECT_EQ(set_of(steps[2]), set_of(fetch_b));
  const StepId beside = std::get<program::Copy>(s.all.steps().at(steps[2])).beside;
  EXPECT_EQ(std::get<program::Sequence>(s.all.steps().at(beside)).steps, (std::vector{use_a, more}));
  s.all.set_main(s.all.sequence(steps));
  EXPECT_NO_THROW(program::verify(s.all, 1, false));
  EXPECT_EQ(fetched_ahead(s.all, {fetch_a, use_a, fetch_b}, {}), (std::vector{fetch_a, use_a, fetch_b}));
}

TEST(StepOrder, LeavesOtherCollectivesAlone) {
  SummedCopies s;
  const VariableId x = s.variable("x"), a = s.variable("a"), b = s.variable("b");
  const StepId give = s.copy(x, a), sum = s.sum(a), other = s.copy(x, b);
  StepOrder order(s.all);
  for (const StepId step : {give, sum, other}) order.add(step, false);
  EXPECT_EQ(order.steps(), (std::vector{give, sum, other}));
}

}  // namespace
}  // namespace tessera::graph
