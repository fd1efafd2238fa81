#include "studies/popsparse/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tessera::studies::popsparse {
namespace {

using Entry = Figure::Entry;

constexpr double kDarkest = 4;  // speed-ups from here on, and below its inverse, get the full shade

std::string rate_text(double tflops) {
  return tflops < 1 ? fmt::format("{:.3f}", tflops) : fmt::format("{:.1f}", tflops);
}
std::string speedup_text(double speedup) { return fmt::format("{:.2f}", speedup); }

Entry speedup_entry(std::optional<double> ours, std::optional<double> published) {
  Entry entry;
  entry.words = ours ? speedup_text(*ours) : "-";
  if (published) entry.words += fmt::format(" ({})", speedup_text(*published));
  if (ours) entry.shade = std::log(*ours) / std::log(kDarkest);
  return entry;
}

Entry rate_entry(const std::optional<Best>& ours, std::optional<double> published, double share = 1) {
  Entry entry{ours ? rate_text(ours->tflops * share) : "-"};
  if (ours) entry.title = fmt::format("n = {}", ours->n);
  if (published) entry.words += fmt::format(" ({})", rate_text(*published * share));
  return entry;
}

/// At its best n; a `share` of the operations counts.
Entry rate_entry(const Study& study, const Operand& operand, double share = 1) {
  return rate_entry(study.best(operand), study.published_rate(operand), share);
}

/// Modes and blocks with results for these sizes and densities, dense last.
struct Row {
  Mode mode = Mode::dense;
  uint32_t block = 1;

  std::string name() const {
    return mode == Mode::dense ? "dense" : fmt::format("{} b = {}", ops::name_of(mode), block);
  }
};

std::vector<Row> rows_of(const Study& study) {
  std::vector<Row> rows;
  for (Mode mode : {Mode::static_sparse, Mode::dynamic_sparse})
    for (uint32_t block : study.blocks())
      if (study.has(mode)) rows.push_back({mode, block});
  if (study.has(Mode::dense)) rows.push_back({});
  return rows;
}

bool is_empty(const std::vector<Entry>& row) {
  return std::all_of(row.begin() + 1, row.end(),
                     [](const Entry& entry) { return entry.words.empty() || entry.words.starts_with("-"); });
}

void add_unless_empty(std::vector<Entry> row, Figure& figure) {
  if (row.size() > 1 && !is_empty(row)) figure.rows.push_back(std::move(row));
}

std::string fixed_text(const Study& study) {
  return fmt::format("{}, m = k = {}", ops::name_of(study.precision()), study.size());
}

}  // namespace

Figure dense_figure(const Study& study) {
  Figure figure{"Dense TFLOP/s over n (figure 2)", "", {"type, m = k"}};
  for (uint32_t n : study.columns()) figure.head.push_back(std::to_string(n));
  for (const Precision& precision : study.precisions())
    for (uint32_t size : study.sizes()) {
      std::vector<Entry> row = {{fmt::format("{} {}", ops::name_of(precision), size)}};
      for (uint32_t n : study.columns()) {
        const auto ours = study.tflops({{Mode::dense, precision, size, 1, 1}, n});
        row.push_back(rate_entry(ours ? std::optional(Best{n, *ours, 0}) : std::nullopt,
                                 study.published_dense(precision, size, n)));
      }
      add_unless_empty(std::move(row), figure);
    }
  return figure;
}

Figure table_3(const Study& study) {
  Figure figure{fmt::format("Sparse over dense, each at its best n: m = k = {}, d = {} (table 3)",
                            study.size(), density_text(study.density())),
                "",
                {"type, block", "dynamic/dense", "static/dense", "best n: dynamic", "static", "dense"}};
  for (const Precision& precision : study.precisions())
    for (uint32_t block : study.blocks()) {
      std::vector<Entry> row = {{fmt::format("{} b = {}", ops::name_of(precision), block)}};
      std::vector<Entry> best;
      for (Mode mode : {Mode::dynamic_sparse, Mode::static_sparse}) {
        const Operand operand{mode, precision, study.size(), block, study.density()};
        row.push_back(speedup_entry(study.best_speedup(operand), study.published_best_speedup(operand)));
        const auto at = study.best(operand);
        best.push_back({at ? std::to_string(at->n) : "-"});
      }
      if (is_empty(row)) continue;
      const auto dense = study.best({Mode::dense, precision, study.size(), 1, 1});
      best.push_back({dense ? std::to_string(dense->n) : "-"});
      row.insert(row.end(), best.begin(), best.end());
      figure.rows.push_back(std::move(row));
    }
  return figure;
}

