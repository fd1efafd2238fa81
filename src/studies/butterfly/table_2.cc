// Table 2: dense and sparse products, square, in FP32. Rates count the operations of the dense product; each
// is the best over sizes, as in the paper.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "report/page.h"
#include "studies/butterfly/first_programs.h"
#include "studies/butterfly/study.h"
#include "studies/common/charts.h"
#include "studies/paper/product_cell.h"

namespace tessera::studies::butterfly {
namespace {

constexpr std::string_view kTable2Name = "table-2";
constexpr const char* kTable2WithTransfers = "gflops_with_transfers";

/// A column of the table.
struct Variant {
  std::string_view name;       ///< "dense, planned"
  std::string_view published;  ///< its row in table-2.csv
  bool on_host = false;        ///< whether the host runs it too
  std::vector<uint32_t> (*sizes)(const machine::Machine&, const Request&);
  double (*cell_seconds)(uint32_t size);
  Result (*run)(uint32_t size, const Setting&);
  std::string_view cells;              ///< the variant whose cells it reads
  const char* rate = "gflops";         ///< the number that it reads there
  std::optional<double> allowed = {};  ///< deviation
  std::string_view remark = {};

  bool has_cells() const { return cells == name; }
};

std::vector<uint32_t> table_2_powers(uint32_t first, uint32_t last) {
  std::vector<uint32_t> sizes;
  for (uint32_t size = first; size <= last; size *= 2) sizes.push_back(size);
  return sizes;
}

std::vector<uint32_t> product_sizes(const machine::Machine& machine, const Request& request) {
  if (machine.kind == machine::Kind::host) return table_2_powers(256, request.full ? 4096 : 1024);
  return table_2_powers(256, request.full ? 8192 : 4096);
}

double product_seconds(uint32_t size) { return 0.3 + 2e-10 * size * size * size; }

Result run_dense(uint32_t size, const Setting& setting) {
  return run_product({.m = size, .k = size, .n = size}, setting);
}

template <int percent>
Result run_sparse(uint32_t size, const Setting& setting) {
  return run_product({.m = size, .k = size, .n = size, .density = (100 - percent) / 100.0}, setting);
}

std::vector<uint32_t> naive_sizes(const machine::Machine&, const Request&) {
  return table_2_powers(128, 1024);
}
double naive_seconds(uint32_t size) { return 0.1 + 4e-6 * size * size; }

std::vector<uint32_t> blocked_sizes(const machine::Machine&, const Request& request) {
  return table_2_powers(256, request.full ? 4096 : 2048);
}
double blocked_seconds(uint32_t) { return 1; }

constexpr std::string_view kPlanned = "dense, planned";
constexpr std::string_view k90 = "sparse, 90 % zeros", k99 = "sparse, 99 % zeros";
constexpr std::string_view kNaive = "dense, naive", kBlocked = "dense, blocked";

std::span<const Variant> variants() {
  static const Variant all[] = {
      {.name = kNaive,
       .published = "IPU naive",
       .sizes = naive_sizes,
       .cell_seconds = naive_seconds,
       .run = run_naive,
       .cells = kNaive,
       .remark = "five instructions per multiply-accumulate; with six the model would be within 5 %"},
      {.name = kBlocked,
       .published = "IPU blocked",
       .sizes = blocked_sizes,
       .cell_seconds = blocked_seconds,
       .run = run_blocked,
       .cells = kBlocked,
       .remark = "one of six workers per tile computes, which the paper's rates suggest; it blames copies, "
                 "which take 1 % here"},
      {.name = kPlanned,
       .published = "IPU poplin",
       .on_host = true,
       .sizes = product_sizes,
       .cell_seconds = product_seconds,
       .run = run_dense,
       .cells = kPlanned,
       .allowed = 0.15},
      {.name = "dense, planned, with transfers",
       .published = "IPU PopTorch",
       .sizes = product_sizes,
       .cell_seconds = product_seconds,
       .run = run_dense,
       .cells = kPlanned,
       .rate = kTable2WithTransfers,
       .remark =
           "N is not given; larger ones hide the transfers, and the framework's own time is not modelled"},
      {.name = k90,
       .published = "IPU popsparse 90 %",
       .on_host = true,
       .sizes = product_sizes,
       .cell_seconds = product_seconds,
       .run = run_sparse<90>,
       .cells = k90,
       .allowed = 0.5,
       .remark = "N is not given; at N = 1024 the model is nearer"},
      {.name = k99,
       .published = "IPU popsparse 99 %",
       .on_host = true,
       .sizes = product_sizes,
       .cell_seconds = product_seconds,
       .run = run_sparse<99>,
       .cells = k99,
       .allowed = 0.5,
       .remark = "N is not given; at N = 1024 the model is nearer"},
  };
  return all;
}

std::string table_2_name_of(const Variant& variant, uint32_t size) {
  return fmt::format("{} N = {}", variant.cells, size);
}

std::vector<Cell> table_2_cells(const machine::Machine& machine, const Request& request) {
  std::vector<Cell> all;
  for (const Variant& variant : variants())
    if (variant.has_cells() && (machine.kind == machine::Kind::tiled || variant.on_host))
      for (uint32_t size : variant.sizes(machine, request))
        all.push_back({table_2_name_of(variant, size), variant.cell_seconds(size),
                       [&variant, size](const Setting& setting) { return variant.run(size, setting); }});
  return all;
}

/// The fastest size of a variant.
struct Best {
  uint32_t size = 0;
  double gflops = 0;
};

bool shows(const Part& part, const Variant& variant) { return !part.is_host() || variant.on_host; }

/// `rate`: the number to read instead of the variant's own.
std::optional<double> table_2_rate_of(const Part& part, const Variant& variant, uint32_t size,
                                      const char* rate = nullptr) {
  return shows(part, variant)
             ? part.value(kTable2Name, table_2_name_of(variant, size), rate != nullptr ? rate : variant.rate)
             : std::nullopt;
}

std::optional<double> published_rate(const Study& study, const Variant& variant) {
  return study.published.number("table-2.csv", std::string(variant.published), "gflops");
}

std::optional<Best> best_of(const Part& part, const Study& study, const Variant& variant,
                            const char* which = nullptr) {
  std::optional<Best> best;
  for (uint32_t size : variant.sizes(part.machine, study.request))
    if (const auto rate = table_2_rate_of(part, variant, size, which))
      if (!best || *rate > best->gflops) best = Best{size, *rate};
  return best;
}

std::string table_2_rate_text(double gflops) {
  return gflops < 100 ? fmt::format("{:.1f}", gflops) : fmt::format("{:.0f}", gflops);
}

Figure::Entry best_entry(const std::optional<Best>& best) {
  return best ? Figure::Entry{table_2_rate_text(best->gflops), fmt::format("N = {}", best->size)}
              : Figure::Entry{"-"};
}

Figure best_figure(const Study& study) {
  Figure figure{"Square FP32 products, GFLOP/s at the best size (table 2)",
                "Sparse products count the operations of the dense one, as in the paper. With transfers: "
                "both operands come "
                "from the host and the result goes back, as with the paper's PopTorch.",
                {"product", "GC200, published"}};
  for (const Part& part : study.parts) {
    figure.head.push_back(part.machine.name);
    if (!part.is_host()) figure.head.push_back(part.machine.name + ", with transfers");
  }
  for (const Variant& variant : variants()) {
    const auto published = published_rate(study, variant);
    std::vector<Figure::Entry> row = {{std::string(variant.name)},
                                      {published ? table_2_rate_text(*published) : "-"}};
    for (const Part& part : study.parts) {
      row.push_back(best_entry(best_of(part, study, variant)));
      if (!part.is_host()) row.push_back(best_entry(best_of(part, study, variant, kTable2WithTransfers)));
    }
    figure.rows.push_back(std::move(row));
  }
  return figure;
}

Figure size_figure(const Study& study, const Part& part) {
  Figure figure{
      fmt::format("The same over N: GFLOP/s on {}", part.machine.name), "-: does not fit.", {"product"}};
  std::vector<uint32_t> sizes;
  for (const Variant& variant : variants())
    for (uint32_t size : variant.sizes(part.machine, study.request))
      if (part.find(kTable2Name, table_2_name_of(variant, size)) != nullptr) sizes.push_back(size);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (uint32_t size : sizes) figure.head.push_back(fmt::format("N = {}", size));
  for (const Variant& variant : variants()) {
    std::vector<Figure::Entry> row = {{std::string(variant.name)}};
    bool any = false;
    for (uint32_t size : sizes) {
      const Result* result =
          shows(part, variant) ? part.find(kTable2Name, table_2_name_of(variant, size)) : nullptr;
      const auto rate = table_2_rate_of(part, variant, size);
      row.push_back({rate                ? table_2_rate_text(*rate)
                     : result != nullptr ? "-"
                                         : "",
                     result != nullptr ? result->reason : ""});
      any |= result != nullptr;
    }
    if (any) figure.rows.push_back(std::move(row));
  }
  return figure;
}

std::vector<Figure> table_2_figures(const Study& study) {
  std::vector<Figure> all = {best_figure(study)};
  for (const Part& part : study.parts) all.push_back(size_figure(study, part));
  return all;
}

report::Html table_2_charts(const Study& study) {
  std::vector<report::Html> all;
  for (const Part& part : study.parts) {
    report::LineChart chart;
    chart.frame = {fmt::format("Square FP32 products on {}", part.machine.name),
                   part.is_host() ? "" : "Dashed: the paper's best.", report::kHalf};
    chart.x = logarithmic("N", report::Growth::log2);
    chart.y = logarithmic("GFLOP/s", report::Growth::log10);
    size_t colour = 0;
    for (const Variant& variant : variants()) {
      Pair pair(std::string(variant.name), colour++);
      const auto sizes = variant.sizes(part.machine, study.request);
      for (uint32_t size : sizes)
        pair.add(size, table_2_rate_of(part, variant, size), std::nullopt, fmt::format("N = {}", size));
      const auto published = published_rate(study, variant);
      if (!part.is_host() && !pair.ours.points.empty())
        for (uint32_t size : {sizes.front(), sizes.back()}) pair.add(size, std::nullopt, published, "best");
      std::move(pair).put_into(chart);
    }
    all.push_back(report::chart(chart));
  }
  return report::side_by_side(all);
}

std::vector<Comparison> table_2_comparisons(const Study& study) {
  std::vector<Comparison> all;
  const Part* part = study.modelled();
  if (part == nullptr) return all;
  for (const Variant& variant : variants()) {
    const auto published = published_rate(study, variant);
    if (!published) continue;
    const auto best = best_of(*part, study, variant);
    Comparison c{std::string(variant.name), "GFLOP/s", *published,
                 best ? std::optional(best->gflops) : std::nullopt};
    c.remark = variant.remark;
    all.push_back(variant.allowed ? std::move(c).within(*variant.allowed) : std::move(c));
  }
  return all;
}

}  // namespace

Section table_2() {
  return {.name = kTable2Name,
          .title = "Dense and sparse products (table 2)",
          .cells = table_2_cells,
          .figures = table_2_figures,
          .charts = table_2_charts,
          .comparisons = table_2_comparisons};
}

}  // namespace tessera::studies::butterfly
