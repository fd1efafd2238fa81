#include "report/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "report/page.h"
#include "report/style.h"

namespace tessera::report {
namespace {

using graph::ChipLane;
using graph::ChipSpan;
using Kind = ChipSpan::Kind;

constexpr size_t kKinds = 9;
constexpr std::array<size_t, kKinds> kColourOfKind = {0, 5, 1, 1, 7, 2, 4, 9, kGrey};  // forward … waiting

/// Widths of a schedule without a run, on pages that may be 700 pixels wide: of its shortest pass, which
/// needs space for a name, and least width of the chart.
constexpr double kShortestPass = 16;
constexpr double kScheduleWidth = 720;

/// Spans smaller than this fraction of a chart cannot be seen.
constexpr double kLeastSeen = 1.0 / 4000;

std::vector<Category> categories() {
  std::vector<Category> all;
  for (size_t k = 0; k < kKinds; ++k)
    all.push_back({std::string(name_of(static_cast<Kind>(k))), kColourOfKind[k]});
  return all;
}

bool is_pass(const ChipSpan& span) { return span.kind <= Kind::backward_weight; }

/// Whether two spans belong to the same pass, which may have been interrupted.
bool are_of_one_pass(const ChipSpan& a, const ChipSpan& b) {
  return a.kind == b.kind && a.stage == b.stage && a.micro_batch == b.micro_batch;
}

std::string title_of(const ChipSpan& span) {
  if (is_pass(span))
    return fmt::format("{} pass of micro-batch {} through stage {}", name_of(span.kind), span.micro_batch,
                       span.stage);
  if (span.kind == Kind::exchange)
    return fmt::format("exchange of what stage {} computes of micro-batch {}", span.stage, span.micro_batch);
  return std::string(name_of(span.kind));
}

/// The part of a run from one cycle to another.
struct Window {
  std::string title;
  double from = 0;
  double until = 0;
};

class ChipLanes {
 public:
  explicit ChipLanes(const graph::RunCost& cost)
      : lanes_(cost.lanes),
        under_way_(cost.under_way),
        drawn_(std::min(lanes_.size(), kMostLanes)),
        end_(lanes_[0].spans.back().end) {
    seconds_ = cost.seconds_without_host_io() / end_;
    for (const ChipLane& lane : lanes_)
      for (const ChipSpan& span : lane.spans)
        if (is_pass(span)) {
          stages_[lane.chip].insert(span.stage);
          splits_ = splits_ || span.kind > Kind::backward;
        }
  }

  Html html() const {
    Html all;
    for (const Window& window : windows()) all += chart(timeline(window));
    return all + table();
  }

 private:
  std::vector<Window> windows() const {
    const size_t shown = passes_shown(drawn_);
    double first = end_, last = 0;
    for (size_t l = 0; l < drawn_; ++l) {
      std::vector<const ChipSpan*> passes;
      for (const ChipSpan& span : lanes_[l].spans)
        if (is_pass(span) && (passes.empty() || !are_of_one_pass(*passes.back(), span)))
          passes.push_back(&span);
      if (passes.size() <= shown * 3 / 2) continue;
      first = std::min(first, passes[shown]->begin);
      last = std::max(last, passes[passes.size() - shown]->begin);
    }
    if (last <= first) return {{"What the chips do in a step", 0, end_}};
    return {{"What the chips do in a step: its beginning …", 0, first}, {"… and its end", last, end_}};
  }

  Timeline timeline(const Window& window) const {
    Timeline timeline;
    timeline.frame.title = window.title;
    timeline.frame.note = note();
    timeline.time = {"", Unit::seconds, Growth::linear, window.from * seconds_, window.until * seconds_};
    timeline.categories = categories();
    for (size_t l = 0; l < drawn_; ++l)
      timeline.lanes.push_back(lane(fmt::format("chip {}", lanes_[l].chip), lanes_[l], window));
    if (!under_way_.empty()) timeline.lanes.push_back(lane("links", {0, under_way_}, window));
    return timeline;
  }

  std::string note() const {
    const bool is_shared = std::ranges::any_of(stages_, [](const auto& of) { return of.second.size() > 1; });
    std::string note = "F3, R3, B3: the forward, recomputed and backward pass of micro-batch 3";
    if (splits_) note += "; I3, W3: its gradients of inputs and of weights";
    if (is_shared) note += "; 2:F3 through stage 2, on chips that have several stages";
    if (drawn_ < lanes_.size()) note += fmt::format(". The first {} of {} chips", drawn_, lanes_.size());
    if (!under_way_.empty()) note += ". Over links go sums, while chips do other things";
    return note + ".";
  }