Figure density_figure(const Study& study) {
  Figure figure{fmt::format("TFLOP/s at the best n over density: {} (figure 3a)", fixed_text(study)),
                "Only operations on stored elements count.",
                {"mode"}};
  for (double density : study.densities()) figure.head.push_back("d = " + density_text(density));
  for (const Row& r : rows_of(study)) {
    std::vector<Entry> row = {{r.name()}};
    for (double density : study.densities())
      row.push_back(rate_entry(study, study.operand(r.mode, study.size(), r.block, density),
                               r.mode == Mode::dense ? density : 1));
    add_unless_empty(std::move(row), figure);
  }
  return figure;
}

Figure block_figure(const Study& study) {
  Figure figure{fmt::format("TFLOP/s at the best n over block size: {}, d = {} (figure 4a)",
                            fixed_text(study), density_text(study.density())),
                "Published numbers in brackets.",
                {"mode"}};
  for (uint32_t block : study.blocks()) figure.head.push_back(fmt::format("b = {}", block));
  for (Mode mode : {Mode::static_sparse, Mode::dynamic_sparse}) {
    std::vector<Entry> rates = {{std::string(ops::name_of(mode))}};
    std::vector<Entry> gains = {{fmt::format("{}, relative to b = 1", ops::name_of(mode))}};
    const auto one = study.best(study.operand(mode, study.size(), 1, study.density()));
    for (uint32_t block : study.blocks()) {
      const Operand operand = study.operand(mode, study.size(), block, study.density());
      const auto best = study.best(operand);
      rates.push_back(rate_entry(study, operand));
      Entry gain{one && best ? fmt::format("{:.1f}", best->tflops / one->tflops) : "-"};
      for (const BlockGain& known : published_block_gains())
        if (mode == Mode::static_sparse && known.block == block && block != 1)
          gain.words += fmt::format(" ({:.1f})", known.gain);
      gains.push_back(std::move(gain));
    }
    add_unless_empty(std::move(rates), figure);
    add_unless_empty(std::move(gains), figure);
  }
  return figure;
}

Figure size_figure(const Study& study) {
  Figure figure{fmt::format("TFLOP/s at the best n over feature size: {}, b = {}, d = {} (figure 4b)",
                            ops::name_of(study.precision()), study.block(), density_text(study.density())),
                "Dense counts every operation.",
                {"mode"}};
  for (uint32_t size : study.sizes()) figure.head.push_back(fmt::format("m = {}", size));
  for (Mode mode : {Mode::static_sparse, Mode::dynamic_sparse, Mode::dense}) {
    std::vector<Entry> row = {{std::string(ops::name_of(mode))}};
    for (uint32_t size : study.sizes())
      row.push_back(rate_entry(study, study.operand(mode, size, study.block(), study.density())));
    add_unless_empty(std::move(row), figure);
  }
  return figure;
}

Figure law_figure(const Study& study) {
  Figure figure{
      fmt::format("Law of speed-ups at the best n: {} (figure 4c)", ops::name_of(study.precision())),
      "",
      {"of", "law", "products", "R²", "typical error"}};
  const PowerLaw& published = published_law();
  for (Mode mode : {Mode::static_sparse, Mode::dynamic_sparse})
    if (const auto fit = study.law(mode))
      figure.rows.push_back({{std::string(ops::name_of(mode))},
                             {law_text(fit->law)},
                             {std::to_string(fit->samples)},
                             {fmt::format("{:.3f}", fit->r_squared)},
                             {fmt::format("×/÷ {:.2f}", std::exp(fit->typical_error))}});
  if (!figure.rows.empty()) figure.rows.push_back({{"published, static"}, {law_text(published)}, {}, {}, {}});
  return figure;
}

