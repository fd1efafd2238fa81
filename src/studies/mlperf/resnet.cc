// ResNet-50: local batches, statistics of several chips, and what hosts send.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "machine/model/machine.h"
#include "report/axis.h"
#include "studies/mlperf/resnet_steps.h"
#include "studies/mlperf/rows.h"
#include "studies/mlperf/study.h"

namespace tessera::studies::mlperf {
namespace {

constexpr std::string_view kResnet = "resnet";

/// An image of 8 bits as the submissions send it, and its label.
constexpr double kImageBytes = 3 * 224 * 224 + 4;

/// With the accumulation that the submissions have on 16 chips, and on 64 and more.
ResnetSetup resnet_on(const std::string& machine, uint32_t chips) {
  return {.machine = machine, .chips = chips, .accumulation = chips == 16 ? 6U : 2U};
}

double images_of_step(const ResnetSetup& setup) {
  return double{1} * setup.chips * setup.local_batch * setup.accumulation;
}

std::optional<double> images_per_second(const ResnetSetup& setup) {
  const std::optional<ResnetStep> step = modelled_resnet_step(setup);
  return step ? std::optional(images_of_step(setup) / step->seconds) : std::nullopt;
}

/// Images that a link to a host carries in a second.
double images_of_link() { return machine::find("pod64").host_link_bytes_per_second / kImageBytes; }

std::vector<Figure> images_figures(const Study&) {
  Figure figure{
      "Images of ResNet-50 over links to hosts",
      "Images of 224 x 224 x 3 bytes, with a label. A link is the 100GbE of a machine. Steps: local batch x "
      "accumulation (6 on 16 chips, 2 on 64) x chips.",
      {"machine", "chips", "images of a step", "bytes of a step", "images/s of one link",
       "of them for each chip", "images/s modelled", "hosts needed"}};
  for (const char* name : {"pod16", "pod64", "bow_pod16", "bow_pod64"}) {
    const machine::Machine pod = machine::find(name);
    const ResnetSetup setup = resnet_on(name, pod.chips);
    const double images = images_of_step(setup), of_link = images_of_link();
    const std::optional<double> rate = images_per_second(setup);
    figure.rows.push_back({{name},
                           {fmt::format("{}", pod.chips)},
                           {fmt::format("{:.0f}", images)},
                           {report::value_text(images * kImageBytes, report::Unit::bytes)},
                           {fmt::format("{:.0f}", of_link)},
                           {fmt::format("{:.0f}", of_link / pod.chips)},
                           {rate ? fmt::format("{:.0f}", *rate) : "not modelled yet"},
                           {rate ? fmt::format("{:.0f}", std::max(1.0, std::ceil(*rate / of_link))) : ""}});
  }
  return {figure};
}

Ours resnet_hosts(const Study&) {
  const std::optional<double> rate = images_per_second(resnet_on("pod64", 64));
  if (rate)
    return modelled(std::max(1.0, std::ceil(*rate / images_of_link())),
                    "of a POD64: as many as send the images that it takes in a second");
  return none_because(fmt::format("{}; one link carries {:.0f} images a second, {:.0f} for each of 64 chips",
                                  kNoResnet, images_of_link(), images_of_link() / 64));
}

Ours resnet_local_batch(const Study&) {
  for (const uint32_t images : {20U, 16U})
    for (const bool recomputes : {false, true}) {
      ResnetSetup setup = resnet_on("pod16", 16);
      setup.local_batch = images;
      setup.recomputes = recomputes;
      const std::optional<ResnetStep> step = modelled_resnet_step(setup);
      if (step && step->fits)
        return modelled(images, recomputes ? "the largest of 16 and 20 that fits, with recomputation"
                                           : "the largest of 16 and 20 that fits, without recomputation");
    }
  return none_because(kNoResnet);
}

Ours resnet_samples(const Study&) {
  const ResnetSetup setup{};
  return computed(double{1} * setup.group * setup.local_batch,
                  "two local batches of 20; mean_over_replicas(x, 2) has means of groups of two replicas");
}

const std::vector<Beside>& beside_resnet() {
  static const std::vector<Beside> all = {
      {"ResNet-50: chips of a replica", [](const Study&) { return none_because(kNoResnet); }},
      {"ResNet-50: hosts at most", resnet_hosts},
      {"ResNet-50: local batch", resnet_local_batch},
      {"batch norm: samples at least",
       [](const Study&) { return none_because("a requirement of the model's quality, not measured here"); }},
      {"batch norm: chips of a group",
       [](const Study&) {
         return computed(std::ceil(32.0 / ResnetSetup().local_batch),
                         "the fewest with 32 samples, at 20 for each");
       }},
      {"batch norm: samples", resnet_samples},
  };
  return all;
}

std::vector<Row> resnet_rows(const Study& study) { return rows_of(study, kResnet, beside_resnet()); }

std::vector<Figure> resnet_figures(const Study& study) {
  std::vector<Figure> all = images_figures(study);
  all.push_back(figure_of("ResNet-50", "", resnet_rows(study)));
  return all;
}

std::vector<Comparison> resnet_comparisons(const Study& study) {
  return comparisons_of(resnet_rows(study), "ResNet-50");
}

}  // namespace

Section resnet_section() {
  return {
      .name = kResnet, .title = "ResNet-50", .figures = resnet_figures, .comparisons = resnet_comparisons};
}

}  // namespace tessera::studies::mlperf
