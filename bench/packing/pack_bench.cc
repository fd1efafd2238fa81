// Sequence packing: planning, lengths to index arrays, streams. One thread.
//   bench_packing MAX_LENGTH [HISTOGRAM]     such as 512 wikipedia-512.csv; without a histogram, 16 million
//                                            log-normal lengths, a third of the maximum in the median
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/packing.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/median.h"
#include "base/random.h"

namespace {

using namespace tessera;  // NOLINT: a program of one file
using pack::Input;
using pack::Lengths;

constexpr int kRounds = 5;

double median_seconds(const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) seconds.push_back(base::seconds_of(work));
  return base::median(seconds);
}

void print(const std::string& what, double seconds, double sequences, const std::string& note = "") {
  fmt::print("{:<34} {:>10.3f} ms {:>10.1f} M sequences/s  {}\n", what, seconds * 1e3,
             sequences / seconds * 1e-6, note);
}

/// Every sequence of a histogram once, in random order.
std::vector<uint32_t> shuffled_lengths(const pack::Histogram& histogram) {
  std::vector<uint32_t> lengths;
  lengths.reserve(histogram.sequences());
  for (uint32_t length = 1; length <= histogram.max_length(); ++length)
    lengths.insert(lengths.end(), histogram.counts[length], length);
  base::RandomSequence random{base::RandomStream(1)};
  for (size_t left = lengths.size(); left > 1; --left)
    std::swap(lengths[left - 1], lengths[random.below(static_cast<uint32_t>(left))]);
  return lengths;
}

/// Log-normal lengths, clipped at the maximum.
pack::Histogram synthetic(uint32_t max_length, size_t sequences) {
  const base::RandomStream random(2);
  pack::Histogram histogram = pack::Histogram::of_max_length(max_length);
  const double median = max_length / 3.0;
  for (size_t i = 0; i < sequences; ++i) {
    const double length = median * std::exp(static_cast<double>(random.normal(i)));
    ++histogram.counts[static_cast<size_t>(std::clamp(length, 1.0, double{1} * max_length))];
  }
  return histogram;
}

void measure_planning(const pack::Histogram& histogram) {
  for (const pack::Algorithm algorithm :
       {pack::Algorithm::spfhp, pack::Algorithm::lpfhp, pack::Algorithm::best}) {
    if (algorithm == pack::Algorithm::best && histogram.max_length() > 2048) continue;  // takes long
    pack::Packing packing;
    const double seconds = median_seconds([&] { packing = plan(histogram, {.algorithm = algorithm}); });
    print(fmt::format("plan, {}, L = {}", name_of(algorithm), histogram.max_length()), seconds,
          static_cast<double>(packing.sequences),
          fmt::format("{} packs, {:.3f} %, gap {}", packing.packs(), 100 * packing.efficiency(),
                      packing.gap()));
  }
}

void measure_index(const std::vector<uint32_t>& values, uint32_t max_length) {
  const Lengths lengths{std::span<const uint32_t>(values)};
  const auto sequences = static_cast<double>(values.size());
  Input input;
  print("count", median_seconds([&] { input = count(lengths, max_length); }), sequences);
  const pack::Packing packing = plan(input.histogram, {.algorithm = pack::Algorithm::lpfhp});
  pack::PackIndex index;
  for (const auto& [name, order] :
       {std::pair("sort and assemble", pack::OrderOptions{}),
        std::pair("sort and assemble, shuffled", pack::OrderOptions{.shuffle = 1}),
        std::pair("sort and assemble, for 8 ranks", pack::OrderOptions{.shuffle = 1, .ranks = 8})}) {
    index = {};
    print(name, median_seconds([&] { index = index_packs(packing, input, lengths, order); }), sequences);
  }
  index = {};
  const double all = median_seconds([&] {
    const Input counted = count(lengths, max_length);
    index = index_packs(plan(counted.histogram, {.algorithm = pack::Algorithm::lpfhp}), counted, lengths);
  });
  print("lengths to index arrays, lpfhp", all, sequences);
}

void measure_stream(const std::vector<uint32_t>& values, uint32_t max_length, uint32_t window) {
  uint64_t packs = 0;
  uint64_t tokens = 0;
  const double seconds = median_seconds([&] {
    pack::StreamPacker packer({.max_length = max_length, .window = window});
    packs = 0;
    const auto take = [&] {
      while (!packer.next().empty()) ++packs;
    };
    for (const uint32_t length : values) {
      packer.push(length);
      take();
    }
    packer.finish();
    take();
    tokens = packer.seen().tokens;
  });
  print(fmt::format("stream, window {}", window), seconds, static_cast<double>(values.size()),
        fmt::format("{:.3f} %",
                    100.0 * static_cast<double>(tokens) / (static_cast<double>(packs) * max_length)));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) throw UsageError("usage: bench_packing MAX_LENGTH [HISTOGRAM]");
  const auto max_length = static_cast<uint32_t>(std::stoul(argv[1]));
  const pack::Histogram histogram =
      argc > 2 ? pack::read_histogram(argv[2], max_length).histogram : synthetic(max_length, 16'000'000);
  fmt::print("{} sequences, {} tokens, packs of {}\n", histogram.sequences(), histogram.tokens(), max_length);
  measure_planning(histogram);
  const std::vector<uint32_t> values = shuffled_lengths(histogram);
  measure_index(values, max_length);
  for (const uint32_t window : {100U, 1000U, 10'000U}) measure_stream(values, max_length, window);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
