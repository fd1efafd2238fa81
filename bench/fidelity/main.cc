// Holds the model of tiled machines against published measurements.
//
//   fidelity [--published FOLDER] [--machine bow] [--set KEY=VALUE]…
//   [--table ratio|dense|best|best-dynamic|static-rate|dynamic-rate]… [--cells] [--gain]
//
// FOLDER has other tables than those of src/studies/popsparse/published, by the same names. Every cell is
// planned as the vendor's libraries plan, and costs what the plan's program costs; a dynamic
// product is planned for a random pattern's number of blocks and multiplies such a pattern. For
// each table: the median and the 90th percentile of |ln(model / published)|, and how often the
// model is right that a product fits. --cells prints every cell; --gain also plans freely, and says
// what that gains.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/io.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "machine/model/machine.h"
#include "ops/tiles/product.h"
#include "studies/popsparse/published.h"

namespace tessera::fidelity {
namespace {

constexpr uint64_t kSeed = 1;
constexpr uint32_t kBestSize = 4096;  // of table 3
constexpr uint32_t kBestInverseDensity = 16;
constexpr std::array<const char*, 6> kTables = {"ratio",        "dense",       "best",
                                                "best-dynamic", "static-rate", "dynamic-rate"};
constexpr uint32_t kBestColumns[] = {4, 16, 64, 256, 1024, 4096, 16384};

struct Options {
  std::string published;
  std::string machine = "bow";
  std::vector<std::string> settings;
  std::vector<std::string> tables = {kTables.begin(), kTables.end()};
  bool cells = false;
  bool gain = false;
};

struct Case {
  bool dense = false;
  uint32_t block = 1;
  uint32_t inverse_density = 1;
  uint32_t size = 0;
  uint32_t n = 0;
  Type type = Type::f16;
  bool dynamic = false;

  auto key() const { return std::tuple(dense, block, inverse_density, size, n, type, dynamic); }
  bool operator<(const Case& other) const { return key() < other.key(); }
};

/// The model's results, each computed once.
class Model {
 public:
  Model(machine::Machine machine, bool print) : machine_(std::move(machine)), print_(print) {}

  /// Seconds, or none if the product does not fit.
  std::optional<double> seconds(const Case& c, ops::Planner planner = ops::Planner::published) {
    const auto key = std::pair(c, planner);
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
    ops::ProductProblem problem{c.n, c.type, c.type, planner, c.dense};
    if (c.dynamic) problem.capacity = pattern_of(c).blocks();
    const ops::TileProductPlan plan = ops::plan_tile_product(pattern_of(c), problem, machine_);
    if (print_)
      fmt::print(stderr, "  n = {}: {}, {} steps, {:.1f} us {}\n", c.n, plan.chosen.partition, plan.steps,
                 plan.chosen.total() * 1e6, plan.chosen.rejected);
    std::optional<double> seconds;
    if (plan.chosen.rejected.empty()) seconds = plan.chosen.total();
    return known_[key] = seconds;
  }

 private:
  const Pattern& pattern_of(const Case& c) {
    const auto same = [&](const Case& other) {
      return std::tuple(c.dense, c.block, c.inverse_density, c.size) ==
             std::tuple(other.dense, other.block, other.inverse_density, other.size);
    };
    if (!pattern_is_of_ || !same(*pattern_is_of_)) {
      pattern_ = Pattern{c.size, c.size, 1, std::vector<uint64_t>(c.size + 1), {}};
      if (!c.dense)
        pattern_ =
            generate({PatternKind::random, c.size, c.size, 1.0 / c.inverse_density, c.block, kSeed}).pattern;
      pattern_is_of_ = c;
    }
    return pattern_;
  }

  machine::Machine machine_;
  bool print_;
  std::map<std::pair<Case, ops::Planner>, std::optional<double>> known_;
  Pattern pattern_;
  std::optional<Case> pattern_is_of_;
};

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto at = static_cast<size_t>(share * static_cast<double>(values.size()));
  return values[std::min(at, values.size() - 1)];
}

/// Deviations of one table.
class Table {
 public:
  Table(std::string name, bool print) : name_(std::move(name)), print_(print) {}

