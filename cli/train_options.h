// Options that trainings of all kinds of networks have.
#pragma once

#include <tessera/training.h>

#include <cstdint>
#include <initializer_list>
#include <string>

namespace CLI {
class App;
}

namespace tessera::cli {

/// Where a training runs, and what is kept of it.
struct TrainPlace {
  std::string machine = "host";
  uint32_t tiles = 0;  ///< tiles of a host; 0: one per thread
  uint32_t threads = 0;

  std::string checkpoint = {};
  bool resume = false;
  bool allow_different_bits = false;
  bool estimate = false;
  std::string print = {};  ///< "", or "passes"
  std::string report = {};
  bool json = false;
};

/// The optimizer, its learning rate, epochs and seed. Defaults are the settings'; `by_default` begins what
/// the help says of that of the optimizer.
void add_optimizer_options(CLI::App& command, LearningSettings& settings, const std::string& by_default);
/// `kept` is what the help says of --checkpoint.
void add_place_options(CLI::App& command, TrainPlace& place, const std::string& kept);

/// Throws UsageError if one of the options is given although `holds` is false: it is for `what`.
void refuse_unless(const CLI::App& command, bool holds, std::initializer_list<const char*> options,
                   const char* what);
/// Throw UsageError if options conflict, before anything is read.
void check_optimizer_options(const LearningSettings& settings, const CLI::App& command);
void check_place_options(const TrainPlace& place, const CLI::App& command);
/// Throws UsageError for a checkpoint that exists, but is not resumed.
void check_checkpoint(const TrainPlace& place);
/// Throws UsageError for files that cannot be written.
void check_files(const TrainPlace& place);

Machine machine_for(const TrainPlace& place);

}  // namespace tessera::cli
