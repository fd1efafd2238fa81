// Replicas of a program and their collectives: results, and costs known by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <algorithm>
#include <filesystem>

#include "collective_program.h"
#include "compiler/compile.h"
#include "compiler/executable_file.h"
#include "engine/engine.h"
#include "engine/session.h"
#include "program/collective.h"
#include "support/error_of.h"
#include "support/toy_codelets.h"
#include "support/toy_machine.h"

namespace tessera::engine {
namespace {

using program::CollectiveAlgorithm;
using program::CollectiveKind;
using program::map_rows_to_tiles;
using program::Phase;
using program::Program;
using program::Role;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::toy_chips;
using ::testing::UnorderedElementsAre;

constexpr CollectiveAlgorithm kAlgorithms[] = {CollectiveAlgorithm::ring, CollectiveAlgorithm::tree};

/// Value of an element of a replica: whole numbers, so that sums do not depend on the order.
float value_of(uint32_t replica, uint64_t i) { return static_cast<float>((replica + 1) * 1000 + i % 97); }

TEST(Replicas, ExchangeWhatTheirCollectivesSay) {
  constexpr CollectiveKind kKinds[] = {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                       CollectiveKind::scatter, CollectiveKind::all_gather};
  for (const CollectiveKind kind : kKinds)
    for (const CollectiveAlgorithm algorithm : kAlgorithms)
      for (const auto& [replicas, group] : std::initializer_list<std::pair<uint32_t, uint32_t>>{
               {2, 0}, {3, 0}, {4, 0}, {6, 0}, {7, 0}, {16, 0}, {4, 1}, {4, 2}, {6, 3}, {12, 4}}) {
        SCOPED_TRACE(::testing::Message() << name_of(kind) << " by " << name_of(algorithm) << ", " << replicas
                                          << " replicas in groups of " << group);
        const uint32_t together = group == 0 ? replicas : group;
        const bool has_parts = kind != CollectiveKind::all_reduce;
        const uint32_t tiles = 2, elements = 23;
        const auto own = static_cast<uint32_t>(program::part_elements(elements, together));
        const CollectiveProgram b = collective_program(kind, algorithm, replicas, tiles, elements, group);
        const Engine engine(
            compiler::compile(b.program, toy_chips(replicas, 2, machine::Topology::all_to_all)));
        const uint64_t of_whole = uint64_t{tiles} * elements, of_part = uint64_t{tiles} * own;
        std::vector<float> whole(replicas * of_whole), part(replicas * of_part);
        for (uint32_t r = 0; r < replicas; ++r) {
          for (uint64_t i = 0; i < of_whole; ++i) whole[r * of_whole + i] = value_of(r, i);
          for (uint64_t i = 0; i < of_part; ++i) part[r * of_part + i] = value_of(r, i);
        }
        const std::vector<float> wholes_before = whole, parts_before = part;
        std::vector<Binding> bindings = {
            {b.whole, whole.data(), elements, 1, static_cast<int64_t>(of_whole)}};
        if (has_parts) bindings.push_back({b.part, part.data(), own, 1, static_cast<int64_t>(of_part)});
        const Profile run = engine.run(bindings);
        for (uint32_t owner = 0; owner < replicas; ++owner) {
          const uint32_t first = owner / together * together, chunk = owner - first;
          const auto sum = [&, first = first](uint64_t i) {
            float total = 0;
            for (uint32_t r = first; r < first + together; ++r) total += value_of(r, i);
            return total;
          };
          const uint64_t begin = program::chunk_begin(elements, chunk, together),
                         end = program::chunk_begin(elements, chunk + 1, together);
          for (uint32_t tile = 0; tile < tiles; ++tile) {
            const uint64_t own_part = owner * of_part + tile * own;
            for (uint64_t i = begin; i < end; ++i) {
              const uint64_t at = uint64_t{tile} * elements + i;
              if (program::writes_part(kind)) {
                const bool is_sum = kind == CollectiveKind::reduce_scatter;
                ASSERT_EQ(part[own_part + i - begin],
                          is_sum ? sum(at) : wholes_before[owner * of_whole + at]);
                continue;
              }
              for (uint32_t r = first; r < first + together; ++r)
                ASSERT_EQ(whole[r * of_whole + at],
                          kind == CollectiveKind::all_reduce ? sum(at) : parts_before[own_part + i - begin]);
            }
            for (uint64_t i = end - begin; program::writes_part(kind) && i < own; ++i)
              ASSERT_EQ(part[own_part + i], 0) << "what a shorter chunk leaves of a part";
          }
        }
        ASSERT_EQ(run.chips.size(), replicas);
        for (const program::PhaseTimes& chip : run.chips) EXPECT_EQ(chip.at, run.cycles.at);
        const Profile dry = engine.run({}, {.dry = true});
        EXPECT_EQ(dry.cycles.at, run.cycles.at);
        EXPECT_EQ(run.collectives.at(0).times, 1u);
        EXPECT_EQ(compiler::estimate(b.program, engine.executable().machine.part(0, replicas * 2)).cycles.at,
                  run.cycles.at);
      }
}

/// A sum of 100 elements over replicas of a tile, with a chip each.
Profile dry_sum(CollectiveAlgorithm algorithm, uint32_t replicas, uint32_t group = 0) {
  const Program p =
      collective_program(CollectiveKind::all_reduce, algorithm, replicas, 1, 100, group).program;
  return Engine(compiler::compile(p, toy_chips(replicas, 1))).run({}, {.dry = true});
}

TEST(Replicas, ARingOfTwoAndFourByHand) {
  // Two replicas of a tile, 100 elements: 50 go over the link and are added, then 50 sums come back.
  const Profile two = dry_sum(CollectiveAlgorithm::ring, 2);
  EXPECT_EQ(two.cycles[Phase::exchange], 2 * (200 / 2 + 5 + 20));
  EXPECT_EQ(two.cycles[Phase::sync], 2 * 50);
  EXPECT_EQ(two.cycles[Phase::compute], 51);
  ASSERT_EQ(two.links.size(), 2u);
  EXPECT_EQ(two.links[0].bytes, 2 * 200);
  // Four on a ladder: 0, 2, 3, 1 are a ring of neighbours, each link carries a quarter six times.
  const Profile four = dry_sum(CollectiveAlgorithm::ring, 4);
  EXPECT_EQ(four.cycles[Phase::exchange], 6 * (100 / 2 + 5 + 20));
  EXPECT_EQ(four.cycles[Phase::sync], 6 * 50);
  EXPECT_EQ(four.cycles[Phase::compute], 3 * 26);
  EXPECT_EQ(four.links.size(), 4u);
  for (const program::LinkLoad& load : four.links) EXPECT_EQ(load.bytes, 6 * 100);
}

TEST(Replicas, GroupsExchangeAtOnce) {
  const Profile two = dry_sum(CollectiveAlgorithm::ring, 2), six = dry_sum(CollectiveAlgorithm::ring, 6, 2);
  EXPECT_EQ(six.cycles.at, two.cycles.at);
  EXPECT_EQ(six.links.size(), 3 * two.links.size());
}

TEST(Replicas, ATreeByHand) {
  // 1 to 0 and 3 to 2, then 2 to 0; and back: all 400 bytes each time, one link long.
  const Profile four = dry_sum(CollectiveAlgorithm::tree, 4);
  EXPECT_EQ(four.cycles[Phase::exchange], 4 * (400 / 2 + 5 + 20));
  EXPECT_EQ(four.cycles[Phase::compute], 2 * 101);
}

TEST(Replicas, SmallOnesAreFasterByTreeAndLargeOnesByRing) {
  const auto cycles = [](CollectiveAlgorithm algorithm, uint32_t elements) {
    const Program program =
        collective_program(CollectiveKind::all_reduce, algorithm, 16, 1, elements).program;
    return compiler::estimate(program, toy_chips(16, 1)).cycles.total();
  };
  EXPECT_LT(cycles(CollectiveAlgorithm::tree, 16), cycles(CollectiveAlgorithm::ring, 16));
  EXPECT_GT(cycles(CollectiveAlgorithm::tree, 10000), cycles(CollectiveAlgorithm::ring, 10000));
}

TEST(Replicas, OfSeveralChipsKeepTheirClocks) {
  // A replica is a rung; its two chips exchange, and each sends to the same chip of the next rung.
  Program p;
  p.set_replicas(2);
  const auto a = p.add(testing::variable("a", Type::f32, 1, 100, Role::temporary, 0));
  const auto b = p.add(testing::variable("b", Type::f32, 1, 100, Role::inout, 1));
  const auto buffer = p.add(testing::variable("buffer", Type::f32, 1, 100, Role::temporary, 1));
  const auto fill = testing::execute(p, testing::fill_codelet, {a}, {7});
  const auto whole = program::BoxSeries::same({0, 1, 0, 100});
  const auto copy = p.copy({"copy", {{a, b, 1, whole, whole, {}, {}, {}}}});
  const auto reduce = p.collect(all_reduce(b, buffer, CollectiveAlgorithm::tree));
  p.set_main(p.sequence({fill, copy, reduce}));
  const Engine engine(compiler::compile(p, toy_chips(4, 1)));
  std::vector<float> sums(200);
  const Profile run = engine.run(std::vector<Binding>{{b, sums.data(), 100, 1, 100}});
  for (uint32_t i = 0; i < 200; ++i) EXPECT_EQ(sums[i], 2.0F * (7 + i % 100));
  ASSERT_EQ(run.chips.size(), 4u);
  std::vector<std::pair<uint32_t, uint32_t>> links;
  for (const program::LinkLoad& load : run.links) {
    links.emplace_back(load.from, load.to);
    EXPECT_EQ(load.bytes, 400);
  }
  // In the replicas, and back and forth between them.
  EXPECT_THAT(links, UnorderedElementsAre(Pair(0, 1), Pair(2, 3), Pair(1, 3), Pair(3, 1)));
  EXPECT_EQ(compiler::estimate(p, toy_chips(4, 1)).cycles.at, run.cycles.at);
}

/// A sum of two replicas of a tile, and steps with other data, beside it or after it.
CollectiveProgram with_work(uint32_t steps, bool is_beside) {
  CollectiveProgram b = collective_program(CollectiveKind::all_reduce, CollectiveAlgorithm::ring, 2, 1, 100);
  Program& p = b.program;
  const auto scratch = p.add(testing::variable("scratch", Type::f32, 1, 100, Role::temporary, 0));
  b.part = p.add(testing::variable("other", Type::f32, 1, 100, Role::inout, 0));
  std::vector<program::StepId> work = {testing::execute(p, testing::fill_codelet, {scratch}, {1})};
  for (uint32_t i = 0; i < steps; ++i)
    work.push_back(testing::execute(p, testing::accumulate_codelet, {scratch, b.part}));
  const program::StepId all = p.sequence(std::move(work));
  p.set_main(is_beside ? p.add(program::Step{program::Collect{0, all}}) : p.sequence({p.main(), all}));
  return b;
}

TEST(Replicas, ComputeWhileDataIsUnderWay) {
  const machine::Machine machine = toy_chips(2, 1);
  for (const uint32_t steps : {0U, 1U, 3U, 50U}) {
    SCOPED_TRACE(steps);
    std::vector<std::vector<float>> results;
    std::vector<Profile> runs;
    compiler::CollectiveCost cost;
    for (const bool is_beside : {false, true}) {
      const CollectiveProgram b = with_work(steps, is_beside);
      const Engine engine(compiler::compile(b.program, machine));
      cost = engine.executable().collectives.at(0);
      std::vector<float> whole(200), other(200, 0.5F);
      for (size_t i = 0; i < 200; ++i) whole[i] = value_of(static_cast<uint32_t>(i / 100), i % 100);
      runs.push_back(engine.run(
          std::vector<Binding>{{b.whole, whole.data(), 100, 1, 100}, {b.part, other.data(), 100, 1, 100}}));
      whole.insert(whole.end(), other.begin(), other.end());
      results.push_back(std::move(whole));
      const Profile dry = engine.run({}, {.dry = true});
      EXPECT_EQ(dry.cycles.at, runs.back().cycles.at);
      EXPECT_EQ(dry.collectives.at(0).cycles.at, runs.back().collectives.at(0).cycles.at);
      double of_steps = 0;
      for (const auto* profiles : {&dry.sets, &dry.collectives})
        for (const StepProfile& step : *profiles) of_steps += step.cycles.total();
      EXPECT_NEAR(of_steps, dry.cycles.total(), 1e-9 * of_steps);
      EXPECT_EQ(compiler::estimate(b.program, machine).cycles.at, runs.back().cycles.at);
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_GT(cost.under_way, 0);
    const double after = runs[0].cycles.total(), beside = runs[1].cycles.total(),
                 work = after - cost.cycles.total();
    EXPECT_DOUBLE_EQ(beside, std::max(work, cost.under_way) + cost.cycles.total() - cost.under_way);
    EXPECT_LT(beside, after);
    EXPECT_NEAR(runs[1].collectives.at(0).cycles.total(),
                cost.cycles.total() - std::min(work, cost.under_way), 1e-9 * after);
    EXPECT_EQ(runs[1].links.size(), runs[0].links.size());
  }
}

TEST(Replicas, KeepWhatIsUnderWayApart) {
  const auto bytes = [](bool is_beside) {
    return compiler::estimate(with_work(1, is_beside).program, toy_chips(2, 1)).memory.max_tile_bytes;
  };
  EXPECT_GT(bytes(true), bytes(false));
}

TEST(Replicas, QueueForLinks) {
  const auto run = [](bool is_beside) {
    Program p;
    p.set_replicas(2);
    std::vector<program::StepId> sums;
    for (const std::string name : {"a", "b"}) {
      const auto whole = p.add(testing::variable(name, Type::f32, 1, 100, Role::inout, 0));
      const auto buffer = p.add(testing::variable(name + ".buffer", Type::f32, 1, 50, Role::temporary, 0));
      sums.push_back(p.collect(all_reduce(whole, buffer)));
    }
    p.set_main(is_beside ? p.add(program::Step{program::Collect{0, sums[1]}}) : p.sequence(sums));
    return Engine(compiler::compile(p, toy_chips(2, 1))).run({}, {.dry = true});
  };
  EXPECT_DOUBLE_EQ(run(true).cycles.total(), run(false).cycles.total());
}

TEST(Replicas, WaitForLinksInLoopsAsOutsideOfThem) {
  // Only the first of the small sums has to wait until the large one frees the links.
  for (const uint32_t chips : {1U, 2U}) {
    SCOPED_TRACE(chips);
    const auto cycles = [&](bool is_loop) {
      constexpr uint32_t kPasses = 5;
      Program p;
      p.set_replicas(2);
      const auto variable = [&](const std::string& name, uint32_t elements, Role role) {
        return p.add({name, Type::f32, chips, elements, role, map_rows_to_tiles(chips, elements), {}});
      };
      const auto sum = [&](const std::string& name, uint32_t elements) {
        const auto whole = variable(name, elements, Role::inout);
        const auto buffer = variable(name + ".buffer", elements / 2, Role::temporary);
        return p.add(all_reduce(whole, buffer));
      };
      const auto large = sum("large", 1000), small = sum("small", 20);
      const auto scratch = p.add(testing::variable("scratch", Type::f32, 1, 50, Role::temporary, 0));
      const auto pass = p.sequence({testing::execute(p, testing::fill_codelet, {scratch}, {1}),
                                    p.add(program::Step{program::Collect{small}})});
      const auto passes =
          is_loop ? p.repeat(kPasses, pass) : p.sequence(std::vector<program::StepId>(kPasses, pass));
      p.set_main(p.add(program::Step{program::Collect{large, passes}}));
      return compiler::estimate(p, toy_chips(2 * chips, 1)).cycles.total();
    };
    EXPECT_NEAR(cycles(true), cycles(false), 1e-6);
  }
}

TEST(Replicas, LetExchangesBetweenTheirChipsGoFirst) {
  // A replica is a rung; its second chip sums, while the first one computes what it then sends to it.
  Program p;
  p.set_replicas(2);
  const auto a = p.add(testing::variable("a", Type::f32, 1, 100, Role::temporary, 0));
  const auto b = p.add(testing::variable("b", Type::f32, 1, 100, Role::inout, 1));
  const auto c = p.add(testing::variable("c", Type::f32, 1, 100, Role::output, 1));
  const auto buffer = p.add(testing::variable("buffer", Type::f32, 1, 100, Role::temporary, 1));
  const auto fill = testing::execute(p, testing::fill_codelet, {a}, {7});
  const auto whole = program::BoxSeries::same({0, 1, 0, 100});
  const auto copy = p.copy({"copy", {{a, c, 1, whole, whole, {}, {}, {}}}});
  const auto sum = p.add(all_reduce(b, buffer, CollectiveAlgorithm::tree));
  p.set_main(p.add(program::Step{program::Collect{sum, p.sequence({fill, copy})}}));
  const Engine engine(compiler::compile(p, toy_chips(4, 1)));
  const compiler::Executable& e = engine.executable();
  const compiler::CollectiveCost& cost = e.collectives.at(0);
  EXPECT_EQ(cost.chips, std::vector<uint32_t>{1});
  const double computing = e.sets.at(0).chip_cycles.at(0).cycles.total(),
               sending = e.copies.at(0).cost.tied.at(0).cycles.total();
  EXPECT_DOUBLE_EQ(engine.run({}, {.dry = true}).cycles.total(),
                   std::max(cost.under_way, computing) + sending + cost.cycles.total() - cost.under_way);
}

TEST(Replicas, HaveTheirOwnState) {
  Program p;
  p.set_replicas(3);
  const auto x = p.add(testing::variable("x", Type::f32, 1, 4, Role::input, 0));
  const auto sum = p.add(testing::variable("sum", Type::f32, 1, 4, Role::state, 0));
  const auto y = p.add(testing::variable("y", Type::f32, 1, 4, Role::output, 0));
  const auto whole = program::BoxSeries::same({0, 1, 0, 4});
  const auto add = testing::execute(p, testing::accumulate_codelet, {x, sum});
  p.set_main(p.sequence({add, p.copy({"out", {{sum, y, 1, whole, whole, {}, {}, {}}}})}));
  Session session(compiler::compile(p, toy_chips(3, 1, machine::Topology::all_to_all)));
  std::vector<float> xs = {1, 2, 3, 4, 10, 20, 30, 40, 100, 200, 300, 400}, ys(12), first(4, 5);
  session.write("sum", {reinterpret_cast<std::byte*>(first.data()), Type::f32, 1, 4, 4, 1});
  for (int run = 1; run <= 3; ++run) {
    session.run(std::vector<Binding>{{x, xs.data(), 4, 1, 4}, {y, ys.data(), 4, 1, 4}});
    for (size_t i = 0; i < 12; ++i) EXPECT_EQ(ys[i], 5 + static_cast<float>(run) * xs[i]);
  }
  std::vector<float> state(4);
  session.read("sum", {reinterpret_cast<std::byte*>(state.data()), Type::f32, 1, 4, 4, 1});
  EXPECT_EQ(state, (std::vector<float>{8, 11, 14, 17}));
}

TEST(Replicas, MustTakeTheSameWay) {
  Program p;
  p.set_replicas(2);
  const auto x = p.add(testing::variable("x", Type::u32, 1, 1, Role::input, 0));
  const auto y = p.add(testing::variable("y", Type::f32, 1, 4, Role::temporary, 0));
  const auto fill = testing::execute(p, testing::fill_codelet, {y}, {0});
  p.set_main(p.add(program::Step{program::If{x, fill, program::kNoStep}}));
  const Engine engine(compiler::compile(p, toy_chips(2, 1)));
  std::vector<uint32_t> same = {1, 1}, different = {1, 0};
  engine.run(std::vector<Binding>{{x, same.data(), 1, 1, 1}});
  EXPECT_ERROR("control flow differs between replicas: 'x' is 1 in one and 0 in another",
               engine.run(std::vector<Binding>{{x, different.data(), 1, 1, 1}}));
}

TEST(Replicas, NeedChipsThatTheyCanShare) {
  const auto compile = [](uint32_t replicas, const machine::Machine& machine) {
    return test::error_of<UsageError>([&] {
      compiler::compile(
          collective_program(CollectiveKind::all_reduce, CollectiveAlgorithm::ring, replicas, 1, 8).program,
          machine);
    });
  };
  EXPECT_EQ(compile(2, toy_chips(4, 1)), "(no error)");
  EXPECT_THAT(
      compile(3, toy_chips(4, 1)),
      HasSubstr("3 replicas of a program need a machine of whole chips, equally many for each; 'toy' has "
                "4 chips of 4 tiles in all"));
  EXPECT_THAT(compile(2, testing::toy_machine(4)), HasSubstr("1 chip of 4 tiles"));
  EXPECT_THAT(compile(2, toy_chips(6, 1)),
              HasSubstr("a replica of 3 chips of 'toy' is not whole rows of 2 chips"));
  Program none;
  none.set_replicas(0);
  EXPECT_USAGE_ERROR("0 replicas of a program need a machine of whole chips",
                     compiler::compile(none, toy_chips(4, 1)));
}

TEST(Replicas, CountWhatCollectivesTake) {
  const machine::Machine machine = toy_chips(4, 1);
  const auto memory = [&](CollectiveAlgorithm algorithm) {
    return compiler::estimate(collective_program(CollectiveKind::all_reduce, algorithm, 4, 1, 100).program,
                              machine)
        .memory;
  };
  const compiler::MemoryReport ring = memory(CollectiveAlgorithm::ring),
                               tree = memory(CollectiveAlgorithm::tree);
  EXPECT_EQ(ring.total.at("temporaries"), 100u);  // a chunk
  EXPECT_EQ(tree.total.at("temporaries"), 400u);
  EXPECT_EQ(ring.total.at("exchange code"), 2 * (36u + 2 * 4u));  // of rounds that add, and that pass on
  EXPECT_EQ(tree.total.at("exchange code"), 4 * (36u + 2 * 4u));
}

TEST(Replicas, AreKeptInFiles) {
  const machine::Machine machine = toy_chips(4, 1);
  const CollectiveProgram b =
      collective_program(CollectiveKind::all_reduce, CollectiveAlgorithm::ring, 4, 1, 100);
  const auto executable = compiler::compile(b.program, machine);
  const std::string file = (std::filesystem::path(::testing::TempDir()) / "replicas.exe").string();
  compiler::save(*executable, file);
  const auto find = [](std::string_view name) -> const program::Codelet* {
    return name == "add" ? &testing::add_codelet : nullptr;
  };
  const auto loaded = compiler::load(file, machine, find);
  EXPECT_EQ(loaded->program->replicas(), 4u);
  EXPECT_EQ(to_string(*loaded->program), to_string(b.program));
  EXPECT_EQ(Engine(loaded).run({}, {.dry = true}).cycles.at,
            Engine(executable).run({}, {.dry = true}).cycles.at);
  compiler::Executable elsewhere = *executable;
  elsewhere.collectives.at(0).chips.at(0) = 1;
  compiler::save(elsewhere, file);
  EXPECT_ERROR("costs of tiles or chips that its machine lacks", compiler::load(file, machine, find));
  machine::Machine ring = machine;
  ring.topology = machine::Topology::all_to_all;
  EXPECT_ERROR("topology", compiler::load(file, ring, find));
  std::filesystem::remove(file);
}

TEST(Replicas, ArePrinted) {
  const std::string text =
      to_string(collective_program(CollectiveKind::all_gather, CollectiveAlgorithm::tree, 4, 1, 100).program);
  EXPECT_THAT(text, HasSubstr("main of 4 replicas\n  all-gather exchange by tree\n    part → whole\n"));
  EXPECT_THAT(to_string(with_work(0, true).program),
              HasSubstr("  all-reduce exchange by ring\n    whole\n  beside it\n    execute fill"));
}

}  // namespace
}  // namespace tessera::engine
