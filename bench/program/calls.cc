#include "calls.h"

#include <fmt/format.h>
#include <tessera/spmm.h>
#include <tessera/weight.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"

namespace {

using namespace tessera;

/// Seconds of a call in the fastest of many batches: other programs only add to the time.
double call_seconds(const Spmm& product, const float* x, float* y) {
  constexpr int kBatches = 4000;
  constexpr int kCalls = 20;
  double best = 1;
  for (int batch = 0; batch < kBatches; ++batch) {
    const double seconds = base::seconds_of([&] {
      for (int call = 0; call < kCalls; ++call) product(x, y);
    });
    best = std::min(best, seconds / kCalls);
  }
  return best;
}

void measure(uint32_t size, uint32_t n, uint32_t threads, std::map<std::string, int64_t> force) {
  const std::vector<float> values(size_t{size} * size, 1);
  const Weight weight = Weight::dense({values.data(), size, 1}, size, size);
  const Spmm product(weight, n, {.threads = threads, .force = std::move(force)});
  const std::vector<float> x(size_t{size} * n, 1);
  std::vector<float> y(size_t{size} * n);
  fmt::print("call of a dense product of {} × {}, n = {}, {} threads: {:.2f} µs ({})\n", size, size, n,
             threads, call_seconds(product, x.data(), y.data()) * 1e6, product.plan());
}

}  // namespace

void measure_calls() {
  for (uint32_t size : {16U, 32U, 64U, 128U, 256U})
    for (uint32_t threads : {1U, 2U}) measure(size, 1, threads, {});
}
