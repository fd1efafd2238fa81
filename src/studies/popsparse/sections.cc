// The tables and figures of the paper, but for the law.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "report/page.h"
#include "studies/common/curves.h"
#include "studies/paper/tables.h"
#include "studies/popsparse/products.h"
#include "studies/popsparse/study.h"

namespace tessera::studies::popsparse {
namespace {

using SectionsCurve = Curves::Curve;
using Value = Curves::Value;

constexpr Mode kSectionsSparse[] = {Mode::static_sparse, Mode::dynamic_sparse};

Value sections_value_of(const Comparison& c, double fraction = 1) {
  const auto scaled = [&](std::optional<double> x) { return x ? std::optional(*x * fraction) : x; };
  return {scaled(c.ours), scaled(c.published)};
}

std::string sections_rate_text(double tflops) {
  return tflops < 1 ? fmt::format("{:.3f}", tflops) : fmt::format("{:.1f}", tflops);
}

std::string x_text(double x) { return x < 1 ? density_text(x) : fmt::format("{}", x); }

template <class T>
std::vector<double> xs_of(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

std::string fixed_text(const Products& p) {
  return fmt::format("{}, m = k = {}, {}", ops::name_of(p.precision()), p.size(), p.part().machine.name);
}

Curves rates(std::string title, std::string note, std::string quantity, std::string symbol,
             std::vector<double> xs) {
  return {.title = std::move(title),
          .note = std::move(note),
          .quantity = std::move(quantity),
          .symbol = std::move(symbol),
          .unit = "TFLOP/s",
          .xs = std::move(xs),
          .text_of_x = x_text,
          .words = sections_rate_text};
}

/// The rate at the best n; only a `fraction` of the operations counts.
Value sections_rate_of(const Products& p, const Operand& operand, double fraction = 1) {
  Value value = sections_value_of(p.best_tflops(operand), fraction);
  if (const auto n = p.best_n(operand)) value.title = fmt::format("n = {}", *n);
  return value;
}

std::vector<Curves> dense_curves(const Products& p) {
  std::vector<Curves> all;
  for (const Precision& precision : p.precisions()) {
    all.push_back(rates(fmt::format("Dense TFLOP/s over n: {}, {} (figure 2)", ops::name_of(precision),
                                    p.part().machine.name),
                        "", "n", "n", xs_of(p.columns())));
    for (uint32_t size : p.sizes())
      all.back().curves.push_back({fmt::format("m = {}", size), [&p, precision, size](double n) {
                                     const Operand dense{Mode::dense, precision, size, 1, 1};
                                     return sections_value_of(p.tflops({dense, static_cast<uint32_t>(n)}));
                                   }});
  }
  return all;
}

/// Speed-ups at the same n.
std::vector<Curves> grids(const Products& p) {
  std::vector<Curves> all;
  for (uint32_t size : p.sizes())
    for (Mode mode : kSectionsSparse) {
      all.push_back(
          {.title = fmt::format("{} over dense at the same n: {}, m = k = {}, {} (figure 7)",
                                ops::name_of(mode), ops::name_of(p.precision()), size, p.part().machine.name),
           .note = "-: sparse or dense does not fit.",
           .symbol = "n",
           .xs = xs_of(p.columns()),
           .is_shaded = true});
      for (uint32_t block : p.blocks())
        for (double density : p.densities())
          all.back().curves.push_back(
              {fmt::format("b = {}, d = {}", block, density_text(density)), [=, &p](double n) {
                 const Case what{p.operand(mode, size, block, density), static_cast<uint32_t>(n)};
                 const Comparison speedup = p.speedup(what);
                 Value value = sections_value_of(speedup);
                 if (speedup.published_as_impossible) value.remark = " (-)";
                 const Result* result = p.find(what);
                 if (result == nullptr) return Value{.missing = ""};
                 value.title = result->reason;
                 return value;
               }});
    }
  return all;
}

std::vector<SectionsCurve> mode_curves(const Products& p,
                                       const std::function<Operand(Mode, double)>& operand) {
  std::vector<SectionsCurve> curves;
  for (Mode mode : kSectionsSparse)
    curves.push_back({std::string(ops::name_of(mode)),
                      [=, &p](double x) { return sections_rate_of(p, operand(mode, x)); }});
  return curves;
}

Curves over_density(const Products& p) {
  Curves curves = rates(fmt::format("TFLOP/s at the best n over density: {} (figure 3a)", fixed_text(p)),
                        "Only operations on stored elements count, so dense falls with the density.",
                        "density", "d", p.densities());
  for (Mode mode : kSectionsSparse)
    for (uint32_t block : p.blocks()) {
      const bool is_drawn = block == p.blocks().front() || block == p.blocks().back();  // as in the paper
      curves.curves.push_back(
          {name_of(mode, block),
           [=, &p](double d) { return sections_rate_of(p, p.operand(mode, p.size(), block, d)); }, is_drawn});
    }
  curves.curves.push_back(
      {"dense", [&p](double d) { return sections_rate_of(p, p.operand(Mode::dense, p.size(), 1, d), d); },
       true, report::kGrey});
  return curves;
}

Curves over_blocks(const Products& p) {
  Curves curves = rates(fmt::format("TFLOP/s at the best n over block size: {}, d = {} (figure 4a)",
                                    fixed_text(p), density_text(p.density())),
                        "", "block size", "b", xs_of(p.blocks()));
  const auto operand = [&p](Mode mode, double b) {
    return p.operand(mode, p.size(), static_cast<uint32_t>(b), p.density());
  };
  curves.curves = mode_curves(p, operand);
  for (Mode mode : kSectionsSparse)
    curves.curves.push_back(
        {fmt::format("{}, relative to b = 1", ops::name_of(mode)),
         [=, &p](double b) {
           const Operand blocks = operand(mode, b);
           const auto one = p.best_tflops(operand(mode, 1)).ours, best = p.best_tflops(blocks).ours;
           return Value{one && best ? std::optional(*best / *one) : std::nullopt,
                        p.published().number("figures-3a-4a.csv", name_of(blocks), "over_single_elements")};
         },
         false});
  return curves;
}

Curves sections_over_sizes(const Products& p) {
  Curves curves = rates(
      fmt::format("TFLOP/s at the best n over feature size: {}, b = {}, d = {}, {} (figure 4b)",
                  ops::name_of(p.precision()), p.block(), density_text(p.density()), p.part().machine.name),
      "Dense counts every operation.", "m = k", "m", xs_of(p.sizes()));
  const auto operand = [&p](Mode mode, double m) {
    return p.operand(mode, static_cast<uint32_t>(m), p.block(), p.density());
  };
  curves.curves = mode_curves(p, operand);
  curves.curves.push_back({"dense",
                           [=, &p](double m) { return sections_rate_of(p, operand(Mode::dense, m)); }, true,
                           report::kGrey});
  return curves;
}

std::vector<Curves> scalings(const Products& p) {
  return {over_density(p), over_blocks(p), sections_over_sizes(p)};
}

template <std::vector<Curves> (*... curves_of)(const Products&)>
std::vector<Figure> tables(const Study& study) {
  std::vector<Figure> all;
  for (const Part& part : study.parts) {
    const Products products(study, part);
    for (const std::vector<Curves>& some : {curves_of(products)...})
      for (const Curves& curves : some) all.push_back(figure_of(curves));
  }
  return all;
}

template <std::vector<Curves> (*curves_of)(const Products&)>
report::Html sections_charts(const Study& study) {
  report::Html all;
  for (const Part& part : study.parts) {
    const Products products(study, part);
    std::vector<report::Html> beside;
    for (const Curves& curves : curves_of(products)) beside.push_back(chart_of(curves));
    all += report::side_by_side(beside);
  }
  return all;
}

Figure table_of(const Products& p) {
  Figure figure{fmt::format("Sparse over dense, each at its best n: m = k = {}, d = {}, {} (table 3)",
                            p.size(), density_text(p.density()), p.part().machine.name),
                "",
                {"type, block", "dynamic/dense", "static/dense", "best n: dynamic", "static", "dense"}};
  const auto n_of = [&](const Operand& operand) -> Figure::Entry {
    const auto n = p.best_n(operand);
    return {n ? std::to_string(*n) : "-"};
  };
  for (const Precision& precision : p.precisions())
    for (uint32_t block : p.blocks()) {
      const auto of = [&](Mode mode) { return Operand{mode, precision, p.size(), block, p.density()}; };
      const Operand with[] = {of(Mode::dynamic_sparse), of(Mode::static_sparse)};
      const Comparison speedups[] = {p.best_speedup(with[0]), p.best_speedup(with[1])};
      if (!speedups[0].ours && !speedups[1].ours) continue;
      const Curves style{.is_shaded = true};
      figure.rows.push_back({{fmt::format("{} b = {}", ops::name_of(precision), block)},
                             entry_of(style, sections_value_of(speedups[0])),
                             entry_of(style, sections_value_of(speedups[1])),
                             n_of(with[0]),
                             n_of(with[1]),
                             n_of(dense_of(with[0]))});
    }
  return figure;
}

Figure break_even_table(const Products& p) {
  Figure figure{
      fmt::format("Density below which sparse beats dense, each at its best n: {} (sections 5.3 and 6)",
                  fixed_text(p)),
      "",
      {"mode", "ours", "published (4,096, FP16)"}};
  if (p.densities().empty()) return figure;
  const double densest = p.densities().front(), sparsest = p.densities().back();
  for (Mode mode : kSectionsSparse)
    for (uint32_t block : p.blocks()) {
      const auto speedup = [&](double d) { return p.best_speedup(p.operand(mode, p.size(), block, d)).ours; };
      const auto first = speedup(densest), density = p.break_even(mode, block);
      if (!first || !speedup(sparsest)) continue;
      const PublishedRow* known = p.published().find("sections-5-6.csv", name_of(mode, block));
      figure.rows.push_back({{name_of(mode, block)},
                             {density       ? fmt::format("{:.3g}", *density)
                              : *first >= 1 ? fmt::format("above {}", density_text(densest))
                                            : fmt::format("below {}", density_text(sparsest))},
                             {known == nullptr ? "" : known->text("density")}});
    }
  return figure;
}

Figure gain_table(const Products& p) {
  Figure figure{"Speed-up of the free planner over the vendor's",
                "",
                {"mode", "products", "median", "90th percentile", "minimum", "more fit"}};
  for (Mode mode : ops::kModes) {
    std::vector<double> gains;
    int more_fit = 0;
    for (const auto& [what, result] : p.results()) {
      const auto freely = p.part().value("gain", key_of(what, ops::Planner::best), "seconds");
      if (what.operand.mode != mode || !freely) continue;
      if (const auto seconds = result->value("seconds"))
        gains.push_back(*seconds / *freely);
      else
        ++more_fit;
    }
    if (gains.empty()) continue;
    figure.rows.push_back({{std::string(ops::name_of(mode))},
                           {std::to_string(gains.size())},
                           {fmt::format("{:.2f}", percentile(gains, 0.5))},
                           {fmt::format("{:.2f}", percentile(gains, 0.9))},
                           {fmt::format("{:.2f}", percentile(gains, 0))},
                           {std::to_string(more_fit)}});
  }
  return figure;
}

template <Figure (*make)(const Products&)>
std::vector<Figure> table(const Study& study) {
  std::vector<Figure> all;
  for (const Part& part : study.parts) all.push_back(make(Products(study, part)));
  return all;
}

/// The comparisons of all operands that have one.
template <Comparison (Products::*compare)(const Operand&) const>
std::vector<Comparison> sections_comparisons(const Study& study) {
  std::vector<Comparison> all;
  for (const Part& part : study.parts) {
    const Products products(study, part);
    for (const Operand& operand : products.operands())
      if (Comparison c = (products.*compare)(operand); c.ours && operand.mode != Mode::dense)
        all.push_back(std::move(c));
  }
  return all;
}

std::vector<Comparison> comparisons_of_products(const Study& study) {
  std::vector<Comparison> all;
  for (const Part& part : study.parts) {
    const Products products(study, part);
    for (const auto& [what, result] : products.results()) {
      const bool is_dense = what.operand.mode == Mode::dense;
      all.push_back(is_dense ? products.tflops(what) : products.speedup(what));
      if (is_dense) continue;
      if (Comparison rate = products.rate(what); rate.published) all.push_back(std::move(rate));
    }
  }
  return all;
}

bool is_gain_shown(const Request& request) {
  return request.only.empty() || std::ranges::find(request.only, "gain") != request.only.end();
}

std::vector<Cell> free_cells(const machine::Machine& machine, const Request& request) {
  if (!request.gain && request.only.empty()) return {};
  if (!request.gain) throw UsageError("section gain of --only shows what --gain plans: pass --gain too");
  if (machine.kind == machine::Kind::host || request.planner == ops::Planner::best)
    throw UsageError("--gain compares the free planner with the vendor's, on a modelled machine");
  return cells_of(machine, request, ops::Planner::best);
}

std::vector<Cell> sections_cells(const machine::Machine& machine, const Request& request) {
  if (request.gain && !is_gain_shown(request))
    throw UsageError("--gain is shown in section gain, which --only leaves out: add it to --only");
  return cells_of(machine, request, request.planner);
}

}  // namespace

Section table_3() {
  return {.name = "table-3",
          .title = "Sparse over dense, each at its best n (table 3)",
          .figures = table<table_of>,
          .comparisons = sections_comparisons<&Products::best_speedup>,
          .reads = kProducts};
}

Section break_even() {
  return {.name = "break-even",
          .title = "Where sparse products are as fast as dense ones (sections 5.3 and 6)",
          .figures = table<break_even_table>,
          .reads = kProducts};
}

Section scaling() {
  return {.name = "scaling",
          .title = "Density, block size and feature size (figures 3a, 4a and 4b)",
          .figures = tables<scalings>,
          .charts = sections_charts<scalings>,
          .comparisons = sections_comparisons<&Products::best_tflops>,
          .reads = kProducts};
}

Section products() {
  return {.name = kProducts,
          .title = "All products (figures 2 and 7)",
          .cells = sections_cells,
          .figures = tables<dense_curves, grids>,
          .charts = sections_charts<dense_curves>,
          .comparisons = comparisons_of_products};
}

Section gain() {
  return {.name = "gain",
          .title = "Free planning against the vendor's planner (with --gain)",
          .cells = free_cells,
          .figures = table<gain_table>,
          .reads = kProducts};
}

}  // namespace tessera::studies::popsparse
