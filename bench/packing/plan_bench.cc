// Plans of a histogram by every algorithm at several depths: packs, proven bound, and time. One
// thread.
//
//     bench_pack_plans MAX_LENGTH HISTOGRAM      such as 512 wikipedia-512.csv
#include <fmt/format.h>
#include <tessera/packing.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/median.h"
#include "report/table.h"

namespace tessera {
namespace {

constexpr uint32_t kDepths[] = {2, 3, 4, 8, 12, 16, 0};
constexpr double kLongEnough = 0.5;  // total seconds of the repetitions
constexpr size_t kMostRepetitions = 50;

/// The packing with the median time of several runs.
pack::Packing median_plan(const pack::Histogram& histogram, const pack::Options& options) {
  std::vector<double> seconds;
  pack::Packing packing;
  double total = 0;
  while (seconds.empty() || (total < kLongEnough && seconds.size() < kMostRepetitions)) {
    packing = plan(histogram, options);
    seconds.push_back(packing.seconds);
    total += packing.seconds;
  }
  packing.seconds = base::median(seconds);
  return packing;
}

std::vector<std::string> row_of(const pack::Packing& packing, bool certified) {
  return {packing.max_per_pack == 0 ? "any" : std::to_string(packing.max_per_pack),
          fmt::format("{}{}", name_of(packing.algorithm), certified ? ", certified" : ""),
          std::to_string(packing.packs()),
          fmt::format("{:.3f}", 100 * packing.efficiency()),
          std::to_string(packing.lower_bound()),
          std::to_string(packing.gap()),
          report::seconds_text(packing.seconds)};
}

int run(uint32_t max_length, const std::string& path) {
  const pack::Histogram histogram = pack::read_histogram(path, max_length).histogram;
  report::Table table({"depth", "algorithm", "packs", "efficiency %", "bound", "gap", "time"});
  for (const uint32_t depth : kDepths) {
    for (const pack::Algorithm algorithm : pack::algorithms) {
      if (algorithm == pack::Algorithm::nnlshp && (depth != 3 || max_length > 2048)) continue;
      for (const bool certify : {false, true}) {
        if (certify && algorithm != pack::Algorithm::best) continue;
        const pack::Options options{.algorithm = algorithm, .max_per_pack = depth, .certify = certify};
        table.add(row_of(median_plan(histogram, options), certify));
      }
    }
  }
  std::fputs(table.text().c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: bench_pack_plans MAX_LENGTH HISTOGRAM\n", stderr);
    return 2;
  }
  try {
    return tessera::run(static_cast<uint32_t>(std::stoul(argv[1])), argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
