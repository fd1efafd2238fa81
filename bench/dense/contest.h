// Times several ways to do the same work, in turns.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/random.h"

namespace tessera::bench {

/// One way to do the work, and how long it took.
struct Contestant {
  std::string name;
  std::function<void()> run;
  double seconds = 0;    ///< median of rounds
  double least = 0;      ///< of all calls: where other programs disturb a computer, that is the work itself
  double predicted = 0;  ///< by its plan; 0: none
};

/// Rounds of all contestants, one after the other, each after a pause in which the idle threads of the one
/// before stop spinning.
void compete(std::vector<Contestant>& contestants);

/// Prints a line for each: microseconds (median and least), GFLOP/s and the fraction of the peak, time
/// relative to the first one's, and what its plan predicts relative to its time.
void print_header();
void print(const std::string& work, double flops, double peak_gflops,
           const std::vector<Contestant>& contestants);

inline std::vector<float> random_floats(size_t count, uint64_t seed) {
  std::vector<float> floats(count);
  base::RandomStream(seed).fill_symmetric(floats);
  return floats;
}

}  // namespace tessera::bench
