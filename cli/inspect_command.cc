#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/inspect.h>
#include <tessera/onnx.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/model_run.h"
#include "cli/option_parsing.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "cli/progress.h"
#include "io/atomic_file.h"
#include "report/inspect_report.h"

namespace tessera::cli {
namespace {

struct InspectFlags {
  std::vector<std::string> paths;
  std::vector<std::string> shapes;  ///< "ids=1,128"
  std::string tensor;
  std::string report;
  uint32_t rows = ZerosOptions{}.n;
  CommonOptions common;
};

bool is_onnx(const std::string& path) { return path.ends_with(".onnx"); }

/// Inspects a file or folder, with a progress bar over the tensors.
InspectedModel inspect_path(const std::string& path, const InspectFlags& options) {
  std::optional<Progress> bar;
  const InspectProgress show = [&](size_t done, size_t total, const std::string& next) {
    if (!bar) bar.emplace(total);
    bar->show(done, next);
  };
  const ZerosOptions zeros{.n = options.rows, .threads = options.common.threads};
  if (!is_onnx(path)) return tessera::inspect(path, options.tensor, zeros, show);
  return onnx::inspect(path, options.tensor, zeros, show, shapes_of(options.shapes));
}

int run(const InspectFlags& options) {
  if (!options.report.empty()) {
    check_extension("--report", options.report, {".html", ".htm"});
    io::require_writable(options.report);
  }
  for (const std::string& path : options.paths)
    if (!options.shapes.empty() && !is_onnx(path))
      throw UsageError(fmt::format("--shape is for .onnx files, not for {}", path));
  std::vector<InspectedModel> models;
  for (const std::string& path : options.paths) {
    models.push_back(inspect_path(path, options));
    if (!options.common.json)
      fmt::print("{}{}", models.size() > 1 ? "\n" : "", report::text_of(models.back()));
  }
  if (options.common.json) fmt::print("{}\n", report::json(models));
  const bool written = write_or_complain([&] {
    if (!options.report.empty()) io::write_text(options.report, report::page_of(models));
  });
  return written ? 0 : 1;
}

}  // namespace

Command add_inspect_command(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "inspect", "Show where the zeros of weights are, and whether they would save time on the host");
  auto options = std::make_shared<InspectFlags>();
  command
      .add_option("paths", options->paths,
                  "Folders of Hugging Face models; .onnx, .safetensors, .npy, .mtx or .smtx files")
      ->required();
  command.add_option("--tensor", options->tensor, "Name of one tensor to inspect (default: all tensors)");
  add_count(
      command, "--rows", options->rows,
      "Number of rows of a layer's input, such as tokens, where the shapes of an .onnx file do not give it "
      "(default: 128)");
  add_shape_option(command, options->shapes);
  command.add_option("--report", options->report, "Write a report page: the table and the sums (.html)");
  add_common_options(command, options->common);
  command.footer(
      "\nExamples:\n"
      "  tessera inspect models/pruned-bert --rows 128\n"
      "  tessera inspect model.onnx --shape batch=8");
  return [options] { return run(*options); };
}

}  // namespace tessera::cli
