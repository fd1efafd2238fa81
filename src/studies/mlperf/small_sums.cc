#include "studies/mlperf/small_sums.h"

#include "base/half.h"
#include "base/random.h"
#include "base/stochastic_rounding.h"

namespace tessera::studies::mlperf {

Result small_sums(uint32_t count) {
  constexpr float kTerm = 0x1p-13F;
  constexpr uint32_t kSums = 64;
  base::Half nearest = base::to_half(1.0F);
  for (uint32_t i = 0; i < count; ++i) nearest = base::to_half(base::to_float(nearest) + kTerm);
  double total = 0;
  for (uint32_t sum = 0; sum < kSums; ++sum) {
    base::RandomSequence random{base::RandomStream(sum)};
    base::Half rounded = base::to_half(1.0F);
    for (uint32_t i = 0; i < count; ++i)
      rounded = base::to_half(base::to_float(rounded) + kTerm, random.word());
    total += static_cast<double>(base::to_float(rounded));
  }
  Result result;
  result.values["nearest"] = static_cast<double>(base::to_float(nearest));
  result.values["stochastic"] = total / kSums;
  return result;
}

}  // namespace tessera::studies::mlperf
