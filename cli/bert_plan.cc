#include "cli/bert_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>
#include <tessera/pretraining_plan.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "report/axis.h"
#include "report/table.h"
#include "report/training_report.h"
#include "train/settings.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;
using report::count_text;
using report::Unit;

/// Options that a plan chooses.
constexpr std::array<const char*, 13> kDivisionOptions = {
    "--micro-batches",      "--replicas",  "--stages",          "--head-layers",
    "--pipeline",           "--recompute", "--head-slices",     "--shard",
    "--shard-weights",      "--offload",   "--offload-weights", "--offload-gradients",
    "--offload-activations"};

/// The flags among them that divide large values or move them to streaming memory.
constexpr std::array<std::pair<const char*, std::optional<uint64_t> PretrainingSettings::*>, 6> kPlaces = {{
    {"--shard", &PretrainingSettings::shard_from},
    {"--shard-weights", &PretrainingSettings::shard_weights_from},
    {"--offload", &PretrainingSettings::offload_from},
    {"--offload-weights", &PretrainingSettings::offload_weights_from},
    {"--offload-gradients", &PretrainingSettings::offload_gradients_from},
    {"--offload-activations", &PretrainingSettings::offload_activations_from},
}};

/// Layers, or their attention and feed-forward parts.
std::string parts_text(uint32_t attention, uint32_t feed_forward) {
  return attention == feed_forward ? fmt::format("{}", attention)
                                   : fmt::format("{}/{}", attention, feed_forward);
}

bool recomputes(const PretrainingSettings& s) { return s.recompute || s.memory_budget; }

/// The options for this division of a step.
std::string division_options(const PretrainingSettings& s) {
  const bool is_whole = s.stage_feed_forwards.empty();
  std::vector<std::string> stages;
  for (size_t i = 0; i < s.stage_layers.size(); ++i)
    stages.push_back(parts_text(s.stage_layers[i], is_whole ? s.stage_layers[i] : s.stage_feed_forwards[i]));
  if (stages.empty()) stages.push_back(fmt::format("{}", s.stages));
  const std::string head = parts_text(s.head_layers, is_whole ? s.head_layers : s.head_feed_forwards);
  std::string text = fmt::format("--replicas {} --stages {}{} --pipeline {} --micro-batches {}", s.replicas,
                                 fmt::join(stages, ","), head == "0" ? "" : " --head-layers " + head,
                                 name_of(s.pipeline), s.micro_batches);
  if (s.head_slices > 1) text += fmt::format(" --head-slices {}", s.head_slices);
  if (s.recompute) text += " --recompute";
  if (const auto bytes = s.memory_budget)
    text += *bytes == graph::kMachineMemory ? " --recompute=fit" : fmt::format(" --recompute={}", *bytes);
  for (const auto& [flag, from] : kPlaces)
    if (s.*from) text += fmt::format(" {}", flag);
  return text;
}