Figure break_even_figure(const Study& study) {
  struct Statement {
    Mode mode;
    uint32_t block;
    const char* words;
  };
  static constexpr Statement statements[] = {
      {Mode::static_sparse, 1, "0.05; from 1/32 on"}, {Mode::static_sparse, 4, "from 1/8 on"},
      {Mode::static_sparse, 8, "from 1/8 on"},        {Mode::static_sparse, 16, "from 1/8 on"},
      {Mode::dynamic_sparse, 8, "from 1/32 on"},      {Mode::dynamic_sparse, 16, "from 1/32 on"}};
  Figure figure{
      fmt::format("Density below which sparse beats dense, each at its best n: {} (sections 5.3 and 6)",
                  fixed_text(study)),
      "",
      {"mode", "ours", "published (4,096, FP16)"}};
  for (const Row& row : rows_of(study)) {
    const auto density = study.break_even(row.mode, row.block);
    if (row.mode == Mode::dense || study.densities().empty()) continue;
    const double densest = study.densities().front(), sparsest = study.densities().back();
    const auto speedup = [&](double d) {
      return study.best_speedup(study.operand(row.mode, study.size(), row.block, d));
    };
    const auto first = speedup(densest);
    if (!first || !speedup(sparsest)) continue;
    const std::string ours = density       ? fmt::format("{:.3g}", *density)
                             : *first >= 1 ? fmt::format("above {}", density_text(densest))
                                           : fmt::format("below {}", density_text(sparsest));
    const auto* const known =
        std::find_if(std::begin(statements), std::end(statements),
                     [&](const Statement& s) { return s.mode == row.mode && s.block == row.block; });
    figure.rows.push_back({{row.name()}, {ours}, {known == std::end(statements) ? "" : known->words}});
  }
  return figure;
}

std::vector<Figure> grid_figures(const Study& study, const Precision& precision) {
  std::vector<Figure> figures;
  for (uint32_t size : study.sizes())
    for (Mode mode : {Mode::static_sparse, Mode::dynamic_sparse}) {
      Figure figure{
          fmt::format("{} over dense at the same n: {}, m = k = {} (figure 7)",
                      mode == Mode::static_sparse ? "Static" : "Dynamic", ops::name_of(precision), size),
          "",
          {"block, density"}};
      for (uint32_t n : study.columns()) figure.head.push_back(fmt::format("n = {}", n));
      for (uint32_t block : study.blocks())
        for (double density : study.densities()) {
          std::vector<Entry> row = {{fmt::format("b = {}, d = {}", block, density_text(density))}};
          for (uint32_t n : study.columns()) {
            const Cell cell{{mode, precision, size, block, density}, n};
            const RatioCell* published = study.published_ratio(cell);
            Entry entry =
                speedup_entry(study.speedup(cell), published == nullptr ? std::nullopt : published->speedup);
            if (published != nullptr && !published->speedup) entry.words += " (-)";
            const Result* result = study.find(cell);
            if (result == nullptr) entry.words.clear();
            if (result != nullptr) entry.title = result->reason;
            row.push_back(std::move(entry));
          }
          add_unless_empty(std::move(row), figure);
        }
      figure.note = "-: sparse or dense does not fit.";
      if (!figure.rows.empty()) figures.push_back(std::move(figure));
    }
  return figures;
}

std::vector<Figure> figures_of(const Study& study) {
  std::vector<Figure> figures = {dense_figure(study),      table_3(study),         density_figure(study),
                                 block_figure(study),      size_figure(study),     law_figure(study),
                                 break_even_figure(study), deviation_figure(study)};
  for (Figure& grid : grid_figures(study, study.precision())) figures.push_back(std::move(grid));
  std::erase_if(figures, [](const Figure& figure) { return figure.rows.empty(); });
  return figures;
}

std::string notes_of(const Study& study) {
  std::string notes;
  size_t verified = 0, executed = 0;
  for (const auto& [cell, result] : study.outcome().results) {
    executed += result.verified.has_value();
    verified += result.verified == true;
  }
  if (executed != 0)
    notes +=
        fmt::format("Executed and compared with float64: {} products, {} correct.\n", executed, verified);
  return notes;
}

}  // namespace tessera::studies::popsparse
