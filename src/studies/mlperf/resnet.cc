// ResNet-50: steps and times to train, local batches, statistics of several chips, and what hosts send.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "machine/model/machine.h"
#include "report/axis.h"
#include "studies/mlperf/resnet_steps.h"
#include "studies/mlperf/rows.h"
#include "studies/mlperf/study.h"

namespace tessera::studies::mlperf {
namespace {

/// An image of 8 bits as the submissions send it, and its label.
constexpr double kImageBytes = 3 * 224 * 224 + 4;
constexpr double kImagesOfEpoch = 1'281'167;

std::optional<double> images_per_second(const Study& study, const ResnetSetup& setup) {
  const std::optional<ResnetStep> step = modelled_resnet_step(study, setup);
  return step ? std::optional(setup.images() / step->seconds) : std::nullopt;
}

/// The rate from the minutes of the logs, which include evaluations.
std::optional<double> logged_images_per_second(const Study& study, const ResnetSetup& setup) {
  const std::string name = fmt::format("ResNet-50 {} POD{}", setup.round, setup.chips);
  const std::optional<double> minutes = study.published.number(kLogsTable, name, "minutes");
  return minutes ? std::optional(setup.epochs * kImagesOfEpoch / (60 * *minutes)) : std::nullopt;
}

std::string rate_text(std::optional<double> rate) { return rate ? fmt::format("{:.0f}", *rate) : ""; }

/// Images that a link to a host carries in a second.
double images_of_link() { return machine::find("pod64").host_link_bytes_per_second / kImageBytes; }

/// Number of hosts that can send images at this rate per second.
double hosts_of(double rate) { return std::max(1.0, std::ceil(rate / images_of_link())); }

Figure setups_figure(const Study& study) {
  Figure figure{
      "Steps of ResNet-50 on pods, modelled",
      "A chip has a replica, with blocks that are computed again and norms over two chips; LARS, FP16. Whole "
      "steps are estimated of 2 and 6 micro-batches on a POD16 and 2 on a POD64; others follow: a pass of a "
      "micro-batch takes a quarter of the difference between 6 and 2, images of other local batches take as "
      "long each, Bow chips take as many cycles, and pods of 128 and 256 chips take as long for sums as one "
      "of 64. Images of the logs: epochs of the configuration over the minutes, which have evaluations. A "
      "link is the 100GbE of a machine, of which each chip has its share. v1.0 trained with momentum, whose "
      "updates take less.",
      {"setup", "machine", "local batch", "accumulation", "images of a step", "step", "is", "fullest tile",
       "fits", "images/s", "of the logs", "of a link for each chip", "hosts needed"}};
  for (const ResnetSetup& setup : resnet_setups()) {
    const std::optional<ResnetStep> step = modelled_resnet_step(study, setup);
    const std::optional<double> rate = images_per_second(study, setup);
    figure.rows.push_back({{setup.round},
                           {setup.machine},
                           {fmt::format("{}", setup.local_batch)},
                           {fmt::format("{}", setup.accumulation)},
                           {report::count_text(setup.images())},
                           {step ? report::value_text(step->seconds, report::Unit::seconds) : ""},
                           {!step            ? why_no_resnet(study)
                            : step->is_whole ? "whole"
                                             : "extrapolated"},
                           {step ? report::count_text(step->fullest_tile_bytes) : ""},
                           {step ? step->fits ? "yes" : "no" : ""},
                           {rate_text(rate)},
                           {rate_text(logged_images_per_second(study, setup))},
                           {rate_text(images_of_link() / setup.chips)},
                           {rate ? fmt::format("{:.0f}", hosts_of(*rate)) : ""}});
  }
  return figure;
}

/// Setups with 16 and 20 images on a POD16, with and without recomputation.
std::vector<ResnetSetup> local_batches() {
  std::vector<ResnetSetup> all;
  for (const uint32_t images : {20U, 16U})
    for (const bool recomputes : {false, true})
      all.push_back({.machine = "pod16", .local_batch = images, .recomputes = recomputes});
  return all;
}

Figure local_batches_figure(const Study& study) {
  Figure figure{
      "Local batches of ResNet-50 on a POD16",
      "Six micro-batches of a step. The fullest tile has 638,976 bytes; what needs more is estimated "
      "as if there was room.",
      {"images", "blocks", "fullest tile", "fits", "images/s", "what lacks"}};
  for (const ResnetSetup& setup : local_batches()) {
    const std::optional<ResnetStep> step = modelled_resnet_step(study, setup);
    if (!step || !step->is_whole) continue;
    figure.rows.push_back({{fmt::format("{}", setup.local_batch)},
                           {setup.recomputes ? "computed again" : "kept"},
                           {report::count_text(step->fullest_tile_bytes)},
                           {step->fits ? "yes" : "no"},
                           {rate_text(setup.images() / step->seconds)},
                           {step->reason}});
  }
  return figure;
}

Ours resnet_hosts(const Study& study) {
  const std::optional<double> rate = images_per_second(study, *resnet_setup_of("v1.0", 64));
  if (rate)
    return modelled(hosts_of(*rate), "of a POD64: as many as send the images that it takes in a second");
  return none_because(fmt::format("{}; one link carries {:.0f} images a second, {:.0f} for each of 64 chips",
                                  why_no_resnet(study), images_of_link(), images_of_link() / 64));
}

Ours resnet_chips(const Study& study) {
  const std::optional<ResnetStep> step = modelled_resnet_step(study, *resnet_setup_of("v1.0", 16));
  if (!step) return none_because(why_no_resnet(study));
  return modelled(
      1,
      fmt::format("the fullest tile needs {} of {} bytes{}", report::count_text(step->fullest_tile_bytes),
                  report::count_text(machine::find("pod16").tile_bytes), step->fits ? "" : "; does not fit"));
}

Ours resnet_local_batch(const Study& study) {
  std::string needs;
  for (const ResnetSetup& setup : local_batches()) {
    const std::optional<ResnetStep> step = modelled_resnet_step(study, setup);
    if (!step || !step->is_whole) continue;
    const char* how = setup.recomputes ? "with recomputation" : "without recomputation";
    if (step->fits)
      return modelled(setup.local_batch, fmt::format("the largest of 16 and 20 that fits, {}", how));
    needs += fmt::format("; {} images {} need {} bytes of the fullest tile", setup.local_batch, how,
                         report::count_text(step->fullest_tile_bytes));
  }
  return none_because(needs.empty() ? why_no_resnet(study) : "none that was tried fits" + needs);
}

Ours resnet_samples(const Study&) {
  const ResnetSetup setup{};
  return computed(double{1} * setup.group * setup.local_batch, "two local batches of 20: --norm-replicas 2");
}

const std::vector<Beside>& beside_resnet() {
  static const std::vector<Beside> all = {
      {"ResNet-50: chips of a replica", resnet_chips},
      {"ResNet-50: hosts at most", resnet_hosts},
      {"ResNet-50: local batch", resnet_local_batch},
      {"ResNet-50: recomputation",
       [](const Study&) {
         return in_words(Origin::computed,
                         "one option: --recompute, of graph::resnet ResnetOptions::recompute");
       }},
      {"batch norm: samples at least",
       [](const Study&) { return none_because("a requirement of the model's quality, not measured here"); }},
      {"batch norm: chips of a group",
       [](const Study&) {
         return computed(std::ceil(32.0 / ResnetSetup().local_batch),
                         "the fewest with 32 samples, at 20 for each");
       }},
      {"batch norm: samples", resnet_samples},
      {"batch norm: setting",
       [](const Study&) { return in_words(Origin::computed, "one option: --norm-replicas 2"); }},
  };
  return all;
}

std::vector<Row> resnet_rows(const Study& study) { return rows_of(study, kResnet, beside_resnet()); }

/// Minutes to train, for the epochs of the configurations.
Ours minutes_of_resnet(const Study& study, const std::string& round, uint32_t chips) {
  const ResnetSetup* setup = resnet_setup_of(round, chips);
  if (setup == nullptr) return none_because("no configuration of such a pod is known");
  const std::optional<ResnetStep> step = modelled_resnet_step(study, *setup);
  if (!step) return none_because(why_no_resnet(study));
  const double steps = setup->epochs * kImagesOfEpoch / setup->images();
  return modelled(steps * step->seconds / 60,
                  fmt::format("{:.0f} steps of {:.4f} s, {} epochs, on {}, {}{}", steps, step->seconds,
                              setup->epochs, setup->machine, step->is_whole ? "whole" : "extrapolated",
                              step->fits ? "" : "; does not fit"));
}

std::vector<Row> resnet_time_rows(const Study& study) {
  return rows_of_logs(study, "ResNet-50", minutes_of_resnet);
}

std::vector<Figure> resnet_figures(const Study& study) {
  return {setups_figure(study), local_batches_figure(study), figure_of("ResNet-50", "", resnet_rows(study)),
          figure_of("Minutes to train ResNet-50",
                    "Ours: epochs of the submission's configuration times modelled steps. No evaluation, "
                    "start or checkpoint counts.",
                    resnet_time_rows(study))};
}

std::vector<Comparison> resnet_comparisons(const Study& study) {
  std::vector<Comparison> all = comparisons_of(resnet_rows(study), "ResNet-50");
  for (Comparison& c : comparisons_of(resnet_time_rows(study), "time to train, ResNet-50"))
    all.push_back(std::move(c));
  return all;
}

}  // namespace

Section resnet_section() {
  return {.name = kResnet,
          .title = "ResNet-50",
          .cells = resnet_cells,
          .figures = resnet_figures,
          .comparisons = resnet_comparisons};
}

}  // namespace tessera::studies::mlperf
