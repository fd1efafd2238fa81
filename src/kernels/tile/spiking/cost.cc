// What spiking vertices on tiles cost. Where lists are not known, as in dry runs, they have the expected
// lengths.
#include "kernels/common/cost.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common/spike_lists.h"
#include "kernels/common/spiking_neuron.h"
#include "kernels/tile/spiking/codelet.h"

// No public cycle formulas exist for these: they are counts of the instructions that their loops take, with
// the rates of the other tile codelets. A worker issues one instruction per 6 cycles of the tile; a load may
// issue beside an addition.
namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::PhaseTimes;
using program::Vertex;

// Cycles of the supervisor for starting the workers, waiting for them, and testing whether the pass has a
// step; and of a worker for its start.
constexpr double kSupervisor = 24;
constexpr double kWorkerStart = 25;

// Forward. Of a sample: finding its list, and the loop. Of a listed neuron: its number, the address of its
// row, once for each register block; of a vector of its row a load beside an addition.
constexpr double kList = 12;
constexpr double kEvent = 3;
constexpr double kRowVector = 1;
constexpr double kBlockVectors = 8;  // that stay in registers
// Cycles of a vector of neurons: potential, comparison, reset, flags; more for a current, an adaptation, and
// the surrogate with a division.
constexpr double kUpdate = 12;
constexpr double kCurrent = 4;
constexpr double kAdaptation = 6;
constexpr double kSurrogate = 10;
constexpr double kStash = 1;

// Lists. Four flags are one word: a load and a branch if it is 0. Of a listed neuron: its number is appended;
// a random number and a comparison where there are more than fit.
constexpr double kFlagsPerWord = 4;
constexpr double kWord = 2;
constexpr double kAppend = 6;
constexpr double kChance = 25;
constexpr double kPrefix = 30;  // a worker's place in the list, from the counts of the others

// Backward. Of a sample: binary searches in the spikes and the other listed neurons; of a neuron found there:
// its gradient. Of a vector of neurons: as forward, and more for what learns.
constexpr double kSearchStep = 4;
constexpr double kFound = 6;
constexpr double kBack = 10;
constexpr double kLearned = 8;

// Rows. Of an event whose row a worker owns: the address, and of a vector load, addition, store. Of a place
// of the input gradient: the address, of a vector load and multiply-add, then the sum of the lanes.
constexpr double kGradientVector = 2;
constexpr double kPlace = 7;

double vectors(double neurons, Type type) { return std::ceil(neurons / tile_vector_width(type)); }
double register_blocks(double row_vectors) { return std::ceil(row_vectors / kBlockVectors); }

bool is_none(const FieldView& time) {
  return time.data != nullptr && !time.empty() && load<uint32_t>(time.data) == 0;
}

PhaseTimes computing(double cycles) { return in_phase(Phase::compute, kSupervisor + cycles); }

/// Cycles of the tile if samples are dealt to the workers: the slowest worker's, on all of them.
template <class OfSample>
double dealt(const machine::Machine& m, uint32_t samples, const OfSample& of_sample) {
  const uint32_t workers = m.workers_per_tile;
  std::vector<double> cycles(workers, kWorkerStart);
  for (uint32_t b = 0; b < samples; ++b) cycles[b % workers] += of_sample(b);
  return workers * *std::ranges::max_element(cycles);
}

double fired_of(const SpikeLists& lists, uint32_t b, int64_t expected) {
  return lists.are_known() ? lists.spikes(0, b) : static_cast<double>(expected) / 2;
}
double listed_of(const SpikeLists& lists, uint32_t b, int64_t expected) {
  return lists.are_known() ? lists.listed(0, b) : static_cast<double>(expected);
}

/// The entries of the first part of a list, up to `end`, whose numbers are in [low, high).
uint32_t entries_in(const SpikeLists& lists, uint32_t b, uint32_t end, uint32_t low, uint32_t high) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < end; ++i) count += lists.id(0, b, i) >= low && lists.id(0, b, i) < high ? 1 : 0;
  return count;
}

double search_cycles(double entries) { return kSearchStep * std::ceil(std::log2(entries + 1)); }

}  // namespace

PhaseTimes spiking_tile_forward_cost(const Vertex& v, const machine::Machine& m) {
  using namespace spiking_tile_forward_field;
  const auto& f = v.fields;
  if (is_none(f[time])) return computing(0);
  const SpikingNeuron neuron(v.params, spiking_tile_param::kinds);
  const uint32_t neurons = f[dynamics].cols, samples = f[in_num].cols / 2;
  const SpikeLists in(f[in_ids], f[in_num], v.params[spiking_tile_param::in_capacity]);
  const SpikeLists own(f[own_ids], f[own_num], v.params[spiking_tile_param::capacity]);
  const double row = vectors(neurons, f[weight].type),
               event = kEvent * register_blocks(row) + kRowVector * row;
  const double states = vectors(neurons, Type::f32);
  double update = kUpdate + (neuron.synaptic ? kCurrent : 0) + (neuron.adaptive ? kAdaptation : 0);
  if (!f[surrogate].empty()) update += kSurrogate;
  for (const size_t stash : {resets, potentials, currents}) update += f[stash].empty() ? 0 : kStash;
  return computing(dealt(m, samples, [&](uint32_t b) {
    double events = fired_of(in, b, v.params[spiking_tile_param::expected_in]);
    if (neuron.recurrent) events += fired_of(own, b, v.params[spiking_tile_param::expected]);
    return kList + event * events + update * states;
  }));
}

