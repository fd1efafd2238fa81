// The rounds of collectives, and programs with them that are refused.
#include "program/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "support/error_of.h"
#include "support/toy_codelets.h"

namespace tessera::program {
namespace {

using ::testing::HasSubstr;

constexpr CollectiveKind kKinds[] = {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                     CollectiveKind::scatter, CollectiveKind::all_gather};
constexpr CollectiveAlgorithm kAlgorithms[] = {CollectiveAlgorithm::ring, CollectiveAlgorithm::tree};

/// The replicas whose contributions to each chunk a replica has.
using Held = std::vector<std::vector<std::multiset<uint32_t>>>;

Held follow(CollectiveKind kind, CollectiveAlgorithm algorithm, uint32_t replicas) {
  Held held(replicas, std::vector<std::multiset<uint32_t>>(replicas));
  for (uint32_t r = 0; r < replicas; ++r)
    for (uint32_t chunk = 0; chunk < replicas; ++chunk)
      if (sums(kind) || chunk == r) held[r][chunk] = {r};
  for (const Round& round : rounds_of(kind, algorithm, replicas)) {
    std::set<uint32_t> senders, receivers;
    const Held before = held;
    for (const Message& m : round.messages) {
      EXPECT_TRUE(senders.insert(m.from).second);
      EXPECT_TRUE(receivers.insert(m.to).second);
      EXPECT_LE(m.first + m.chunks, replicas);
      for (uint32_t chunk = m.first; chunk < m.first + m.chunks; ++chunk) {
        // No replica changes data that it sends in the same round: messages may pass one after the other.
        EXPECT_EQ(held[m.from][chunk], before[m.from][chunk]);
        if (round.adds)
          held[m.to][chunk].insert(before[m.from][chunk].begin(), before[m.from][chunk].end());
        else
          held[m.to][chunk] = before[m.from][chunk];
      }
    }
  }
  return held;
}

TEST(Collectives, BringTogetherWhatTheyShould) {
  for (const CollectiveKind kind : kKinds)
    for (const CollectiveAlgorithm algorithm : kAlgorithms)
      for (uint32_t replicas = 1; replicas <= 17; ++replicas) {
        SCOPED_TRACE(::testing::Message() << name_of(kind) << " " << name_of(algorithm) << " " << replicas);
        std::multiset<uint32_t> all;
        for (uint32_t r = 0; r < replicas; ++r) all.insert(r);
        const Held held = follow(kind, algorithm, replicas);
        for (uint32_t r = 0; r < replicas; ++r)
          for (uint32_t chunk = 0; chunk < replicas; ++chunk) {
            const bool is_all =
                kind == CollectiveKind::all_reduce || (kind == CollectiveKind::reduce_scatter && chunk == r);
            EXPECT_TRUE(!is_all || held[r][chunk] == all);
            EXPECT_TRUE(kind != CollectiveKind::all_gather ||
                        held[r][chunk] == std::multiset<uint32_t>{chunk});
          }
      }
}

TEST(Collectives, TakeAsManyRoundsAsTheirAlgorithms) {
  EXPECT_EQ(rounds_of(CollectiveKind::all_reduce, CollectiveAlgorithm::ring, 16).size(), 30u);
  EXPECT_EQ(rounds_of(CollectiveKind::all_reduce, CollectiveAlgorithm::tree, 16).size(), 8u);
  EXPECT_EQ(rounds_of(CollectiveKind::reduce_scatter, CollectiveAlgorithm::ring, 5).size(), 4u);
  EXPECT_TRUE(rounds_of(CollectiveKind::all_reduce, CollectiveAlgorithm::ring, 1).empty());
}

TEST(Collectives, ExchangeInGroups) {
  Collective collective{"c", CollectiveKind::all_reduce, CollectiveAlgorithm::tree, nullptr, {}, 2};
  const std::vector<Round> rounds = rounds_of(collective, 6);
  ASSERT_EQ(rounds.size(), 2u);
  std::set<std::pair<uint32_t, uint32_t>> ways;
  for (const Message& m : rounds[0].messages) ways.emplace(m.from, m.to);
  EXPECT_EQ(ways, (std::set<std::pair<uint32_t, uint32_t>>{{1, 0}, {3, 2}, {5, 4}}));
  EXPECT_EQ(group_size(collective, 6), 2u);
  collective.group = 0;
  EXPECT_EQ(group_size(collective, 6), 6u);
}

/// A program of two replicas with one collective.
struct Case {
  Case() {
    program.set_replicas(2);
    whole = program.add({"whole", Type::f32, 2, 4, Role::temporary, map_to_tile(2, 4, 0), {}});
    part = program.add({"part", Type::f32, 1, 4, Role::temporary, map_to_tile(1, 4, 0), {}});
  }
  std::string error(Collective collective) {
    program.set_main(program.collect(std::move(collective)));
    return test::error_of([&] { verify(program, 2, false); });
  }

