#include "spmm/options.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>

#include "machine/host/detect.h"

namespace tessera::bench {
namespace {

double number(const std::string& text, const std::string& whole) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end)
    throw UsageError(
        fmt::format("--density: invalid value '{}' (expected a number or a fraction, such as 1/16)", whole));
  return value;
}

/// "1/16" or "0.0625".
double density_of(const std::string& text) {
  const size_t slash = text.find('/');
  const double value = slash == std::string::npos
                           ? number(text, text)
                           : number(text.substr(0, slash), text) / number(text.substr(slash + 1), text);
  if (!(value >= 0 && value <= 1))
    throw UsageError(fmt::format("--density: invalid value '{}' (expected a number from 0 to 1)", text));
  return value;
}

Type type_of(const std::string& text) {
  for (Type type : {Type::f32, Type::f16, Type::bf16})
    if (name_of(type) == text) return type;
  throw UsageError(fmt::format("--type: invalid value '{}' (choose from f32, f16, bf16)", text));
}

Layout layout_of(const std::string& text) {
  if (text == "row") return Layout::row_major;
  if (text == "col") return Layout::column_major;
  throw UsageError(fmt::format("--layout: invalid value '{}' (choose from row, col)", text));
}

Task task_of(const std::string& text) {
  for (Task task : {Task::forward, Task::input_gradient, Task::sddmm, Task::triple})
    if (name_of(task) == text) return task;
  throw UsageError(fmt::format(
      "--product: invalid value '{}' (choose from forward, input_gradient, sddmm, triple)", text));
}

template <class To, class Convert>
void convert_list(const std::vector<std::string>& texts, std::vector<To>& list, Convert convert) {
  if (texts.empty()) return;
  list.clear();
  for (const std::string& text : texts) list.push_back(convert(text));
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Options options;
  std::vector<std::string> densities, types, layouts, tasks;
  std::string isa(name_of(active_isa()));
  options.limits.threads = machine::default_threads(machine::detect_host());

  CLI::App app("Compares Tessera's sparse products with dense and sparse libraries.");
  const auto list = [](CLI::Option* option) { option->delimiter(','); };
  app.add_option("--m", options.m, "rows of W")->check(CLI::Range(1, 1 << 20));
  app.add_option("--k", options.k, "columns of W")->check(CLI::Range(1, 1 << 20));
  list(app.add_option("--n", options.n, "columns of X (list)")->check(CLI::Range(1, 1 << 20)));
  list(app.add_option("--density", densities, "fraction of blocks stored, 1/8 or 0.125 (list)"));
  list(app.add_option("--block", options.blocks, "block size (list)")
           ->check(CLI::IsMember({1, 4, 8, 16, 32})));
  list(app.add_option("--type", types, "type of W: f32, f16, bf16 (list)"));
  list(app.add_option("--layout", layouts, "layout of X and Y: row, col (list)"));
  list(app.add_option("--product", tasks, "forward, input_gradient, sddmm, or triple: all three (list)"));
  app.add_option("--smtx", options.smtx, "files, or folders of files, each with a W");
  app.add_option(
      "--isa", isa,
      "instruction set of all libraries: generic, avx2, avx512, avx512_bf16, avx512_bf16_sparse, amx");
  app.add_option("--threads", options.limits.threads, "threads of all libraries")->check(CLI::Range(1, 4096));
  list(app.add_option("--peers", options.peers, "libraries to compare (list); default: all"));
  app.add_option("--rounds", options.rounds, "number of rounds; the median is reported")
      ->check(CLI::Range(1, 1000));
  app.add_flag("--cold", options.cold, "evict the caches before every timed call");
  app.add_option("--array-offset", options.array_offset,
                 "offset of arrays from a cache line in bytes: 0, as PyTorch's; 16, as malloc's")
      ->check(CLI::IsMember({0, 4, 8, 16, 32}));
  app.add_flag("--plans", options.plans, "print Tessera's plan of each product");
  app.add_option("--csv", options.csv, "CSV file of every timing");
  app.add_option("--json", options.json, "JSON file of everything");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    std::exit(app.exit(help));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }

  convert_list(densities, options.densities, density_of);
  convert_list(types, options.types, type_of);
  convert_list(layouts, options.layouts, layout_of);
  convert_list(tasks, options.tasks, task_of);
  options.limits.isa = isa_of(isa);
  return options;
}

}  // namespace tessera::bench
