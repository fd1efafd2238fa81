#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "cli/commands.h"
#include "cli/option_parsing.h"
#include "cli/paper_command.h"
#include "cli/popsparse_command.h"
#include "cli/progress.h"
#include "io/atomic_file.h"
#include "studies/butterfly/study.h"
#include "studies/packing/study.h"
#include "studies/snn/study.h"

namespace tessera::cli {
namespace {

struct PackingRequest : studies::Request {
  double time_limit = 0;
};

int reproduce_packing(const PackingRequest& options) {
  const std::string folder = data_folder(options.data);
  if (folder.empty())
    throw UsageError(
        "pass --data FOLDER with lengths/wikipedia-512.csv and lengths/squad1.1-384.csv, or set "
        "TESSERA_DATA");
  for (const std::string& file : {options.csv, options.html})
    if (!file.empty()) io::require_writable(file);
  constexpr size_t kRows = 32;  // approximately: every algorithm at every depth
  Progress bar(kRows);
  size_t done = 0;
  std::vector<studies::packing::Study> results;
  for (const studies::packing::Task& task : studies::packing::tasks())
    results.push_back(reproduce(task, folder, options.time_limit,
                                [&](const std::string& next) { bar.show(std::min(done++, kRows), next); }));
  bar.clear();
  if (!options.csv.empty()) io::write_text(options.csv, studies::packing::csv(results));
  if (!options.html.empty()) io::write_text(options.html, studies::packing::page(results));
  if (options.json) {
    fmt::print("{}", studies::packing::json(results));
    return 0;
  }
  for (const studies::packing::Study& study : results) fmt::print("{}\n", text(study));
  return 0;
}

}  // namespace

Command add_reproduce_command(CLI::App& app) {
  CLI::App& command = *app.add_subcommand("reproduce", "Reproduce published results, with ours beside them");
  command.require_subcommand(1);
  auto packing = std::make_shared<PackingRequest>();
  CLI::App& packing_command =
      *command.add_subcommand("packing", "Sequence packing of Wikipedia and SQuAD 1.1");
  packing_command.add_option("--data", packing->data, "Folder with lengths/*.csv (default: TESSERA_DATA)");
  packing_command.add_option("--csv", packing->csv, "File for all rows");
  packing_command.add_option("--html", packing->html, "File for a page with charts");
  add_seconds(packing_command, "--time-limit", packing->time_limit, "Seconds per row");
  packing_command.add_flag("--json", packing->json, "Print one JSON object");
  packing_command.footer("\nExample:\n  tessera reproduce packing --data data --html packing.html");
  const Command popsparse = popsparse::add_command(command);
  const Command butterfly = add_paper_command(command, studies::butterfly::paper());
  const Command snn = add_paper_command(command, studies::snn::paper());
  command.footer(
      "\nExamples:\n  tessera reproduce popsparse\n  tessera reproduce butterfly\n  tessera reproduce snn\n  "
      "tessera reproduce "
      "packing --data data --html "
      "packing.html");
  return [packing, popsparse, butterfly, snn, &packing_command, &command] {
    if (packing_command.parsed()) return reproduce_packing(*packing);
    if (command.got_subcommand("butterfly")) return butterfly();
    return command.got_subcommand("snn") ? snn() : popsparse();
  };
}

}  // namespace tessera::cli