  Program program;
  VariableId whole = 0, part = 0;
  const Codelet* add = &tessera::testing::add_codelet;
};

TEST(Collectives, NeedWhatTheirKindNeeds) {
  constexpr auto ring = CollectiveAlgorithm::ring, tree = CollectiveAlgorithm::tree;
  constexpr auto reduce = CollectiveKind::all_reduce, scatter = CollectiveKind::reduce_scatter,
                 gather = CollectiveKind::all_gather;
  EXPECT_EQ(Case().error({"c", reduce, ring, Case().add, {{0, {}, 1}}}), "(no error)");
  EXPECT_EQ(Case().error({"c", gather, ring, nullptr, {{0, 1, {}}}}), "(no error)");
  EXPECT_EQ(Case().error({"c", scatter, ring, Case().add, {{0, 1, 1}}}), "(no error)");
  EXPECT_EQ(Case().error({"c", CollectiveKind::scatter, ring, nullptr, {{0, 1, {}}}}), "(no error)");
  EXPECT_THAT(Case().error({"c", reduce, ring, Case().add, {{0, {}, {}}}}),
              HasSubstr("collective 'c': 'whole' needs a buffer"));
  EXPECT_THAT(Case().error({"c", reduce, ring, Case().add, {{0, 1, 1}}}),
              HasSubstr("'whole' has no use for a part"));
  EXPECT_THAT(Case().error({"c", gather, ring, nullptr, {{0, {}, {}}}}), HasSubstr("'whole' needs a part"));
  EXPECT_THAT(Case().error({"c", reduce, tree, Case().add, {{0, {}, 1}}}),
              HasSubstr("box 0 of 'part' has 4 elements; beside 8 of 'whole' and 2 replicas it needs 8"));
  EXPECT_THAT(Case().error({"c", reduce, ring, nullptr, {{0, {}, 1}}}),
              HasSubstr("collective 'c' needs a codelet of three fields that adds"));
  EXPECT_THAT(Case().error({"c", reduce, ring, &tessera::testing::fill_codelet, {{0, {}, 1}}}),
              HasSubstr("needs a codelet of three fields"));
  EXPECT_THAT(Case().error({"c", gather, ring, nullptr, {{7, 1, {}}}}),
              HasSubstr("it names variable 7 of 2"));
}

TEST(Collectives, HaveWholeGroups) {
  Case c;
  c.program.set_replicas(4);
  EXPECT_THAT(
      c.error(
          {"c", CollectiveKind::all_reduce, CollectiveAlgorithm::ring, c.add, {{c.whole, {}, c.part}}, 3}),
      HasSubstr("collective 'c' has groups of 3 replicas, of which there are 4"));
}

TEST(Collectives, LieBesideEachOther) {
  Case other;
  const VariableId elsewhere =
      other.program.add({"elsewhere", Type::f32, 1, 4, Role::temporary, map_to_tile(1, 4, 1), {}});
  EXPECT_THAT(other.error({"c",
                           CollectiveKind::all_gather,
                           CollectiveAlgorithm::ring,
                           nullptr,
                           {{other.whole, elsewhere, {}}}}),
              HasSubstr("box 0 of 'elsewhere' lies on another tile than box 0 of 'whole'"));
  Case thirds;
  thirds.program.set_replicas(3);
  EXPECT_THAT(thirds.error({"c",
                            CollectiveKind::all_gather,
                            CollectiveAlgorithm::ring,
                            nullptr,
                            {{thirds.whole, thirds.part, {}}}}),
              HasSubstr("box 0 of 'part' has 4 elements; beside 8 of 'whole' and 3 replicas it needs 3"));
  Case typed;
  const VariableId half =
      typed.program.add({"half", Type::f16, 1, 4, Role::temporary, map_to_tile(1, 4, 0), {}});
  EXPECT_THAT(
      typed.error(
          {"c", CollectiveKind::all_gather, CollectiveAlgorithm::ring, nullptr, {{typed.whole, half, {}}}}),
      HasSubstr("'half', the part of 'whole', has another type or number of boxes"));
  Case read_only;
  const VariableId input =
      read_only.program.add({"input", Type::f32, 2, 4, Role::input, map_to_tile(2, 4, 0), {}});
  EXPECT_THAT(read_only.error({"c",
                               CollectiveKind::all_reduce,
                               CollectiveAlgorithm::ring,
                               read_only.add,
                               {{input, {}, read_only.part}}}),
              HasSubstr("'input' is read only"));
}

TEST(Collectives, AreLeftAloneByWhatRunsBesideThem) {
  const auto error_of = [](uint32_t touched) {
    Case c;
    const VariableId other =
        c.program.add({"other", Type::f32, 1, 4, Role::temporary, map_to_tile(1, 4, 0), {}});
    const VariableId variables[] = {c.whole, c.part, other};
    const StepId fill =
        tessera::testing::execute(c.program, tessera::testing::fill_codelet, {variables[touched]}, {1});
    const StepId call = c.program.add(Step{Call{c.program.add(Function{"f", fill})}});
    const CollectiveId sum = c.program.add(Collective{
        "c", CollectiveKind::all_reduce, CollectiveAlgorithm::ring, c.add, {{c.whole, {}, c.part}}});
    c.program.set_main(c.program.add(Step{Collect{sum, c.program.sequence({call})}}));
    return test::error_of([&] { verify(c.program, 2, false); });
  };
  EXPECT_THAT(error_of(0), HasSubstr("collective 'c': 'whole' is touched beside it"));
  EXPECT_THAT(error_of(1), HasSubstr("collective 'c': 'part' is touched beside it"));
  EXPECT_EQ(error_of(2), "(no error)");
}

TEST(Collectives, MustExistForTheirSteps) {
  Program program;
  program.set_main(program.add(Step{Collect{3}}));
  EXPECT_ERROR("collective 3 does not exist", verify(program, 1, false));
  Program none;
  none.set_main(none.sequence({}));
  none.set_replicas(0);
  EXPECT_ERROR("it has 0 replicas", verify(none, 1, false));
}

}  // namespace
}  // namespace tessera::program