  void add(const std::string& cell, std::optional<double> model, std::optional<double> published) {
    if (published)
      ++full_;
    else
      ++empty_;
    if (published && !model) ++refused_;
    if (!published && !model) ++found_;
    std::string text = "-";
    if (model && published) {
      deviations_.push_back(std::log(*model / *published));
      text = fmt::format("{:+.2f}", deviations_.back());
    }
    const auto number = [](std::optional<double> v) {
      return v ? fmt::format("{:.4g}", *v) : std::string("does not fit");
    };
    if (print_)
      fmt::print("{:<44} {:>12} published {:>12}  ln {}\n", cell, number(model), number(published), text);
  }

  void add_gain(std::optional<double> published, std::optional<double> free) {
    if (published && free) gains_.push_back(*published / *free);
    if (!published && free) ++gained_;
  }

  void print_summary() const {
    std::vector<double> sizes;
    double sum = 0;
    for (double d : deviations_) sizes.push_back(std::abs(d)), sum += d;
    fmt::print(
        "{}: {} cells; |ln(model / published)| median {:.3f}, 90th percentile {:.3f}, largest "
        "{:.3f}; mean ln {:+.3f}\n",
        name_, full_ + empty_, percentile(sizes, 0.5), percentile(sizes, 0.9), percentile(sizes, 1),
        sizes.empty() ? 0 : sum / static_cast<double>(sizes.size()));
    fmt::print(
        "  does not fit: {} of {} empty cells found, {} of {} full ones rejected; {:.1f} % of "
        "verdicts correct\n",
        found_, empty_, refused_, full_, 100.0 * (found_ + full_ - refused_) / std::max(1, full_ + empty_));
    if (!gains_.empty())
      fmt::print(
          "  speed-up of the free planner: {:.2f} (median), {:.2f} (90th percentile), "
          "{:.2f} (minimum); {} more fit\n",
          percentile(gains_, 0.5), percentile(gains_, 0.9), percentile(gains_, 0), gained_);
  }