/// The text as an argument of a shell.
std::string quoted_argument(const std::string& text) {
  const auto is_plain = [](char c) {
    constexpr std::string_view kPlain = "_./,:=+-";
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

/// The command that trains with a division, and with all other options of `command`.
std::string training_command(const BertRequest& r, const PretrainingSettings& s, const CLI::App& command) {
  std::string text = "tessera train bert";
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    const bool is_left_out =
        name.starts_with("--plan") || name == "--json" || r.configured.contains(name) ||
        std::ranges::any_of(kDivisionOptions, [&](const char* of_plan) { return name == of_plan; });
    if (option->count() == 0 || is_left_out) continue;
    const std::string value = option->results().back();
    if (option->get_expected_max() != 0)
      text += fmt::format(" {} {}", name, quoted_argument(value));
    else
      text += value == "true" ? " " + name : fmt::format(" {}={}", name, value);
  }
  text += " " + division_options(s);
  // Options from a file apply unless the command overrides them.
  if (!r.head_layers.is_none() && s.head_layers + s.head_feed_forwards == 0) text += " --head-layers 0";
  if (r.configured.contains("--plan")) text += " --plan=false";
  if (r.settings.head_slices > 1 && s.head_slices == 1) text += " --head-slices 1";
  if (recomputes(r.settings) && !recomputes(s)) text += " --recompute=false";
  for (const auto& [flag, from] : kPlaces)
    if (r.settings.*from && !(s.*from)) text += fmt::format(" {}=false", flag);
  return text;
}

ordered_json json_of_cost(const std::optional<PretrainingCost>& cost) {
  if (!cost) return nullptr;
  ordered_json json = {{"seconds", nullptr},
                       {"fullest_tile_bytes", nullptr},
                       {"streaming_bytes", nullptr},
                       {"lacking_tile_bytes", nullptr},
                       {"lacking_streaming_bytes", nullptr},
                       {"fits", cost->fits}};
  if (cost->has_figures()) {
    json["seconds"] = cost->seconds;
    json["fullest_tile_bytes"] = cost->fullest_tile_bytes;
    json["streaming_bytes"] = cost->streaming_bytes;
    json["lacking_tile_bytes"] = cost->lacking_tile_bytes;
    json["lacking_streaming_bytes"] = cost->lacking_streaming_bytes;
  }
  if (!cost->overflow.empty()) json["overflow"] = cost->overflow;
  return json;
}

ordered_json json_of_division(const PretrainingDivision& division) {
  const PretrainingSettings& s = division.settings;
  return {{"replicas", s.replicas},
          {"stages", s.stages},
          {"stage_layers", s.stage_layers},
          {"stage_feed_forwards", s.stage_feed_forwards},
          {"head_layers", s.head_layers},
          {"head_feed_forwards", s.head_feed_forwards},
          {"pipeline", name_of(s.pipeline)},
          {"micro_batches", s.micro_batches},
          {"head_slices", s.head_slices},
          {"recompute", train::recomputation_json(s)},
          {"shard", s.shard_from.has_value()},
          {"shard_weights", s.shard_weights_from.has_value()},
          {"offload", s.offload_from.has_value()},
          {"offload_weights", s.offload_weights_from.has_value()},
          {"offload_gradients", s.offload_gradients_from.has_value()},
          {"offload_activations", s.offload_activations_from.has_value()},
          {"extrapolated", json_of_cost(division.extrapolated)},
          {"estimated", json_of_cost(division.estimated)}};
}

ordered_json json_of_divisions(const std::vector<PretrainingDivision>& divisions) {
  ordered_json list = ordered_json::array();
  for (const PretrainingDivision& division : divisions) list.push_back(json_of_division(division));
  return list;
}

std::string json_of_plan(const BertRequest& r, const PretrainingPlan& plan, const CLI::App& command) {
  ordered_json result = {{"plan", true},
                         {"machine", r.machine},
                         {"stopped", plan.stopped},
                         {"out_of_time", plan.out_of_time},
                         {"tile_bytes", plan.tile_bytes},
                         {"considered", plan.considered},
                         {"small_estimates", plan.small_estimates},
                         {"frontier", json_of_divisions(plan.frontier)},
                         {"estimated", json_of_divisions(plan.estimated)},
                         {"chosen", nullptr}};
  if (plan.chosen) {
    const PretrainingDivision& chosen = plan.estimated[*plan.chosen];
    result["chosen"] = json_of_division(chosen);
    result["train"] = training_command(r, chosen.settings, command);
  } else {
    result["overflow"] = plan.overflow;
  }
  return json_text({{"schema", 1}, {"command", "train bert"}, {"results", {result}}}) + "\n";
}

/// "yes", or the bytes that the division lacks.
std::string fit_text(const PretrainingCost& cost) {
  if (cost.fits) return "yes";
  if (cost.lacking_tile_bytes > 0) return fmt::format("lacks {}", count_text(cost.lacking_tile_bytes));
  if (cost.lacking_streaming_bytes > 0)
    return fmt::format("lacks {} of streaming memory", count_text(cost.lacking_streaming_bytes));
  return "no";
}

/// Step, fullest tile, and whether it fits, as far as they are known.
std::vector<std::string> cells_of(const std::optional<PretrainingCost>& cost) {
  if (!cost) return {"", "", ""};
  if (!cost->has_figures()) return {"", "", "no"};
  return {report::value_text(cost->seconds, Unit::seconds), count_text(cost->fullest_tile_bytes),
          fit_text(*cost)};
}

std::string frontier_text(const PretrainingPlan& plan) {
  report::Table table({"step", "fullest tile", "fits", "division"}, {2, 3});
  for (const PretrainingDivision& division : plan.frontier) {
    std::vector<std::string> row = cells_of(division.extrapolated);
    row.push_back(division_options(division.settings));
    table.add(std::move(row));
  }
  return table.text();
}

std::string estimates_text(const PretrainingPlan& plan) {
  report::Table table({"step", "fullest tile", "fits", "extrapolated step", "fullest tile", "division"},
                      {2, 5});
  for (const PretrainingDivision& division : plan.estimated) {
    const std::vector<std::string> guess = cells_of(division.extrapolated);
    std::vector<std::string> row = cells_of(division.estimated);
    row.insert(row.end(), {guess[0], guess[1], division_options(division.settings)});
    table.add(std::move(row));
  }
  std::string text = table.text();
  for (const PretrainingDivision& division : plan.estimated)
    if (!division.estimated->has_figures())
      text += fmt::format("{}: {}\n", division_options(division.settings), division.estimated->overflow);
  return text;
}

std::string plan_text(const BertRequest& r, const PretrainingPlan& plan, const Machine& machine,
                      const CLI::App& command) {
  std::string text = fmt::format(
      "BERT-{}, numbers {}, {}: {} packs of {} tokens per step\n{}\n"
      "{} divisions, from estimates of {} small networks; a tile has {} bytes\n",
      r.size, r.settings.numbers, name_of(r.settings.optimizer), count_text(r.batches[0]), r.lengths[0],
      report::machine_text(machine), count_text(plan.considered), plan.small_estimates,
      count_text(plan.tile_bytes));
  if (!plan.frontier.empty())
    text += "\nExtrapolated: the Pareto frontier of time and memory\n" + frontier_text(plan);
  if (!plan.estimated.empty()) text += "\nEstimated as whole networks:\n" + estimates_text(plan);
  if (!plan.chosen) return text;
  const PretrainingDivision& chosen = plan.estimated[*plan.chosen];
  return text + fmt::format("\nThe fastest division that fits{}, with {} per step as estimated:\n  {}\n",
                            plan.stopped || plan.out_of_time ? " so far" : "",
                            report::value_text(chosen.estimated->seconds, Unit::seconds),
                            training_command(r, chosen.settings, command));
}

}  // namespace

