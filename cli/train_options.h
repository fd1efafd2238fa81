// Options common to trainings of all kinds of networks.
#pragma once

#include <tessera/drop_grow.h>
#include <tessera/machine.h>
#include <tessera/training_settings.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"

namespace tessera::cli {

/// How a training runs, and the files that it writes.
struct RunOptions : CommonOptions {
  std::string machine = "host";
  uint32_t tiles = 0;  ///< tiles of a host; 0: one per thread

  std::string checkpoint = {};
  bool resume = false;
  bool allow_different_bits = false;
  bool estimate = false;
  std::string print = {};  ///< "", or "passes"
  std::string report = {};
};

/// Adds options of the optimizer, its learning rate, epochs and seed. Defaults are the settings';
/// `by_default` is the help text for the default optimizer.
void add_optimizer_options(CLI::App& command, LearningSettings& settings, const std::string& by_default);
/// The single fraction given by --density.
double single_density(const std::string& text);
/// Adds options for changes of sparse layers, which the help calls `what`.
void add_drop_grow_options(CLI::App& command, DropGrowSchedule& schedule, const std::string& what);
/// Adds a flag for values of at least kLargeValue elements, and its opposite.
void add_large_values_flag(CLI::App& command, const std::string& name, std::optional<uint64_t>& least,
                           const std::string& help);
/// Adds options for micro-batches, recomputation of parts that the help calls `what`, and the places of
/// values, but not --replicas.
void add_placement_options(CLI::App& command, PlacementSettings& settings, const std::string& what);
/// `checkpoint_help` is the help text of --checkpoint.
void add_run_options(CLI::App& command, RunOptions& options, const std::string& checkpoint_help);

/// Throws UsageError if one of the options is given although `holds` is false: it is for `what`.
void refuse_unless(const CLI::App& command, bool holds, std::initializer_list<const char*> options,
                   const char* what);
/// Throw UsageError if options conflict, before anything is read.
void check_optimizer_options(const LearningSettings& settings, const CLI::App& command);
/// Refuses offloaded or divided sums over micro-batches if there is one micro-batch.
void check_sums(const PlacementSettings& settings);
void check_run_options(const RunOptions& options, const CLI::App& command);
/// Refuses --steps together with --epochs. Steps replace epochs that only a file has `configured`.
void check_duration(const CLI::App& command, const std::set<std::string>& configured);
/// Throws UsageError for a checkpoint that exists, but is not resumed.
void check_checkpoint(const RunOptions& options);
/// Throws UsageError for files that cannot be written.
void check_files(const RunOptions& options);
/// Files, or "", with the options that name them.
using NamedFiles = std::vector<std::pair<const char*, std::string>>;
/// Throws UsageError for a file that would be written over another one.
void check_distinct(const NamedFiles& written, const NamedFiles& read = {});

Machine machine_for(const RunOptions& options);

}  // namespace tessera::cli
