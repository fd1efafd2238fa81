// What Tessera sets out to reach, and whether a comparison does.
#pragma once

#include <string>
#include <vector>

#include "spmm/compare.h"

namespace tessera::bench {

/// One target for one comparison.
struct Verdict {
  std::string what;  ///< "efficiency", "time / bandwidth limit", …
  double measured = 0;
  double limit = 0;
  double aim = 0;        ///< beyond the limit; 0: none
  bool at_least = true;  ///< or at most
  bool reached() const { return at_least ? measured >= limit : measured <= limit; }
};

/// Every target that is set for this work and that this comparison can judge.
std::vector<Verdict> judge(const Comparison& comparison);

}  // namespace tessera::bench
