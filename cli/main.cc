#include <fmt/format.h>
#include <tessera/error.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <vector>

#include "base/isa.h"
#include "cli/commands.h"

namespace tessera::cli {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;
constexpr int kInterrupted = 130;

/// Files are written under temporary names, which the next run replaces, so leaving at once is clean.
void on_interrupt(int) {
  constexpr char message[] = "\r\033[Kinterrupted\n";
  const char* text = isatty(STDERR_FILENO) == 1 ? message : "interrupted\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, text == message ? sizeof(message) - 1 : 12);
  _exit(kInterrupted);
}

int run(int argc, char** argv) {
  CLI::App app{"Sparse, structured and packed networks, planned ahead for the processor at hand."};
  app.name("tessera");
  app.set_version_flag("--version", TESSERA_VERSION);
  app.require_subcommand(1);
  app.footer("\nExample:\n  tessera spmm --m 4096 --k 4096 --density 1/16 --block 16 --n 256\n"
             "\nResults go to stdout, progress and messages to stderr. Exit status: 0 done, 1 failed, 2 usage.");

  std::vector<std::pair<CLI::App*, Command>> commands;
  for (const auto& add : {add_spmm_command, add_inspect_command, add_machines_command}) {
    Command command = add(app);
    commands.emplace_back(app.get_subcommands({}).back(), std::move(command));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kUsage;
  }
  for (const auto& [parsed, command] : commands)
    if (parsed->parsed()) return command();
  return kUsage;
}

}  // namespace

void add_common_options(CLI::App& command, CommonOptions& options) {
  command.add_flag("--json", options.json, "Print one JSON object");
  command.add_option("--threads", options.threads, "Threads, which are the host's tiles (default: one a physical core)")
      ->check(CLI::Range(1, 4096));
  command.add_option_function<std::string>(
      "--isa", [](const std::string& name) { restrict_isa(isa_of(name)); },
      "Use this instruction set at most: generic, neon, avx2, avx512 (also TESSERA_ISA)");
}

}  // namespace tessera::cli

int main(int argc, char** argv) {
  std::signal(SIGINT, tessera::cli::on_interrupt);
  try {
    return tessera::cli::run(argc, argv);
  } catch (const tessera::UsageError& e) {
    fmt::print(stderr, "tessera: {}\n", e.what());
    return tessera::cli::kUsage;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "tessera: out of memory; try a smaller matrix or fewer columns\n");
    return tessera::cli::kFailure;
  } catch (const std::exception& e) {
    fmt::print(stderr, "tessera: {}\n", e.what());
    return tessera::cli::kFailure;
  }
}
