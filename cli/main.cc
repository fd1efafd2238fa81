#include <fmt/format.h>
#include <malloc.h>
#include <tessera/error.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/isa.h"
#include "cli/commands.h"
#include "cli/option_parsing.h"
#include "cli/output.h"
#include "cli/usage.h"
#include "io/atomic_file.h"

namespace tessera::cli {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;

/// Exits immediately, as shells expect: 130 after Ctrl-C. Calls only async-signal-safe functions.
void on_interrupt(int signal) {
  // Another thread may receive the next signal meanwhile; it waits for the process to end.
  static std::atomic_flag leaving;
  while (leaving.test_and_set()) pause();
  io::remove_unfinished_files();
  constexpr char message[] = "\r\033[Kinterrupted\n";
  const char* text = isatty(STDERR_FILENO) == 1 ? message : "interrupted\n";
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, text, text == message ? sizeof(message) - 1 : 12);
  _exit(128 + signal);
}

/// Accessing a truncated part of a mapped file ends the process; say why.
void on_lost_page(int signal) {
  io::remove_unfinished_files();
  constexpr char message[] =
      "tessera: an input file was truncated while it was read; run again when it is complete\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message, sizeof(message) - 1);
  _exit(signal == SIGBUS ? kFailure : 128 + signal);
}

/// Keeps freed memory: planners allocate large arrays again and again, and the pages of new memory must be
/// cleared first, which takes a quarter of the planning time.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 29);
#endif
}

bool wants_json(const CLI::App& command) {
  const CLI::Option* json = command.get_option_no_throw("--json");
  if (json != nullptr && json->count() != 0) return true;
  for (const CLI::App* nested : command.get_subcommands())
    if (wants_json(*nested)) return true;
  return false;
}

/// A command that fails as a whole still prints one JSON object if JSON was requested.
int run(const CLI::App& parsed, const Command& command) {
  try {
    return command();
  } catch (const UsageError&) {
    throw;
  } catch (const std::exception& e) {
    if (wants_json(parsed))
      fmt::print("{}\n", json_text({{"schema", 1},
                                    {"command", parsed.get_name()},
                                    {"error", e.what()},
                                    {"results", nlohmann::ordered_json::array()}}));
    throw;
  }
}

int run(int argc, char** argv) {
  CLI::App app{"Run sparse networks fast on the CPU, and analyse them on modelled tiled machines."};
  app.name("tessera");
  app.set_version_flag("--version", TESSERA_VERSION);
  app.require_subcommand(1);
  app.footer(
      "\nExample:\n  tessera spmm --m 4096 --k 4096 --density 1/16 --block 16 --n 256\n"
      "\nResults go to stdout, progress and messages to stderr. Exit status: 0 success, 1 failure, 2 wrong "
      "usage.");

  std::vector<std::pair<CLI::App*, Command>> commands;
  for (const auto& add :
       {add_spmm_command, add_run_command, add_benchmark_command, add_train_command, add_pack_command,
        add_inspect_command, add_pipeline_command, add_machines_command, add_reproduce_command}) {
    Command command = add(app);
    commands.emplace_back(app.get_subcommands({}).back(), std::move(command));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    complain(usage_message(app, e, {argv + 1, argv + argc}));
    return kUsage;
  }
  for (const auto& [parsed, command] : commands)
    if (parsed->parsed()) return run(*parsed, command);
  return kUsage;
}

}  // namespace

void add_common_options(CLI::App& command, bool& json, uint32_t& threads) {
  command.add_flag("--json", json, "Print one JSON object");
  add_count(command, "--threads", threads,
            "Number of threads of the host, which are also its tiles (default: one per physical core)", 4096);
  command.add_option_function<std::string>(
      "--isa", [](const std::string& name) { restrict_isa(isa_of(name)); },
      "Restrict the instruction set: generic, neon, avx2, avx512, avx512_bf16, avx512_bf16_sparse, amx (also "
      "TESSERA_ISA)");
}

}  // namespace tessera::cli

int main(int argc, char** argv) {
  using tessera::cli::complain;
  using tessera::cli::finish;
  tessera::cli::keep_freed_memory();
  tessera::cli::reserve_standard_streams();
  std::signal(SIGINT, tessera::cli::on_interrupt);
  std::signal(SIGTERM, tessera::cli::on_interrupt);
  std::signal(SIGBUS, tessera::cli::on_lost_page);
  std::signal(SIGXFSZ, SIG_IGN);  // writes then fail with a message
  try {
    return finish(tessera::cli::run(argc, argv));
  } catch (const tessera::UsageError& e) {
    complain(e.what());
    return tessera::cli::kUsage;
  } catch (const std::bad_alloc&) {
    complain("out of memory; try a smaller input");
  } catch (const std::exception& e) {
    complain(e.what());
  }
  return finish(tessera::cli::kFailure);
}
