#include "studies/mlperf/study.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "studies/packing/study.h"

namespace tessera::studies::mlperf {
namespace {

/// Sections whose cells pack, or train on packs.
constexpr std::array<std::string_view, 3> kOfPacks = {"wikipedia", "squad-1.1", "training"};

bool takes_packs(const Request& request, std::span<const machine::Machine> /*machines*/) {
  const std::vector<Section> sections = sections_of(paper(), request);
  return std::ranges::any_of(sections, [](const Section& section) {
    return std::ranges::find(kOfPacks, section.name) != kOfPacks.end();
  });
}

void load_lengths(const std::string& folder, Request& request) {
  packing::paper().data->load(folder, request);
}

}  // namespace

const Paper& paper() {
  static const std::vector<Section> sections = {
      hardware_section(), wikipedia_section(), squad_section(),  model_section(),    training_section(),
      steps_section(),    speed_up_section(),  host_section(),   pipeline_section(), sharding_section(),
      batch_section(),    numbers_section(),   resnet_section(), time_section()};
  static const Paper paper{
      .name = "mlperf",
      .title = "SW/HW co-optimization on the IPU: an MLPerf case study",
      .about =
          "Every number, table and figure of the MLPerf case study on IPUs, with the tool's number beside "
          "it, or why it has none",
      .source =
          "M. M. Krell, SW/HW co-optimization on the IPU: an MLPerf case study; Graphcore's submissions to "
          "MLPerf Training v1.0 to v2.0 (configurations and logs).",
      .sections = sections,
      .published = kSlides,
      .data = PaperData{.what = "packings and training on packs",
                        .contents = "lengths/wikipedia-512.csv and lengths/squad1.1-384.csv",
                        .is_needed = takes_packs,
                        .load = load_lengths},
      .machines = "pod16,host",
      .has_machines = false,
      .has_verification = false,
      .full =
          "Also estimate whole networks of BERT-large and further local batches of ResNet-50, and train "
          "longer "
          "and all layers of BERT-base, which takes about 20 minutes",
      .examples =
          "  tessera reproduce mlperf --data data --report mlperf.html\n"
          "  tessera reproduce mlperf --only hardware,pipeline,time --json"};
  return paper;
}

}  // namespace tessera::studies::mlperf
