// Hosts of a pod: the data that they send for a step of BERT, against the rate of their links.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "machine/model/machine.h"
#include "report/axis.h"
#include "studies/mlperf/bert_steps.h"
#include "studies/mlperf/rows.h"
#include "studies/mlperf/study.h"

namespace tessera::studies::mlperf {
namespace {

constexpr std::string_view kHost = "host";

/// Seconds in which one link to a host carries the inputs of a step, without its latency.
double seconds_on_a_link(const BertSetup& setup) {
  const machine::Machine pod = machine::find(setup.machine);
  return static_cast<double>(input_bytes(pack_of(kSequencesOfPack, setup.packs_of_step()))) /
         pod.host_link_bytes_per_second;
}

std::vector<Figure> host_figures(const Study& study) {
  Figure figure{
      "Inputs of a step of BERT-large over the link to a host",
      "All inputs are integers of 32 bits. A link is the 100GbE of a machine. Hosts needed: as many as send "
      "a step's inputs while a step is computed.",
      {"setup", "chips", "hosts", "packs", "bytes a step", "on one link", "step", "of the step",
       "hosts needed"}};
  for (const BertSetup& setup : bert_setups()) {
    const machine::Machine pod = machine::find(setup.machine);
    const std::optional<ModelledStep> step = step_of(study, setup);
    const double on_link = seconds_on_a_link(setup);
    figure.rows.push_back(
        {{setup.name},
         {fmt::format("{}", pod.chips)},
         {fmt::format("{}", pod.hosts)},
         {report::count_text(setup.packs_of_step())},
         {report::count_text(input_bytes(pack_of(kSequencesOfPack, setup.packs_of_step())))},
         {report::value_text(on_link, report::Unit::seconds)},
         {step ? report::value_text(step->seconds, report::Unit::seconds) : ""},
         {step ? fmt::format("{:.3f} %", 100 * on_link / step->seconds) : ""},
         {step ? fmt::format("{:.0f}", std::max(1.0, std::ceil(on_link / step->seconds))) : ""}});
  }
  return {figure};
}

/// The fraction of a link's time that the inputs of steps take; none: the step was not run.
std::optional<double> share_of_link(const Study& study, std::string_view name) {
  const BertSetup* setup = find_setup(name);
  const std::optional<ModelledStep> step = step_of(study, *setup);
  return step ? std::optional(seconds_on_a_link(*setup) / step->seconds) : std::nullopt;
}

Ours not_host_bound(const Study& study) {
  const BertSetup* setup = find_setup("v1.0 POD64");
  const double bytes = static_cast<double>(input_bytes(pack_of(kSequencesOfPack, setup->packs_of_step())));
  const std::optional<double> share = share_of_link(study, setup->name);
  std::string remark = fmt::format("a step's inputs on a POD64 are {:.1f} MB, {:.2f} ms on one link",
                                   1e-6 * bytes, 1e3 * seconds_on_a_link(*setup));
  if (share) remark += fmt::format(", {:.3f} % of the step", 100 * *share);
  return in_words(Origin::modelled, remark);
}

Ours hosts_of_bert(const Study& study) {
  const std::optional<double> share = share_of_link(study, "v1.0 POD64");
  return if_run(
      share ? std::optional(std::max(1.0, std::ceil(*share))) : std::nullopt, Origin::modelled,
      "as many as send the inputs of a step while it is computed; what a host computes is not modelled");
}

const std::vector<Beside>& beside_host() {
  static const std::vector<Beside> all = {
      {"BERT is not host bound", not_host_bound},
      {"hosts of 64 chips with BERT", hosts_of_bert},
      {"power and cost", [](const Study&) { return none_because("neither is modelled"); }},
      {"model and data parallelism",
       [](const Study&) {
         return in_words(Origin::modelled, "stages on chips of their own, in replicas, fed by one host");
       }},
      {"M2000 of a POD16",
       [](const Study&) {
         return modelled(double{1} * machine::find("pod16").chips / machine::find("m2000").chips,
                         "16 chips are four machines of 4; the slide may mean that one is the host's link");
       }},
  };
  return all;
}

std::vector<Row> host_rows(const Study& study) { return rows_of(study, kHost, beside_host()); }

std::vector<Figure> host_all_figures(const Study& study) {
  std::vector<Figure> all = host_figures(study);
  all.push_back(figure_of("Hosts of a pod", "", host_rows(study)));
  return all;
}

std::vector<Comparison> host_comparisons(const Study& study) {
  return comparisons_of(host_rows(study), "hosts");
}

}  // namespace

Section host_section() {
  return {.name = kHost,
          .title = "Hosts of a pod",
          .figures = host_all_figures,
          .comparisons = host_comparisons,
          .reads = kSteps};
}

}  // namespace tessera::studies::mlperf
