// Tessera's performance targets, and whether a comparison meets them.
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
  double aim = 0;        ///< upper limit; 0: none
  bool at_least = true;  ///< lower rather than upper limit
  bool reached() const { return at_least ? measured >= limit : measured <= limit; }
};

/// Every target for this work that this comparison can judge.
std::vector<Verdict> judge(const Comparison& comparison);

}  // namespace tessera::bench
