// The commands of the tool. Each registers itself with the parser and returns the function that runs it.
#pragma once

#include <cstdint>
#include <functional>

namespace CLI {
class App;
}

namespace tessera::cli {

/// Options common to all commands.
struct CommonOptions {
  bool json = false;
  uint32_t threads = 0;
};

/// Runs a parsed command; returns the tool's exit status.
using Command = std::function<int()>;

/// Adds --json, --threads and --isa.
void add_common_options(CLI::App& command, bool& json, uint32_t& threads);
inline void add_common_options(CLI::App& command, CommonOptions& options) {
  add_common_options(command, options.json, options.threads);
}

Command add_spmm_command(CLI::App& app);
Command add_inspect_command(CLI::App& app);
Command add_machines_command(CLI::App& app);
Command add_pack_command(CLI::App& app);
Command add_reproduce_command(CLI::App& app);
Command add_benchmark_command(CLI::App& app);
Command add_run_command(CLI::App& app);
Command add_pipeline_command(CLI::App& app);
Command add_train_command(CLI::App& app);
// Commands of `tessera train`.
Command add_train_bert_command(CLI::App& train);
Command add_train_resnet_command(CLI::App& train);

}  // namespace tessera::cli
