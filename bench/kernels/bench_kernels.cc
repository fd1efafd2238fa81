// Times every listed codelet on one core, on every instruction set, beside the time that its cost predicts.
//
//   bench_kernels [NAME] [SCALE]
//
// NAME selects the codelets whose "codelet/sample" contains it. SCALE is the samples' scale; without one, a
// small, a medium and a large one run.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/isa.h"
#include "base/median.h"
#include "kernels/samples/list.h"
#include "machine/model/machine.h"

namespace tessera {
namespace {

constexpr int kRounds = 9;
constexpr double kRoundSeconds = 2e-3;

double seconds_of(program::RunVertex run, const program::Vertex& vertex, uint64_t times) {
  return base::seconds_of([&] {
    for (uint64_t i = 0; i < times; ++i) run(vertex);
  });
}

/// Median over several rounds of many runs each.
double seconds_per_run(program::RunVertex run, const program::Vertex& vertex) {
  uint64_t times = 1;
  while (seconds_of(run, vertex, times) < kRoundSeconds) times *= 2;
  std::vector<double> rounds;
  for (int i = 0; i < kRounds; ++i)
    rounds.push_back(seconds_of(run, vertex, times) / static_cast<double>(times));
  return base::median(rounds);
}

void measure(const kernels::ListedCodelet& listed, const kernels::NamedSample& named, uint32_t scale) {
  const program::Codelet& codelet = *listed.codelet;
  const kernels::Sample sample = named.make(scale, 1);
  const kernels::SampleVertex placed(sample);
  for (Isa isa : available_isas()) {
    restrict_isa(isa);
    const double seconds =
        seconds_per_run(codelet.simd != nullptr ? codelet.simd : codelet.reference, placed.vertex());
    const machine::Machine host = machine::host(1);
    const bool has_cost = codelet.runs_on != program::RunsOn::tiles;
    const double predicted = has_cost ? host.seconds(codelet.cost(placed.vertex(), host).total()) : 0;
    fmt::print("{:<24} {:>6} {:<8} {:>12.0f} {:>12.0f} {:>8.2f} {:>8.1f} {:>8.1f}\n",
               fmt::format("{}/{}", codelet.name, named.name), scale, name_of(isa), seconds * 1e9,
               predicted * 1e9, predicted / seconds, sample.bytes() / seconds * 1e-9,
               sample.flops() / seconds * 1e-9);
  }
  restrict_isa(available_isas().back());
}

void run(const std::string& wanted, const std::vector<uint32_t>& scales) {
  fmt::print("{:<24} {:>6} {:<8} {:>12} {:>12} {:>8} {:>8} {:>8}\n", "codelet", "scale", "isa", "ns",
             "predicted ns", "ratio", "GB/s", "GFLOP/s");
  for (const kernels::ListedCodelet& listed : kernels::all_codelets())
    for (const kernels::NamedSample& sample : kernels::samples_of(*listed.codelet))
      if (fmt::format("{}/{}", listed.codelet->name, sample.name).find(wanted) != std::string::npos)
        for (uint32_t scale : scales) measure(listed, sample, scale);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "";
  if (argc > 2)
    tessera::run(wanted, {static_cast<uint32_t>(std::stoul(argv[2]))});
  else
    tessera::run(wanted, {2, 16, 128});
}
