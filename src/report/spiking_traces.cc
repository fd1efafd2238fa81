#include "report/spiking_traces.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/chart.h"
#include "report/page.h"

namespace tessera::report {
namespace {

/// More dots than that would only make the page larger.
constexpr size_t kMostDots = 4000;

Html activity_chart(const TrainingResult& result, const char* title, double SpikingActivity::*of) {
  LineChart lines;
  lines.frame = {title, "", kHalf, 300};
  lines.x.label = "epoch";
  lines.y = {"fraction of neurons in a step", Unit::share};
  for (size_t layer = 0; layer < result.epochs.front().activity.size(); ++layer) {
    lines.series.push_back({fmt::format("layer {}", layer + 1), {}, layer});
    for (const EpochResult& e : result.epochs)
      lines.series.back().points.push_back({double(e.epoch), e.activity.at(layer).*of});
  }
  return chart(lines);
}

std::string dropped_text(const TrainingResult& result) {
  uint64_t dropped = 0;
  for (const EpochResult& e : result.epochs)
    for (const SpikingActivity& layer : e.activity) dropped += layer.dropped;
  return dropped == 0 ? "Every list had room."
                      : fmt::format("Lists had no room for {} neurons, which were dropped by chance.",
                                    count_text(dropped));
}

Html raster(const SpikingTraces& traces, size_t layer) {
  const std::vector<SpikeEvent>& events = traces.spikes[layer];
  const size_t stride = events.size() / kMostDots + 1;
  LineChart dots;
  dots.frame = {layer == 0 ? "Spikes of the inputs" : fmt::format("Spikes of layer {}", layer),
                stride == 1 ? "" : fmt::format("one in {} of {}", stride, count_text(events.size())), kHalf,
                300};
  dots.x = {"step"};
  dots.y = {"neuron"};
  dots.x.least = dots.y.least = 0;
  dots.x.most = traces.steps;
  dots.y.most = traces.sizes[layer];
  dots.series = {{"spikes", {}, layer}};
  dots.series[0].line = false;
  for (size_t i = 0; i < events.size(); i += stride)
    dots.series[0].points.push_back({double(events[i].step), double(events[i].unit)});
  return chart(dots);
}

Html potentials(const SpikingTraces& traces) {
  const size_t classes = traces.potentials.size() / std::max(1U, traces.steps);
  LineChart lines;
  lines.frame = {"Potentials of the readout", "", kHalf, 300};
  lines.x.label = "step";
  lines.y.label = "potential";
  // The label's, the answer's, and some others.
  constexpr size_t kMostLines = 8;
  std::vector<size_t> shown = {traces.label};
  if (traces.answer != traces.label) shown.push_back(traces.answer);
  for (size_t c = 0; c < classes && shown.size() < kMostLines; ++c)
    if (std::ranges::find(shown, c) == shown.end()) shown.push_back(c);
  for (size_t i = 0; i < shown.size(); ++i) {
    Series& line = lines.series.emplace_back();
    line.name = fmt::format("class {}", shown[i]);
    line.colour = i;
    line.markers = false;
    for (uint32_t t = 0; t < traces.steps; ++t)
      line.points.push_back({double(t), traces.potentials[t * classes + shown[i]]});
  }
  return chart(lines);
}

}  // namespace

Html activity_charts(const TrainingResult& result) {
  if (result.epochs.empty() || result.epochs.front().activity.empty()) return {};
  return side_by_side({activity_chart(result, "Neurons that fire", &SpikingActivity::firing),
                       activity_chart(result, "Neurons that are listed", &SpikingActivity::listed)}) +
         paragraph(dropped_text(result));
}

Html raster_of(const SpikingTraces& traces) {
  std::vector<Html> pieces;
  for (size_t layer = 0; layer < traces.spikes.size(); ++layer) pieces.push_back(raster(traces, layer));
  if (!traces.potentials.empty()) pieces.push_back(potentials(traces));
  Html all = paragraph(
      fmt::format("A recording for testing, of class {}; the network says {}.", traces.label, traces.answer));
  for (size_t i = 0; i < pieces.size(); i += 2)
    all +=
        side_by_side(i + 1 < pieces.size() ? std::vector{pieces[i], pieces[i + 1]} : std::vector{pieces[i]});
  return all;
}

}  // namespace tessera::report
