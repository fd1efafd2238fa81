#include "report/pretraining_report.h"

#include <fmt/format.h>

#include "report/chart.h"
#include "report/page.h"
#include "report/trace.h"

namespace tessera::report {
namespace {

Html figures_of(const PretrainingReport& r) {
  std::vector<KeyFigure> figures;
  if (r.pretrained && !r.pretrained->evaluations.empty()) {
    const PretrainingEvaluation& last = r.pretrained->evaluations.back();
    figures.push_back({"held-out loss", fmt::format("{:.4f}", last.held_out_loss),
                       fmt::format("{:.4f} of masked tokens, {:.4f} of next sentences", last.masked_lm_loss,
                                   last.next_sentence_loss)});
  }
  if (r.pretrained && r.pretrained->steps_run > 0) {
    figures.push_back(
        {"sequences per second", fmt::format("{:.1f}", r.pretrained->sequences_per_second),
         fmt::format("{} tokens", count_text(static_cast<uint64_t>(r.pretrained->tokens_per_second)))});
  }
  add_cost_figures(figures, r, r.pretrained && r.pretrained->steps_run > 0 ? r.pretrained->step_seconds : 0);
  return key_figures(figures);
}

Html evaluations_of(const PretrainingResult& result) {
  LineChart lines;
  lines.frame = {"Loss by sequences trained with", "", 2 * kHalf, 300};
  lines.x.label = "sequences";
  lines.y = {"loss", Unit::number};
  lines.series = {{"training", {}, 0}, {"held out", {}, 1}};
  RichTable table(
      {{"step"}, {"sequences"}, {"loss"}, {"held-out loss"}, {"masked tokens"}, {"next sentence"}});
  for (const PretrainingEvaluation& e : result.evaluations) {
    lines.series[0].points.push_back({double(e.sequences), e.loss});
    lines.series[1].points.push_back({double(e.sequences), e.held_out_loss});
    table.add({count_text(e.step), count_text(e.sequences), fmt::format("{:.4f}", e.loss),
               fmt::format("{:.4f}", e.held_out_loss), fmt::format("{:.4f}", e.masked_lm_loss),
               fmt::format("{:.4f}", e.next_sentence_loss)});
  }
  return chart(lines) + table.html();
}

}  // namespace

std::string heading_of_evaluations() {
  return "    step  sequences      loss  held-out loss  masked tokens  next sentence      time\n";
}

std::string text_of(const PretrainingEvaluation& e) {
  return fmt::format("{:8}  {:9}  {:8.4f}  {:13.4f}  {:13.4f}  {:13.4f}  {:>8}\n", e.step, e.sequences,
                     e.loss, e.held_out_loss, e.masked_lm_loss, e.next_sentence_loss,
                     e.seconds > 0 ? value_text(e.seconds, Unit::seconds) : "earlier");
}

std::string trace_of(const PretrainingReport& r) {
  std::vector<TracedLanes> runs;
  for (const PhaseCosts& phase : r.phases)
    runs.push_back({phase.name.empty() ? "training step" : fmt::format("training step with {}", phase.name),
                    &phase.step});
  return lanes_json(runs);
}

std::string page_of(const PretrainingReport& r) {
  Page page(fmt::format("Pre-training of {}", r.network), fmt::format("{}, {}", r.data, r.machine));
  Html overview = figures_of(r);
  if (r.pretrained && !r.pretrained->evaluations.empty()) overview += evaluations_of(*r.pretrained);
  page.add_section("Results", overview);
  Html packs;
  for (const std::string& line : r.packs) packs += paragraph(line);
  page.add_section("Sequences and packs", packs);
  add_cost_sections(page, r);
  return page.html();
}

}  // namespace tessera::report
