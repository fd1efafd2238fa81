// Recordings of spikes.
#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "data/events/aedat.h"
#include "data/events/binning.h"
#include "data/events/event_array.h"
#include "data/events/n_mnist.h"
#include "fuzz/formats.h"
#include "support/event_files.h"

namespace tessera::fuzz {
namespace {

using test::aedat_event;
using test::aedat_header;
using test::aedat_packet;
using test::little_endian;
using test::n_mnist_event;
using test::npy_file;

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

void require_sound(const Recordings& r) {
  require(r.begin.size() == r.count() + 1, "a recording without its spikes");
  for (const uint32_t label : r.labels) require(label < r.classes, "a class that does not exist");
  for (size_t i = 0; i < r.count(); ++i) {
    const auto spikes = r.spikes(i);
    for (const SpikeEvent& event : spikes)
      require(event.step < r.steps && event.unit < r.units, "a spike that does not exist");
    require(std::ranges::adjacent_find(spikes, std::greater_equal<>()) == spikes.end(), "spikes in disorder");
  }
}

/// Through a sensor's view into steps.
void require_sound(const std::vector<train::PixelEvent>& events, uint32_t side) {
  for (const train::PixelEvent& event : events)
    require(event.x < side && event.y < side && event.polarity < 2 && event.time >= 0, "an impossible event");
  const train::SensorView view(side, side, {.downscale = std::max(1U, side / 34)});
  Recordings to{.steps = 10, .units = view.units(), .classes = 1};
  train::Binning binning(to, 100'000);
  uint64_t outside = 0;
  binning.add(train::seen_through(view, events, 0, outside), 0);
  require_sound(to);
}

bool read_n_mnist(std::span<const std::byte> content) {
  return accepts([&] { require_sound(train::read_n_mnist(io::Source("w", content)), train::kNMnistSide); });
}

bool read_aedat(std::span<const std::byte> content) {
  return accepts([&] { require_sound(train::read_aedat(io::Source("w", content)), train::kDvsSide); });
}

bool read_gestures(std::span<const std::byte> content) {
  return accepts([&] {
    for (const train::Gesture& gesture : train::read_gestures(io::Source("w", content)))
      require(gesture.label < train::kGestures && gesture.begin < gesture.end, "an impossible gesture");
  });
}

bool read_event_array(std::span<const std::byte> content) {
  return accepts(
      [&] { require_sound(train::read_event_array(io::Source("w", content)), train::kMostUnits); });
}

std::vector<std::string> n_mnist_examples() {
  const std::string overflow = n_mnist_event(0, 240, 0, 0);
  return {"", n_mnist_event(3, 33, 1, 70'000),
          n_mnist_event(3, 3, 0, 5) + overflow + n_mnist_event(3, 3, 0, 6)};
}

std::vector<std::string> aedat_examples() {
  const std::string packet =
      aedat_packet(1, 8, 0, 2, aedat_event(127, 0, 1, 5) + aedat_event(3, 4, 0, 6, /*valid=*/false));
  return {aedat_header(), aedat_header() + packet,
          aedat_header() + aedat_packet(2, 4, 1, 2, "abcdefgh") + packet};
}

std::vector<std::string> gestures_examples() {
  return {"class,startTime_usec,endTime_usec\n1,10,20\n11,25,30\n",
          "h\r\n 2 , 5 , 4611686018427387904\r\n\r\n"};
}

std::vector<std::string> event_array_examples() {
  const std::string row =
      little_endian(5, 4) + little_endian(6, 4) + little_endian(70, 4) + little_endian(1, 4);
  return {npy_file("'<i4'", "(2, 4)", row + row), npy_file("'>i2'", "(1, 4)", std::string(8, '\0'), true),
          npy_file("[('t', '<u4'), ('x', '>u2'), ('y', '|u1'), ('p', '|b1')]", "(1,)", std::string(8, '\1')),
          npy_file("[('x', '|u1'), ('t', '<i8')]", "(0,)", "")};
}

}  // namespace

const Format kNMnist{"N-MNIST", read_n_mnist, n_mnist_examples};
const Format kAedat{"AEDAT", read_aedat, aedat_examples};
const Format kGestures{"gestures", read_gestures, gestures_examples};
const Format kEventArray{"event array", read_event_array, event_array_examples};

}  // namespace tessera::fuzz