PhaseTimes spiking_tile_lists_cost(const Vertex& v, const machine::Machine& m) {
  using namespace spiking_tile_lists_field;
  const auto& f = v.fields;
  if (is_none(f[time])) return computing(0);
  const FieldView& all = f[flags];
  const double workers = m.workers_per_tile;
  double cycles = 0;
  for (uint32_t b = 0; b < all.rows; ++b) {
    auto listed = static_cast<double>(v.params[spiking_tile_lists_param::expected]);
    if (all.data != nullptr) {
      listed = 0;
      for (uint32_t n = 0; n < all.cols; ++n) listed += load<uint8_t>(address_of(all, b, n)) != 0 ? 1 : 0;
    }
    const bool drops = listed > static_cast<double>(v.params[spiking_tile_lists_param::capacity]);
    cycles +=
        workers * (kWorkerStart + kPrefix + kWord * std::ceil(worker_slice(m, all.cols) / kFlagsPerWord)) +
        listed * (kAppend + (drops ? kChance : 0));
  }
  return computing(cycles);
}

PhaseTimes spiking_tile_backward_cost(const Vertex& v, const machine::Machine& m) {
  using namespace spiking_tile_backward_field;
  const auto& f = v.fields;
  if (is_none(f[time]))
    return computing(static_cast<double>(f[dx].elements()) / tile_vector_width(Type::f32));
  const SpikingNeuron neuron(v.params, spiking_tile_param::kinds);
  const uint32_t neurons = f[dynamics].cols, samples = neurons == 0 ? 0 : f[dx].cols / neurons;
  const auto low = static_cast<uint32_t>(v.params[spiking_tile_param::first]);
  const SpikeLists own(f[own_ids], f[own_num], v.params[spiking_tile_param::capacity]);
  const int64_t expected = v.params[spiking_tile_param::expected];
  double update = kBack + (neuron.synaptic ? kCurrent : 0) + (neuron.adaptive ? kAdaptation : 0);
  if (!f[ddynamics].empty()) update += kLearned;
  return computing(dealt(m, samples, [&](uint32_t b) {
    double cycles = kList + update * vectors(neurons, Type::f32);
    if (!neuron.spikes) return cycles;
    const double fired = fired_of(own, b, expected), listed = listed_of(own, b, expected);
    // Only a few of a layer's expected entries are this tile's.
    const double found =
        own.are_known() ? entries_in(own, b, own.listed(0, b), low, low + neurons) : std::min(listed, 1.0);
    return cycles + search_cycles(fired) + search_cycles(listed - fired) + kFound * found;
  }));
}

PhaseTimes spiking_tile_rows_cost(const Vertex& v, const machine::Machine& m) {
  using namespace spiking_tile_rows_field;
  const auto& f = v.fields;
  const uint32_t neurons = f[dweight].cols, samples = f[num].cols / 2, workers = m.workers_per_tile;
  const int64_t room = v.params[spiking_tile_rows_param::capacity];
  const SpikeLists lists(f[ids], f[num], room);
  const int64_t expected = v.params[spiking_tile_rows_param::expected];
  const double filled =
      f[din].empty() ? 0 : static_cast<double>(f[din].elements()) / tile_vector_width(f[din].type);
  if (is_none(f[time])) return computing(filled);
  // Rows of the gradient are dealt to the workers in ranges, so that no two add to one.
  const double add = kEvent + kGradientVector * vectors(neurons, Type::f32);
  const uint32_t rows = (f[dweight].rows + workers - 1) / std::max(1U, workers);
  double slowest = 0;
  for (uint32_t w = 0; w < workers; ++w) {
    double cycles = kWorkerStart;
    for (uint32_t b = 0; b < samples; ++b) {
      const double fired = fired_of(lists, b, expected);
      const double own = lists.are_known()
                             ? entries_in(lists, b, lists.spikes(0, b), w * rows, (w + 1) * rows)
                             : fired / workers;
      cycles += kList + search_cycles(fired) + own * add;
    }
    slowest = std::max(slowest, cycles);
  }
  double cycles = workers * slowest;
  if (!f[din].empty())
    cycles += filled + dealt(m, samples, [&](uint32_t b) {
                const double row = vectors(neurons, f[weight].type);
                return kList + listed_of(lists, b, expected) * (kPlace + row);
              });
  return computing(cycles);
}

}  // namespace tessera::kernels
