#include "base/random.h"
#include "kernels/map/spike_counts/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

using enum Type;

/// Lists of some of 9 · scale neurons.
Sample lists(const program::Codelet& codelet, uint32_t scale, uint64_t seed) {
  const uint32_t steps = 3 * scale, samples = 2 * scale, capacity = 4 * scale;
  const base::RandomStream random(seed);
  Sample s(codelet);
  s.values(u16, steps, samples * capacity, [&](uint64_t i) { return random.word(i) % (9 * scale); });
  s.values(u32, steps, samples * 2, [&](uint64_t i) {
    const uint32_t listed = random.word(i / 2 + 999) % (capacity + 1);
    return i % 2 == 1 ? listed : listed / 2;
  });
  return s.param(capacity).param(capacity / 2);
}

Sample counts(uint32_t scale, uint64_t seed) {
  Sample s = lists(spike_counts_codelet, scale, seed);
  return s.unset(f32, 2 * scale, 9 * scale);
}

Sample gradient(uint32_t scale, uint64_t seed) {
  Sample s = lists(spike_counts_gradient_codelet, scale, seed);
  s.random(f32, 2 * scale, 9 * scale, seed + 1);
  return s.unset(f32, 3 * scale, 2 * scale * 4 * scale);
}

constexpr NamedSample spike_counts_uses[] = {{"f32", counts}};
constexpr NamedSample spike_counts_gradient_uses[] = {{"f32", gradient}};

}  // namespace

TESSERA_DEFINE_SAMPLES(spike_counts, TESSERA_SPIKE_COUNTS_CODELETS)

}  // namespace tessera::kernels
