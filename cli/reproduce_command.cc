#include <CLI/CLI.hpp>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/option_parsing.h"
#include "cli/paper_command.h"
#include "cli/spmm_request.h"
#include "studies/butterfly/study.h"
#include "studies/mlperf/study.h"
#include "studies/packing/study.h"
#include "studies/popsparse/study.h"
#include "studies/snn/study.h"

namespace tessera::cli {
namespace {

void add_packing_options(CLI::App& command, studies::Request& r) {
  add_seconds(command, "--time-limit", r.time_limit, "Maximum seconds per packing");
}

/// Adds the options of products. List options take items separated by commas; with any of them, every
/// combination runs.
void add_product_options(CLI::App& command, studies::Request& r) {
  add_choice(command, "--planner", r.planner, kPlanners,
             "Planner for modelled machines: vendor (default) or best");
  command.add_flag("--gain", r.gain,
                   "Also plan without the vendor's rules, and show the gain (section gain)");
  const std::string group = "Lists separated by commas: every combination runs, instead of the paper's cells";
  studies::ProductLists& lists = r.products;
  const size_t others = command.get_options().size();
  add_counts(command, "--m", lists.sizes, "Sizes m = k");
  add_counts(command, "--n", lists.n, "Columns of X");
  add_counts(command, "--block", lists.blocks, "Block sizes");
  add(command, "--density", lists.densities, parse_densities, "Densities, such as 1/16");
  add(command, "--type", lists.types, parse_types,
      "Types: f32, f16, bf16, f16-f32 (FP16 with FP32 partial sums)");
  add(command, "--mode", lists.modes, parse_modes, "Modes: static, dynamic, dense");
  const std::vector<CLI::Option*> all = command.get_options();
  for (size_t i = others; i < all.size(); ++i) all[i]->group(group);
}

}  // namespace

Command add_reproduce_command(CLI::App& app) {
  CLI::App& command =
      *app.add_subcommand("reproduce", "Reproduce published results, with the tool's results beside them");
  command.require_subcommand(1);
  std::vector<std::pair<std::string, Command>> papers;
  const auto add_paper = [&](const studies::Paper& paper, auto... further) {
    papers.emplace_back(paper.name, add_paper_command(command, paper, further...));
  };
  add_paper(studies::packing::paper(), add_packing_options);
  add_paper(studies::popsparse::paper(), add_product_options);
  add_paper(studies::butterfly::paper());
  add_paper(studies::snn::paper());
  add_paper(studies::mlperf::paper(), add_packing_options);
  command.footer(
      "\nExamples:\n  tessera reproduce popsparse\n  tessera reproduce butterfly\n"
      "  tessera reproduce packing --data data --html packing.html\n"
      "  tessera reproduce mlperf --data data --report mlperf.html");
  return [papers, &command] {
    for (const auto& [name, run] : papers)
      if (command.got_subcommand(name)) return run();
    return 2;
  };
}

}  // namespace tessera::cli
