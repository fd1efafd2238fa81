#include "cli/train_options.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/option_parsing.h"
#include "cli/parse.h"
#include "io/atomic_file.h"
#include "train/settings.h"

namespace tessera::cli {
namespace {

constexpr uint32_t kMostTiles = 4096;

graph::Betas parse_betas(const std::string& text) {
  const std::vector<std::string> betas = parse_names(text);
  if (betas.size() != 2) throw invalid_value("--betas", text, "expected two numbers, such as 0.9,0.999");
  return {parse_real("--betas", betas[0]), parse_real("--betas", betas[1])};
}

std::vector<double> parse_fractions(const std::string& text) {
  std::vector<double> fractions;
  for (const std::string& each : parse_names(text)) fractions.push_back(parse_real("--lr-decay-at", each));
  return fractions;
}

/// "*.weight=state+shard,*.bias=none"
std::vector<graph::ParameterGroup> parse_places(const std::string& text) {
  using graph::ParameterGroup;
  const std::map<std::string, std::optional<bool> ParameterGroup::*> settings = {
      {"gradients", &ParameterGroup::offload_gradients},
      {"shard", &ParameterGroup::shard},
      {"shard-gradients", &ParameterGroup::shard_gradients},
      {"shard-weights", &ParameterGroup::shard_weights},
      {"state", &ParameterGroup::offload},
      {"weights", &ParameterGroup::offload_weights}};
  std::vector<ParameterGroup> groups;
  for (const std::string& item : parse_names(text)) {
    const size_t end = item.rfind('=');
    if (end == std::string::npos || end == 0)
      throw invalid_value("--place", item, "expected NAMES=WHAT, such as *.bias=none");
    ParameterGroup& group = groups.emplace_back();
    group.names = {item.substr(0, end)};
    for (const auto& [what, setting] : settings) group.*setting = false;
    const std::string placed = item.substr(end + 1);
    if (placed == "none") continue;
    for (const std::string& what : parse_names(placed, '+')) {
      const auto found = settings.find(what);
      if (found == settings.end())
        throw invalid_value("--place", what,
                            "choose from none, or gradients, shard, shard-gradients, shard-weights, state, "
                            "weights, with + between several");
      group.*found->second = true;
    }
  }
  return groups;
}

/// "true", "false", "fit", or bytes.
void set_recomputation(PlacementSettings& s, const std::string& text) {
  s.recompute = text == "true";
  s.memory_budget.reset();
  if (text == "true" || text == "false") return;
  s.memory_budget = graph::kMachineMemory;
  if (text == "fit") return;
  s.memory_budget = parse_number<uint64_t>(text);
  if (s.memory_budget.value_or(0) == 0)
    throw invalid_value("--recompute", text, "expected true, false, fit, or a number of bytes above 0");
}

}  // namespace

void add_optimizer_options(CLI::App& command, LearningSettings& s, const std::string& by_default) {
  add(command, "--optimizer", s.optimizer, optimizer_named,
      fmt::format("sgd, momentum, nesterov, adam, adamw, lamb or lars ({})", by_default));
  add_real(command, "--momentum", s.momentum, "Momentum, for momentum, nesterov and lars (default: 0.9)");
  add(command, "--betas", s.betas, parse_betas, "Betas, for adam, adamw and lamb (default: 0.9,0.999)");
  command.add_flag("--bias-correction,!--no-bias-correction", s.bias_correction,
                   "Correct the bias of the moments of adam, adamw and lamb (default)");
  add_real(command, "--trust-coefficient", s.trust_coefficient,
           "Trust coefficient, for lars (default: 0.001)");
  add_real(command, "--weight-decay", s.weight_decay,
           fmt::format("Weight decay, decoupled for adamw and lamb (default: {})", s.weight_decay));
  add(
      command, "--exclude", s.excluded, [](const std::string& text) { return parse_names(text); },
      "Names of parameters without weight decay and trust ratio; * stands for any characters");
  add_real(command, "--lr", s.lr, fmt::format("Learning rate (default: {})", s.lr));
  add(command, "--lr-schedule", s.lr_schedule.kind, graph::schedule_named,
      fmt::format(
          "Learning rate after the warm-up steps: constant, linear, polynomial, cosine or step (default: {})",
          name_of(s.lr_schedule.kind)));
  add_count(command, "--warmup", s.lr_schedule.warmup,
            "Number of first steps, in which the learning rate rises linearly from 0 (default: 0)");
  add_real(command, "--lr-power", s.lr_schedule.power, "Exponent of the polynomial schedule (default: 1)");
  add_real(command, "--lr-end", s.lr_schedule.end,
           "Learning rate at the end, as a fraction of --lr (default: 0)");
  add(command, "--lr-decay-at", s.lr_schedule.decay_at, parse_fractions,
      "Fractions of all steps after which the step schedule lowers the learning rate (default: 0.5,0.75)");
  add_real(command, "--lr-decay", s.lr_schedule.decay,
           "Factor by which the step schedule multiplies the learning rate (default: 0.1)");
  add_real(command, "--clip-norm", s.clip_norm, "Scale gradients so that their norm is at most this");
  add_count(command, "--epochs", s.epochs,
            fmt::format("Passes over the training data (default: {})", s.epochs));
  add_seed(command, "--seed", s.seed, "Seed of all random choices");
}

double single_density(const std::string& text) {
  const std::vector<double> densities = parse_densities(text);
  if (densities.size() != 1) throw invalid_value("--density", text, "expected one fraction, such as 1/16");
  return densities[0];
}

void add_drop_grow_options(CLI::App& command, DropGrowSchedule& s, const std::string& what) {
  add(command, "--schedule", s.kind, drop_grow_named,
      fmt::format("How {} change: none, set (grow at random) or rigl (by gradient, default)", what));
  add_real(command, "--change", s.change,
           "Fraction of the blocks that is replaced at the beginning; decays along a cosine (default: 0.3)");
  add_count(command, "--every", s.every, "Steps between replacements (default: 100)");
  add_real(command, "--until", s.until,
           "Fraction of all steps after which patterns no longer change (default: 0.75)");
}

void add_large_values_flag(CLI::App& command, const std::string& name, std::optional<uint64_t>& least,
                           const std::string& help) {
  command.add_flag_callback(
      fmt::format("--{0},!--no-{0}", name), [&least] { least = kLargeValue; }, help);
}

void add_placement_options(CLI::App& command, PlacementSettings& s, const std::string& what) {
  add_count(command, "--micro-batches", s.micro_batches,
            "Number of parts into which a batch is divided to take less memory (default: 1)");
  const std::string recomputation = fmt::format(
      "Keep only the inputs of {} for the backward pass, and compute the other values again; =fit: only as "
      "far as the machine's memory requires; =BYTES: only as far as this budget for each tile, or for the "
      "host, requires",
      what);
  command.add_flag("--recompute,!--no-recompute", recomputation)->each([&s](const std::string& text) {
    set_recomputation(s, text);
  });
  command.add_flag("--overlap,!--no-overlap", s.overlap,
                   "Sum gradients over replicas while the rest of the backward pass is computed (default)");
  add_large_values_flag(
      command, "shard", s.shard_from,
      fmt::format("Divide the optimizer's state of parameters of at least {:L} elements among the replicas",
                  kLargeValue));
  add_large_values_flag(
      command, "shard-weights", s.shard_weights_from,
      "Divide these parameters themselves, and gather them for each operation or layer that takes them");
  add_large_values_flag(
      command, "shard-gradients", s.shard_gradients_from,
      "Divide the sums of their gradients over micro-batches, and the optimizer's state as with --shard; "
      "gradients of each micro-batch are summed over the replicas");
  add_large_values_flag(
      command, "offload", s.offload_from,
      fmt::format(
          "Keep the optimizer's state of parameters of at least {:L} elements in the streaming memory "
          "of a machine's chips",
          kLargeValue));
  add_large_values_flag(
      command, "offload-weights", s.offload_weights_from,
      "Keep these parameters in streaming memory too, and bring them to the tiles for each operation or "
      "layer that takes them");
  add_large_values_flag(command, "offload-gradients", s.offload_gradients_from,
                        "Keep the sums of their gradients over micro-batches in streaming memory too");
  command.add_flag(
      "--prefetch", s.prefetch,
      "Fetch parameters and state from streaming memory while the operations before are computed; tiles "
      "then need memory for the operands of two operations");
  add(command, "--place", s.groups, parse_places,
      "Choose by name, whatever the sizes of parameters, what lies in streaming memory (state, weights, "
      "gradients) or is divided among the replicas (shard, shard-weights, shard-gradients), or none of "
      "these, such as embeddings.*=weights+state,*.bias=none; * stands for any characters");
}

void check_sums(const PlacementSettings& s) {
  if (s.micro_batches > 1) return;
  const auto check = [&](bool is_asked_for, std::optional<bool> graph::ParameterGroup::*of_group,
                         const char* option, const char* placed) {
    const bool is_placed = std::ranges::any_of(
        s.groups, [&](const graph::ParameterGroup& group) { return (group.*of_group).value_or(false); });
    if (is_asked_for || is_placed)
      throw UsageError(
          fmt::format("{} (or {} in --place) is for --micro-batches of more than one; add the option, or "
                      "leave {} out",
                      option, placed, option));
  };
  check(s.offload_gradients_from.has_value(), &graph::ParameterGroup::offload_gradients,
        "--offload-gradients", "gradients");
  check(s.shard_gradients_from.has_value(), &graph::ParameterGroup::shard_gradients, "--shard-gradients",
        "shard-gradients");
}

void add_run_options(CLI::App& command, RunOptions& r, const std::string& checkpoint_help) {
  command.add_option("--machine", r.machine, machine_names() + ", or a machine's .toml file");
  add_count(command, "--tiles", r.tiles,
            "Number of tiles of the host, on which the bits of results depend (default: --threads)",
            kMostTiles);
  command.add_option("--checkpoint", r.checkpoint, checkpoint_help);
  command.add_flag("--resume", r.resume, "Continue from the checkpoint if there is one");
  command.add_flag("--allow-different-bits", r.allow_different_bits,
                   "Resume even on another machine, number of tiles or instruction set");
  command.add_flag("--estimate", r.estimate, "Only show the cost of a step: memory, and time by operation");
  command.add_option("--print", r.print, "Also show: passes (from the graph of a step to its program)")
      ->check(CLI::IsMember({"passes"}));
  command.add_option("--report", r.report, "Write a report page with losses, memory and time (.html)");
}

void refuse_unless(const CLI::App& command, bool holds, std::initializer_list<const char*> options,
                   const char* what) {
  for (const char* option : options)
    if (!holds && command.count(option) != 0)
      throw UsageError(fmt::format("{0} is for {1}; use both, or leave out {0}", option, what));
}

void check_optimizer_options(const LearningSettings& s, const CLI::App& command) {
  refuse_unless(command, train::has_momentum(s.optimizer), {"--momentum"},
                "--optimizer momentum, nesterov or lars");
  refuse_unless(command, train::has_moments(s.optimizer), {"--betas", "--bias-correction"},
                "--optimizer adam, adamw or lamb");
  refuse_unless(command, s.optimizer == OptimizerKind::lars, {"--trust-coefficient"}, "--optimizer lars");
  const graph::ScheduleKind kind = s.lr_schedule.kind;
  refuse_unless(command, kind != graph::ScheduleKind::constant && kind != graph::ScheduleKind::step,
                {"--lr-end"}, "--lr-schedule linear, polynomial or cosine");
  refuse_unless(command, kind == graph::ScheduleKind::polynomial, {"--lr-power"}, "--lr-schedule polynomial");
  refuse_unless(command, kind == graph::ScheduleKind::step, {"--lr-decay-at", "--lr-decay"},
                "--lr-schedule step");
}

void check_run_options(const RunOptions& r, const CLI::App& command) {
  refuse_unless(command, r.machine == "host", {"--tiles"}, "--machine host");
  refuse_unless(command, r.machine != "host", {"--host-io"}, "a modelled --machine");
  refuse_unless(command, !r.checkpoint.empty(), {"--resume"}, "--checkpoint FILE");
  refuse_unless(command, r.resume, {"--allow-different-bits"}, "--resume");
  if (!r.print.empty() && r.json)
    throw UsageError("--print cannot be combined with --json; leave out one of them");
  if (r.estimate && !r.checkpoint.empty())
    throw UsageError(
        "--estimate runs no step, so there is nothing to write to --checkpoint; leave out one of them");
}

void check_duration(const CLI::App& command, const std::set<std::string>& configured) {
  const bool has_epochs =
      command.count("--epochs") != 0 && (!configured.contains("--epochs") || configured.contains("--steps"));
  if (command.count("--steps") != 0 && has_epochs)
    throw UsageError("--steps and --epochs both say how long to train; leave out one of them");
}

void check_checkpoint(const RunOptions& r) {
  if (!r.checkpoint.empty() && !r.resume && std::filesystem::exists(r.checkpoint))
    throw UsageError(fmt::format("{} exists: add --resume to continue from it, or remove it", r.checkpoint));
}

void check_files(const RunOptions& r) {
  check_extension("--report", r.report, {".html", ".htm"});
  for (const std::string& file : {r.checkpoint, r.report})
    if (!file.empty()) io::require_writable(file);
}

void check_distinct(const NamedFiles& written, const NamedFiles& read) {
  NamedFiles before = read;
  for (const auto& [option, file] : written) {
    for (const auto& [earlier, other] : before)
      if (!file.empty() && !other.empty() && is_same_file(file, other))
        throw UsageError(fmt::format("{} and {} name the same file, {}; give another name to {}", earlier,
                                     option, file, option));
    before.emplace_back(option, file);
  }
}

Machine machine_for(const RunOptions& r) {
  if (r.machine == "host") return Machine::host(r.tiles != 0 ? r.tiles : r.threads);
  return Machine::find(r.machine);
}

}  // namespace tessera::cli
