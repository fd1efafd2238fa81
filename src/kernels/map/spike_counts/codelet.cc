#include "kernels/map/spike_counts/codelet.h"

#include <algorithm>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/common/spike_lists.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

// Cycles of a worker. On a tile: for a list, loading its length and a loop; for an entry, loading the number
// of the neuron and its count, adding one, and storing it. On a host they overlap.
constexpr double kTileList = 8;
constexpr double kTileEntry = 4;
constexpr double kHostList = 8;
constexpr double kHostEntry = 2;

SpikeLists lists_of(const Vertex& v) {
  return {v.fields[spike_counts_field::ids], v.fields[spike_counts_field::num],
          v.params[spike_counts_param::capacity]};
}

void spike_counts_reference(const Vertex& v) {
  const SpikeLists lists = lists_of(v);
  const FieldView& counts = v.fields[spike_counts_field::counts];
  clear(counts);
  for (uint32_t b = 0; b < counts.rows; ++b)
    for (uint32_t t = 0; t < lists.num.rows; ++t)
      for (uint32_t i = 0; i < lists.spikes(t, b); ++i) {
        const uint32_t id = lists.id(t, b, i);
        if (id >= counts.cols) continue;  // of a layer with more neurons
        std::byte* at = address_of(counts, b, id);
        store(at, load<float>(at) + 1);
      }
}

void spike_counts_gradient_reference(const Vertex& v) {
  const SpikeLists lists = lists_of(v);
  const FieldView &dcounts = v.fields[spike_counts_gradient_field::dcounts],
                  &dids = v.fields[spike_counts_gradient_field::dids];
  for (uint32_t t = 0; t < dids.rows; ++t)
    for (uint32_t b = 0; b < dcounts.rows; ++b)
      for (uint32_t i = 0; i < lists.capacity; ++i) {
        const bool is_counted = i < lists.listed(t, b) && lists.id(t, b, i) < dcounts.cols;
        store(address_of(dids, t, lists.place(b, i)),
              is_counted ? load<float>(address_of(dcounts, b, lists.id(t, b, i))) : 0.0F);
      }
}

/// Entries of a sample's lists: those that it has, if they are known.
double entries_of(const Vertex& v, uint32_t b, bool fired) {
  const SpikeLists lists = lists_of(v);
  if (lists.num.data == nullptr)
    return double{1} * lists.num.rows * static_cast<double>(v.params[spike_counts_param::expected]);
  double entries = 0;
  for (uint32_t t = 0; t < lists.num.rows; ++t) entries += fired ? lists.spikes(t, b) : lists.listed(t, b);
  return entries;
}

/// Samples are dealt to the workers of a tile.
program::PhaseTimes cost_of(const Vertex& v, const machine::Machine& m, bool fired) {
  const FieldView& num = v.fields[spike_counts_field::num];
  const uint32_t samples = num.cols / 2;
  if (m.kind == machine::Kind::host) {
    const double lists = double{1} * num.rows * samples;
    const auto expected = static_cast<double>(v.params[spike_counts_param::expected]);
    return in_phase(Phase::compute, lists * (kHostList + kHostEntry * expected));
  }
  double longest = 0;
  for (uint32_t first = 0; first < m.workers_per_tile; ++first) {
    double cycles = 0;
    for (uint32_t b = first; b < samples; b += m.workers_per_tile)
      cycles += num.rows * kTileList + entries_of(v, b, fired) * kTileEntry;
    longest = std::max(longest, cycles);
  }
  return in_phase(Phase::compute, m.workers_per_tile * longest);
}

program::PhaseTimes spike_counts_cost(const Vertex& v, const machine::Machine& m) {
  program::PhaseTimes cycles = cost_of(v, m, true);
  cycles[Phase::compute] += static_cast<double>(v.fields[spike_counts_field::counts].elements()) / 2;
  return cycles;
}

program::PhaseTimes spike_counts_gradient_cost(const Vertex& v, const machine::Machine& m) {
  program::PhaseTimes cycles = cost_of(v, m, false);
  cycles[Phase::compute] += static_cast<double>(v.fields[spike_counts_gradient_field::dids].elements()) / 2;
  return cycles;
}

}  // namespace

TESSERA_DEFINE_FAMILY(spike_counts, TESSERA_SPIKE_COUNTS_CODELETS, TESSERA_CODELET)

}  // namespace tessera::kernels
