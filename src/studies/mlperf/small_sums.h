// Sums of many small numbers in FP16, as updates of parameters are.
#pragma once

#include <cstdint>

#include "studies/paper/study.h"

namespace tessera::studies::mlperf {

/// 1 + `count` / 8192, added up in FP16 term by term: "nearest" rounds each sum to nearest, "stochastic" is
/// the mean of 64 such sums with stochastic rounding.
Result small_sums(uint32_t count);

}  // namespace tessera::studies::mlperf
