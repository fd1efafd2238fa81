// Sizes of a vertex of a spiking layer, and the layout of its working memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/spike_lists.h"
#include "kernels/common/spiking_overflow.h"
#include "kernels/host/spiking/codelet.h"

namespace tessera::kernels {

inline constexpr uint32_t kSpikingPanel = 64;
/// Number of samples, and of steps, that are processed with a panel of weights at a time.
inline constexpr uint32_t kSpikingSamples = 16;
inline constexpr uint32_t kSpikingSteps = 128;
/// Entries behind a list, so that whole vectors can be stored at its end.
inline constexpr uint32_t kSpikingSlack = 32;

/// The shape of a vertex of either codelet.
inline SpikingShape spiking_shape(const program::Vertex& v, const program::FieldView& in_num,
                                  const program::FieldView& weight, const program::FieldView& dynamics) {
  const SpikingNeuron neuron(v.params, spiking_param::kinds);
  SpikingShape shape;
  shape.steps = in_num.rows;
  shape.batch = in_num.cols / 2;
  shape.neurons = dynamics.cols;
  const uint32_t panels = weight.cols == 0 ? 0 : (shape.neurons + weight.cols - 1) / weight.cols;
  shape.recurrent = neuron.recurrent;
  const uint32_t sources = panels == 0 ? 0 : weight.rows / panels;
  shape.inputs = sources - (shape.recurrent ? shape.neurons : 0);
  shape.in_capacity = static_cast<uint32_t>(v.params[spiking_param::in_capacity]);
  shape.capacity = static_cast<uint32_t>(v.params[spiking_param::capacity]);
  return shape;
}

inline SpikingOverflow spiking_overflow(const program::Vertex& v) {
  using namespace spiking_forward_field;
  return {v.fields[control], v.fields[dropped], v.params[spiking_param::capacity],
          v.params[spiking_param::operation], v.params[spiking_param::first_sample]};
}

/// Allocates parts of an array, each aligned to a cache line.
class SpikingArena {
 public:
  template <class T>
  size_t allocate(size_t count) {
    const size_t at = floats_;
    floats_ += (count * sizeof(T) + 63) / 64 * 16;
    return at;
  }
  size_t floats() const { return floats_; }

 private:
  size_t floats_ = 0;
};

/// Working memory of a forward vertex, as offsets in floats from its scratch on.
struct SpikingForwardScratch {
  explicit SpikingForwardScratch(const SpikingShape& s)
      : samples(std::max(1U, std::min(s.batch, kSpikingSamples))),
        steps(s.recurrent ? 1 : std::min(s.steps, kSpikingSteps)),
        columns((s.neurons + kSpikingPanel - 1) / kSpikingPanel * kSpikingPanel),
        strips(columns / 16),
        in_room(size_t{steps} * s.in_capacity + kSpikingSlack),
        found_room(size_t{steps} * columns + size_t{strips} * kSpikingSlack) {
    SpikingArena arena;
    in_begin = arena.allocate<uint32_t>(size_t{samples} * (steps + 1));
    in_ids = arena.allocate<uint32_t>(samples * in_room);
    taken = arena.allocate<uint32_t>(size_t{samples} * strips);
    potential = arena.allocate<float>(size_t{samples} * columns);
    current = arena.allocate<float>(size_t{samples} * columns);
    adaptation = arena.allocate<float>(size_t{samples} * columns);
    spiked = arena.allocate<uint64_t>(size_t{samples} * strips);
    counts = arena.allocate<uint8_t>(size_t{samples} * strips * steps);
    found_ids = arena.allocate<uint16_t>(samples * found_room);
    found_distances = arena.allocate<float>(samples * found_room);
    merged_ids = arena.allocate<uint32_t>(columns + kSpikingSlack);
    merged_distances = arena.allocate<float>(columns + kSpikingSlack);
    listed_ids = arena.allocate<uint32_t>(columns + 2 * kSpikingSlack);
    listed_distances = arena.allocate<float>(columns + 2 * kSpikingSlack);
    other_ids = arena.allocate<uint32_t>(columns + kSpikingSlack);
    other_distances = arena.allocate<float>(columns + kSpikingSlack);
    own_ids = arena.allocate<uint32_t>(samples * (size_t{columns} + kSpikingSlack));
    own_counts = arena.allocate<uint32_t>(samples);
    floats = arena.floats();
  }