 private:
  std::string name_;
  bool print_;
  int full_ = 0;
  int empty_ = 0;
  int refused_ = 0;
  int found_ = 0;
  int gained_ = 0;
  std::vector<double> deviations_;
  std::vector<double> gains_;
};

std::optional<double> ratio(std::optional<double> of, std::optional<double> to) {
  return of && to ? std::optional(*of / *to) : std::nullopt;
}

std::string name_of_case(const Case& c) {
  return fmt::format("{} {} m = k = {}, n = {}", tessera::name_of(c.type),
                     c.dense ? "dense" : fmt::format("b = {}, d = 1/{}", c.block, c.inverse_density), c.size,
                     c.n);
}

void compare_dense(const Options& o, Model& model) {
  Table table("dense TFLOP/s", o.cells);
  for (const studies::popsparse::DenseCell& cell : studies::popsparse::read_dense(o.published)) {
    const Case c{true, 1, 1, cell.size, cell.n, cell.type};
    const auto seconds = model.seconds(c);
    const double tflop = 2e-12 * cell.size * cell.size * cell.n;
    table.add(name_of_case(c), ratio(tflop, seconds), cell.tflops);
    if (o.gain) table.add_gain(seconds, model.seconds(c, ops::Planner::best));
  }
  table.print_summary();
}

void compare_ratios(const Options& o, Model& model) {
  Table table("static over dense", o.cells);
  for (const studies::popsparse::RatioCell& cell : studies::popsparse::read_ratios(o.published)) {
    const Case c{false, cell.block, cell.inverse_density, cell.size, cell.n, Type::f16};
    const auto sparse = model.seconds(c);
    const auto dense = model.seconds({true, 1, 1, cell.size, cell.n, Type::f16});
    table.add(name_of_case(c), ratio(dense, sparse), cell.speedup);
    if (o.gain) table.add_gain(sparse, model.seconds(c, ops::Planner::best));
  }
  table.print_summary();
}

/// The most columns per second.
std::optional<double> best_rate(Model& model, Case c) {
  std::optional<double> best;
  for (uint32_t n : kBestColumns) {
    c.n = n;
    if (const auto seconds = model.seconds(c)) best = std::max(best.value_or(0), n / *seconds);
  }
  return best;
}

void compare_best(const Options& o, Model& model, bool dynamic) {
  Table table(dynamic ? "dynamic over dense, best over n" : "static over dense, best over n", o.cells);
  for (const studies::popsparse::BestCell& cell : studies::popsparse::published_best()) {
    const Case c{false, cell.block, kBestInverseDensity, kBestSize, 0, cell.type, dynamic};
    const auto sparse = best_rate(model, c);
    const auto dense = best_rate(model, {true, 1, 1, kBestSize, 0, cell.type});
    table.add(fmt::format("{} b = {}", tessera::name_of(cell.type), cell.block), ratio(sparse, dense),
              dynamic ? cell.dynamic_speedup : cell.static_speedup);
  }
  table.print_summary();
}

void compare_rates(const Options& o, Model& model, bool dynamic) {
  Table table(dynamic ? "dynamic TFLOP/s, best over n" : "static TFLOP/s, best over n", o.cells);
  for (const studies::popsparse::RateCell& cell : studies::popsparse::published_rates()) {
    if (cell.dynamic != dynamic) continue;
    const auto columns =
        best_rate(model, {false, cell.block, cell.inverse_density, kBestSize, 0, Type::f16, dynamic});
    const double tflop = 2e-12 * kBestSize * kBestSize / cell.inverse_density;
    table.add(fmt::format("b = {}, d = 1/{}", cell.block, cell.inverse_density),
              columns ? std::optional(*columns * tflop) : std::nullopt, cell.tflops);
  }
  table.print_summary();
}

machine::Machine machine_of(const Options& o) {
  machine::Machine machine = machine::find(o.machine);
  for (const std::string& setting : o.settings) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos)
      throw UsageError(fmt::format("--set takes KEY=VALUE; '{}' is not one", setting));
    machine::apply({setting.substr(0, equals), std::stod(setting.substr(equals + 1))}, machine);
  }
  return machine;
}

int run(int argc, char** argv) {
  Options o;
  CLI::App app("Compares the model of tiled machines with published measurements.");
  app.add_option("--published", o.published, "Folder of other published tables");
  app.add_option("--machine", o.machine, "Machine: bow, or a machine's .toml file");
  app.add_option("--set", o.settings, "Change a figure of the machine: KEY=VALUE");
  app.add_option("--table", o.tables, "ratio, dense, best, best-dynamic, static-rate, dynamic-rate")
      ->check(CLI::IsMember(std::vector<std::string>{kTables.begin(), kTables.end()}));
  app.add_flag("--cells", o.cells, "Print every cell");
  app.add_flag("--gain", o.gain, "Also use the free planner, and print its gain");
  CLI11_PARSE(app, argc, argv);
  Model model(machine_of(o), o.cells);
  for (const std::string& table : o.tables) {
    if (table == "dense") compare_dense(o, model);
    if (table == "ratio") compare_ratios(o, model);
    if (table == "best") compare_best(o, model, false);
    if (table == "best-dynamic") compare_best(o, model, true);
    if (table == "static-rate") compare_rates(o, model, false);
    if (table == "dynamic-rate") compare_rates(o, model, true);
  }
  return 0;
}

}  // namespace
}  // namespace tessera::fidelity

int main(int argc, char** argv) {
  try {
    return tessera::fidelity::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "fidelity: {}\n", e.what());
    return dynamic_cast<const tessera::UsageError*>(&e) != nullptr ? 2 : 1;
  }
}
