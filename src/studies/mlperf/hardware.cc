// The chip, the machine and the pod: figures of their models beside the slides'.
#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "machine/model/machine.h"
#include "studies/mlperf/rows.h"
#include "studies/mlperf/study.h"

namespace tessera::studies::mlperf {
namespace {

constexpr std::string_view kHardware = "hardware";

const machine::Machine& gc200() {
  static const machine::Machine chip = machine::find("gc200");
  return chip;
}
const machine::Machine& m2000() {
  static const machine::Machine four = machine::find("m2000");
  return four;
}
const machine::Machine& pod64() {
  static const machine::Machine pod = machine::find("pod64");
  return pod;
}

double chip_tflops() { return 2e-12 * gc200().macs_per_cycle_f16 * gc200().tiles * gc200().clock_hz; }

Ours chip_tiles(const Study&) { return modelled(gc200().tiles); }
Ours chip_threads(const Study&) { return modelled(double{1} * gc200().tiles * gc200().workers_per_tile); }

Ours chip_memory(const Study&) {
  return modelled(static_cast<double>(gc200().tile_bytes) * gc200().tiles / (1 << 20), "in MiB");
}
Ours memory_rate(const Study&) {
  const machine::Machine& m = gc200();
  return modelled(
      (m.interleaved_load_bytes_per_cycle() + m.load_bytes_per_cycle) * m.tiles * m.clock_hz * 1e-12,
      "a load of 16 bytes and a store of 8 in each cycle of each tile");
}
Ours exchange_rate(const Study&) {
  return modelled(gc200().exchange_bytes_per_cycle * gc200().tiles * gc200().clock_hz * 1e-12);
}
Ours host_rate(const Study&) {
  return modelled(2e-9 * gc200().host_link_bytes_per_second,
                  "the link of a machine to its host is the 100GbE of line 126; the chip's own PCIe is not "
                  "modelled");
}
Ours link_rate(const Study&) {
  return modelled(2e-9 * 3 * m2000().link_bytes_per_second,
                  "assumed: three neighbours, three links of 16 GB/s each way to each");
}

Ours no_part(const Study&) { return none_because("the model has costs of work, no such part"); }

const std::vector<Beside>& beside_hardware() {
  static const std::vector<Beside> all = {
      {"first MLPerf results",
       [](const Study&) {
         return none_because("it has no numbers; times of the logs are in the section time");
       }},
      {"GC200: tiles", chip_tiles},
      {"GC200: cores", chip_tiles},
      {"GC200: threads", chip_threads},
      {"GC200: memory", chip_memory},
      {"GC200: memory bandwidth", memory_rate},
      {"GC200: exchange", exchange_rate},
      {"GC200: exchange patterns",
       [](const Study&) {
         return in_words(Origin::modelled,
                         "an exchange takes as long as its busiest tile, whatever the pattern");
       }},
      {"GC200: PCIe", no_part},
      {"GC200: host bandwidth", host_rate},
      {"GC200: links",
       [](const Study&) {
         return modelled(9, "assumed: three links to each of up to three neighbours; which is not published");
       }},
      {"GC200: link bandwidth", link_rate},
      {"GC200: types",
       [](const Study&) {
         return in_words(Origin::modelled, "all of these, and BF16 as a type of its own");
       }},
      {"M2000: chips", [](const Study&) { return modelled(m2000().chips); }},
      {"M2000: compute", [](const Study&) { return modelled(1e-3 * chip_tflops() * m2000().chips); }},
      {"M2000: exchange memory",
       [](const Study&) {
         return modelled(1e-9 * static_cast<double>(m2000().streaming_bytes) * m2000().chips,
                         "this number, divided among the chips");
       }},
      {"M2000: fabric",
       [](const Study&) {
         return none_because("chips of two machines are linked as chips of one; no source says how");
       }},
      {"GC200: transistors", no_part},
      {"GC200: process", no_part},
      {"GC200: die", no_part},
      {"GC200: compute", [](const Study&) { return modelled(chip_tflops(), "FP16"); }},
      {"GC200: processor cores", chip_tiles},
      {"GC200: parallel threads", chip_threads},
      {"M2000: gateway", no_part},
      {"M2000: boards and slots", no_part},
      {"M2000: DIMMs", no_part},
      {"M2000: streaming of model states",
       [](const Study&) {
         return in_words(
             Origin::modelled,
             fmt::format("optimizer's state, parameters, sums of gradients and activations can lie there, at "
                         "{:.0f} GB/s for each chip",
                         1e-9 * m2000().streaming_bytes_per_second));
       }},
      {"POD64: servers", [](const Study&) { return modelled(pod64().hosts, "hosts of a POD64"); }},
      {"POD64: top switch", no_part},
      {"POD64: management switch", no_part},
      {"POD64: cooling and power", no_part},
      {"POD64: machines", [](const Study&) { return modelled(double{1} * pod64().chips / m2000().chips); }},
      {"M2000: chassis", no_part},
      {"M2000: host link", [](const Study&) { return modelled(8e-9 * m2000().host_link_bytes_per_second); }},
      {"M2000: management link", no_part},
      {"M2000: sync and IPU links",
       [](const Study&) {
         return in_words(Origin::modelled,
                         fmt::format("a sync across chips takes {:.0f} cycles, a link {:.0f} ns",
                                     m2000().chip_sync_cycles, 1e9 * m2000().link_latency_seconds));
       }},
      {"M2000: flash", no_part},
      {"M2000 and POD64: pictures",
       [](const Study&) { return none_because("pictures; their numbers are in the other rows"); }},
      {"POD64: disaggregation",
       [](const Study&) {
         return in_words(Origin::modelled, "hosts have links to machines, and no part in what these compute");
       }},
      {"POD64: chips", [](const Study&) { return modelled(pod64().chips); }},
  };
  return all;
}

std::vector<Row> hardware_rows(const Study& study) { return rows_of(study, kHardware, beside_hardware()); }

std::vector<Figure> hardware_figures(const Study& study) {
  return {figure_of("The chip, the machine and the pod",
                    "Ours are figures of the modelled machines gc200, m2000 and pod64, or follow from them.",
                    hardware_rows(study))};
}

std::vector<Comparison> hardware_comparisons(const Study& study) {
  return comparisons_of(hardware_rows(study), "hardware");
}

}  // namespace

Section hardware_section() {
  return {.name = kHardware,
          .title = "The chip, the machine and the pod",
          .figures = hardware_figures,
          .comparisons = hardware_comparisons};
}

}  // namespace tessera::studies::mlperf
