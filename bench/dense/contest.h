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
  double predicted = 0;  ///< by its plan; 0: none
};

/// Rounds of all contestants, one after the other, each after a pause in which the idle threads of the one
/// before stop spinning.
void compete(std::vector<Contestant>& contestants);

/// Prints a line for each: microseconds, GFLOP/s and the fraction of the peak, speed-up of the first.
void print(const std::string& work, double flops, double peak_gflops,
           const std::vector<Contestant>& contestants);

inline std::vector<float> random_floats(size_t count, uint64_t seed) {
  std::vector<float> floats(count);
  base::RandomStream(seed).fill_symmetric(floats);
  return floats;
}

}  // namespace tessera::bench