void check_plan_options(const CLI::App& command) {
  for (const char* option : {"--estimate", "--checkpoint", "--resume", "--allow-different-bits", "--init",
                             "--save", "--report", "--trace", "--print"})
    if (command.count(option) != 0)
      throw UsageError(fmt::format(
          "--plan only searches, and trains and reports nothing; leave out --plan or {}", option));
}

int show_plan(const BertRequest& r, const Machine& machine, const TextSplit& text, const CLI::App& command) {
  std::optional<Progress> bar;
  const Interruption interruption("estimate");
  const bool divides =
      std::ranges::any_of(kDivisionOptions, [&](const char* option) { return command.count(option) != 0; });
  const PretrainingPlan plan =
      plan_pretraining(settings_of(r), text, machine,
                       {.estimates = r.plan_estimates,
                        .compare = divides,
                        .threads = r.threads,
                        .time_limit = r.plan_time_limit,
                        .progress = [&](size_t done, size_t most, const std::string& next) {
                          if (!bar) bar.emplace(most);
                          bar->show(done, next);
                          return Interruption::pending() == 0;
                        }});
  bar.reset();
  fmt::print("{}", r.json ? json_of_plan(r, plan, command) : plan_text(r, plan, machine, command));
  if (plan.stopped) {
    complain(fmt::format("interrupted: {} divisions were considered, and {} were estimated as whole networks",
                         plan.considered, plan.estimated.size()));
    return 128 + Interruption::pending();
  }
  if (plan.chosen) return 0;
  complain(plan.overflow + (plan.out_of_time ? "; the search was out of time (--plan-time-limit)" : ""));
  return 1;
}

}  // namespace tessera::cli