  uint32_t samples, steps, columns, strips;
  size_t in_room, found_room;
  size_t in_begin, in_ids, taken, potential, current, adaptation, spiked, counts, found_ids, found_distances,
      merged_ids, merged_distances, listed_ids, listed_distances, other_ids, other_distances, own_ids,
      own_counts;
  size_t floats;
};

/// Lists of a block of samples, sorted for the gradients of weights and inputs.
struct SpikingSortedScratch {
  SpikingSortedScratch() = default;
  SpikingSortedScratch(SpikingArena& arena, uint32_t samples, uint32_t source_count, size_t entries,
                       bool has_others)
      : room(entries + kSpikingSlack), pair_room(entries / 2 + source_count + kSpikingSlack) {
    counters = arena.allocate<uint32_t>(size_t{samples} * (source_count + 1));
    flat = arena.allocate<uint32_t>(samples * room);
    flat_places = arena.allocate<uint32_t>(has_others ? samples * room : 0);
    flat_counts = arena.allocate<uint32_t>(samples);
    sources = arena.allocate<uint32_t>(samples * pair_room);
    steps = arena.allocate<uint32_t>(2 * samples * pair_room);
    places = arena.allocate<uint32_t>(has_others ? 2 * samples * pair_room : 0);
    counts = arena.allocate<uint32_t>(samples);
    other_sources = arena.allocate<uint32_t>(has_others ? samples * room : 0);
    other_steps = arena.allocate<uint32_t>(has_others ? samples * room : 0);
    other_places = arena.allocate<uint32_t>(has_others ? samples * room : 0);
    other_counts = arena.allocate<uint32_t>(samples);
  }
  size_t room = 0, pair_room = 0;
  size_t counters = 0, flat = 0, flat_places = 0, flat_counts = 0, sources = 0, steps = 0, places = 0,
         counts = 0;
  size_t other_sources = 0, other_steps = 0, other_places = 0, other_counts = 0;
};

/// Working memory of a gradients vertex, as offsets in floats from its scratch on.
struct SpikingGradientsScratch {
  explicit SpikingGradientsScratch(const SpikingShape& s)
      : columns((s.neurons + kSpikingPanel - 1) / kSpikingPanel * kSpikingPanel),
        strips(columns / 16),
        samples(std::max(
            1U, std::min({s.batch, kSpikingSamples, kSteps / std::max(1U, s.steps * columns_of(s))}))),
        own_room(size_t{s.steps} * s.capacity + kSpikingSlack) {
    SpikingArena arena;
    const size_t strip_floats = (size_t{s.steps} + 1) * (s.recurrent ? columns : kSpikingPanel);
    gradient = arena.allocate<float>((s.recurrent ? samples : 1) * strip_floats);
    derivative = arena.allocate<float>(s.recurrent ? columns : strip_floats);
    upstream = arena.allocate<float>(columns);
    carried = arena.allocate<float>(size_t{3} * columns);
    in = SpikingSortedScratch(arena, samples, s.inputs, size_t{s.steps} * s.in_capacity, true);
    if (s.recurrent)
      own = SpikingSortedScratch(arena, samples, s.neurons, size_t{s.steps} * s.capacity, false);
    pair_sums = arena.allocate<float>(2 * samples * in.pair_room);
    other_sums = arena.allocate<float>(samples * in.room);
    flat_places = arena.allocate<uint32_t>(samples * own_room);
    flat_gradients = arena.allocate<float>(samples * own_room);
    flat_derivatives = arena.allocate<float>(samples * own_room);
    flat_counts = arena.allocate<uint32_t>(samples);
    bucket_begin = arena.allocate<uint32_t>(size_t{samples} * (strips + 2));
    bucket_places = arena.allocate<uint32_t>(samples * own_room);
    bucket_gradients = arena.allocate<float>(samples * own_room);
    bucket_derivatives = arena.allocate<float>(samples * own_room);
    floats = arena.floats();
  }

  uint32_t columns, strips, samples;
  size_t own_room;
  size_t gradient, derivative, upstream, carried;
  SpikingSortedScratch in, own;
  size_t pair_sums, other_sums;
  size_t flat_places, flat_gradients, flat_derivatives, flat_counts;
  size_t bucket_begin, bucket_places, bucket_gradients, bucket_derivatives;
  size_t floats;

 private:
  static constexpr uint32_t kSteps = 1U << 21;
  static uint32_t columns_of(const SpikingShape& s) {
    return std::max({s.in_capacity, s.capacity, s.recurrent ? s.neurons : 1});
  }
};

}  // namespace tessera::kernels