  Timeline::Lane lane(const std::string& name, const ChipLane& of, const Window& window) const {
    Timeline::Lane lane{name, {}};
    const double least = (window.until - window.from) * kLeastSeen;
    for (const ChipSpan& span : of.spans) {
      const double begin = std::max(span.begin, window.from), end = std::min(span.end, window.until);
      if (end - begin < least) continue;
      const bool names_stage = is_pass(span) && stages_.at(of.chip).size() > 1;
      lane.spans.push_back(
          {begin * seconds_, (end - begin) * seconds_, static_cast<size_t>(span.kind),
           names_stage ? fmt::format("{}:{}", span.stage, short_name(span)) : short_name(span),
           fmt::format("{}: {}\nfrom {}", title_of(span),
                       value_text((span.end - span.begin) * seconds_, Unit::seconds),
                       value_text(span.begin * seconds_, Unit::seconds))});
    }
    return lane;
  }

  Html table() const {
    std::vector<RichTable::Column> columns = {{"chip"}, {"stages"}};
    const std::vector<Category> all = categories();
    for (size_t k = 0; k < kKinds; ++k)
      if (is_shown(k)) columns.push_back({all[k].name});
    RichTable table(columns);
    for (const ChipLane& lane : lanes_) {
      std::array<double, kKinds> cycles = {};
      for (const ChipSpan& span : lane.spans) cycles[static_cast<size_t>(span.kind)] += span.end - span.begin;
      std::string stages;
      if (const auto of = stages_.find(lane.chip); of != stages_.end())
        for (const uint32_t stage : of->second)
          stages += fmt::format("{}{}", stages.empty() ? "" : ", ", stage);
      std::vector<RichTable::Cell> cells = {fmt::format("{}", lane.chip), stages};
      for (size_t k = 0; k < kKinds; ++k)
        if (is_shown(k)) cells.emplace_back(cycles[k] == 0 ? "–" : value_text(cycles[k] / end_, Unit::share));
      table.add(std::move(cells));
    }
    return table.html();
  }

  /// Whether the table shows a kind: few pipelines compute gradients of weights in separate passes.
  bool is_shown(size_t kind) const {
    return splits_ || (kind != static_cast<size_t>(Kind::backward_input) &&
                       kind != static_cast<size_t>(Kind::backward_weight));
  }

  const std::vector<ChipLane>& lanes_;
  const std::vector<ChipSpan>& under_way_;
  size_t drawn_;
  double end_;
  double seconds_ = 0;                             ///< of a cycle
  bool splits_ = false;                            ///< whether gradients of weights have passes of their own
  std::map<uint32_t, std::set<uint32_t>> stages_;  ///< by chip
};

}  // namespace

size_t passes_shown(size_t lanes) {
  constexpr size_t kMost = 24, kLeast = 8, kAll = 160;
  return std::clamp(kAll / std::max<size_t>(lanes, 1), kLeast, kMost);
}

std::string short_name(const ChipSpan& span) {
  constexpr std::string_view kLetters = "FRBIW";
  return is_pass(span) ? fmt::format("{}{}", kLetters.at(static_cast<size_t>(span.kind)), span.micro_batch)
                       : std::string(name_of(span.kind));
}

Timeline lanes_of(const graph::PipelineSchedule& schedule, std::span<const graph::StageTimes> times) {
  Timeline timeline;
  timeline.categories = categories();
  for (uint32_t s = 0; s < schedule.stages; ++s) timeline.lanes.push_back({fmt::format("stage {}", s), {}});
  std::vector<double> ends(schedule.stages);
  const auto wait = [&](uint32_t stage, double until) {
    if (until > ends[stage])
      timeline.lanes[stage].spans.push_back(
          {ends[stage], until - ends[stage], static_cast<size_t>(Kind::waiting), "", "waiting"});
  };
  double last = 0, shortest = std::numeric_limits<double>::infinity();
  for (const auto& [pass, begin, end] : timed(schedule, times)) {
    const ChipSpan span{static_cast<Kind>(pass.kind), pass.stage, pass.micro_batch, begin, end};
    wait(pass.stage, begin);
    timeline.lanes[pass.stage].spans.push_back(
        {begin, end - begin, static_cast<size_t>(span.kind), short_name(span), title_of(span)});
    ends[pass.stage] = end;
    last = std::max(last, end);
    shortest = std::min(shortest, end - begin);
  }
  for (uint32_t s = 0; s < schedule.stages; ++s) wait(s, last);
  timeline.frame.width = std::clamp(kShortestPass * last / shortest, kScheduleWidth, kWide);
  timeline.time = {"", Unit::number, Growth::linear, 0, last};
  return timeline;
}

Html lanes_of(const graph::RunCost& cost) { return cost.lanes.empty() ? Html() : ChipLanes(cost).html(); }

}  // namespace tessera::report
