// Times several ways of doing the same work, alternately.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/random.h"

namespace tessera::bench {

/// One way of doing the work, and its times.
struct Contestant {
  std::string name;
  std::function<void()> run;
  double seconds = 0;    ///< median of rounds
  double least = 0;      ///< least time of all calls: the work itself, where other programs disturb the host
  double predicted = 0;  ///< prediction of its plan; 0: none
};

inline constexpr int kRounds = 21;

/// Runs rounds of all contestants, one after the other, each after a pause in which the idle threads of the
/// previous one stop spinning.
void compete(std::vector<Contestant>& contestants, int rounds = kRounds);

/// The first contestant's rate in relation to the rate of the fastest other one; 0 if there is no other.
struct Ratio {
  double of_medians = 0;
  double of_least = 0;  ///< by least times
};
Ratio ratio_to_best(const std::vector<Contestant>& contestants);

/// Prints a line for each: microseconds (median and least), GFLOP/s and the fraction of the peak, time
/// relative to the first contestant's, and its plan's prediction relative to its time.
void print_header();
void print(const std::string& work, double flops, double peak_gflops,
           const std::vector<Contestant>& contestants);

inline std::vector<float> random_floats(size_t count, uint64_t seed) {
  std::vector<float> floats(count);
  base::RandomStream(seed).fill_symmetric(floats);
  return floats;
}

}  // namespace tessera::bench
