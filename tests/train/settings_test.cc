// Limits of settings, and schedules.
#include "train/settings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/error_of.h"

namespace tessera::train {
namespace {

using test::error_of;
using test::says;

TEST(Settings, NamesLeadBack) {
  for (const char* name : {"dense", "static", "dynamic"}) EXPECT_EQ(name_of(layer_kind_named(name)), name);
  for (const char* name : {"sgd", "momentum", "nesterov", "adam", "adamw", "lamb", "lars"})
    EXPECT_EQ(name_of(optimizer_named(name)), name);
  for (const char* name : {"none", "set", "rigl"}) EXPECT_EQ(name_of(drop_grow_named(name)), name);
  EXPECT_TRUE(
      says(error_of<UsageError>([] { optimizer_named("lion"); }),
           "unknown optimizer 'lion' (choose from sgd, momentum, nesterov, adam, adamw, lamb, lars)"));
}

TEST(Settings, OutOfRangeNamesTheValue) {
  const auto error = [](auto change) {
    TrainingSettings settings;
    change(settings);
    return error_of<UsageError>([&] { check(settings); });
  };
  EXPECT_EQ(error([](auto&) {}), "(no error)");
  EXPECT_TRUE(says(error([](auto& s) { s.layers = {10}; }), "1 layer sizes; at least two"));
  EXPECT_TRUE(says(error([](auto& s) { s.layers = {10, 0, 2}; }), "the size of a layer is 0"));
  EXPECT_TRUE(says(error([](auto& s) { s.layers = {10, 300}; }), "the classes, is 300"));
  EXPECT_TRUE(says(error([](auto& s) { s.activation = "swish"; }), "unknown activation 'swish'"));
  EXPECT_TRUE(says(error([](auto& s) { s.dropout = 1; }), "the dropout probability is 1"));
  EXPECT_TRUE(says(error([](auto& s) { s.lr = 0; }), "the learning rate is 0; it must be positive"));
  EXPECT_TRUE(says(error([](auto& s) { s.lr = 1e39; }), "the learning rate is 1e+39; it must be positive"));
  EXPECT_TRUE(says(error([](auto& s) { s.momentum = 1; }), "the momentum is 1"));
  EXPECT_TRUE(says(error([](auto& s) { s.betas.beta2 = 1; }), "a beta is 1"));
  EXPECT_TRUE(says(error([](auto& s) { s.trust_coefficient = 0; }), "the trust coefficient is 0"));
  EXPECT_TRUE(says(error([](auto& s) { s.micro_batches = 7; }), "a batch of 50 cannot be divided into 7"));
  EXPECT_TRUE(says(error([](auto& s) { s.clip_norm = -1; }), "the clipping norm is -1"));
  const auto sparse_error = [&](auto change) {
    return error([&](auto& s) {
      s.kind = LayerKind::dynamic_sparse;
      change(s);
    });
  };
  EXPECT_TRUE(says(sparse_error([](auto& s) { s.density = 0; }), "the density is 0"));
  EXPECT_TRUE(says(sparse_error([](auto& s) { s.block_size = 5; }), "the block size is 5"));
  EXPECT_TRUE(says(sparse_error([](auto& s) { s.layers = {64, 10}; }), "none between 64 inputs and 10"));
  EXPECT_TRUE(says(sparse_error([](auto& s) { s.recipe = Recipe::paper; }), "the recipe paper is for dense"));
  EXPECT_TRUE(says(sparse_error([](auto& s) { s.drop_grow.change = 2; }), "blocks to change is 2"));
}

TEST(Settings, ReplacementsDecayAsACosine) {
  const DropGrowSchedule schedule{DropGrowKind::set, 0.4, 100, 0.75};
  EXPECT_EQ(schedule.fraction(0, 4000), 0);  // nothing is learned yet
  EXPECT_EQ(schedule.fraction(150, 4000), 0);
  EXPECT_NEAR(schedule.fraction(100, 4000), 0.4, 0.002);
  EXPECT_NEAR(schedule.fraction(1500, 4000), 0.2, 1e-12);  // half of the way to step 3,000
  EXPECT_NEAR(schedule.fraction(1000, 4000), 0.3, 1e-12);
  EXPECT_EQ(schedule.fraction(3000, 4000), 0);
  EXPECT_EQ(DropGrowSchedule{.kind = DropGrowKind::none}.fraction(100, 4000), 0);
}

TEST(Settings, JsonHasWhatBitsDependOn) {
  TrainingSettings a, b;
  b.seed = 7;
  EXPECT_NE(json_of(a).dump(), json_of(b).dump());
  b = a;
  b.kind = LayerKind::dynamic_sparse;
  b.drop_grow.every = 50;
  EXPECT_EQ(json_of(b)["every"], 50);
  EXPECT_FALSE(json_of(a).contains("density"));
  EXPECT_FALSE(json_of(a).contains("recipe"));
  a.recipe = Recipe::paper;
  EXPECT_EQ(json_of(a)["recipe"], "paper");
}

TEST(Settings, HaveNoPlacementUnlessResultsDependOnIt) {
  const auto left = [](const char* settings) {
    return without_placement(nlohmann::ordered_json::parse(settings)).dump();
  };
  EXPECT_EQ(left(R"({"lr":1,"overlap":false,"pipeline":"1f1b","offload_from":8,"prefetch":true,)"
                 R"("groups":[{"names":["*.bias"],"shard":false,"shard_gradients":false}]})"),
            R"({"lr":1})");
  EXPECT_EQ(left(R"({"shard_from":8,"groups":[{"names":["a"],"shard":false,"shard_gradients":false}]})"),
            R"({"shard_from":8,"groups":[{"names":["a"],"shard":false}]})");
  // Which gradients are whole says what groups say of state too.
  const char* divided =
      R"({"pipeline":"1f1b","shard_gradients_from":8,"groups":[{"names":["a"],"shard":false}]})";
  EXPECT_EQ(left(divided), divided);
  const char* by_name = R"({"pipeline":"1f1b","groups":[{"names":["a"],"shard_gradients":true}]})";
  EXPECT_EQ(left(by_name), by_name);
}

}  // namespace
}  // namespace tessera::train
