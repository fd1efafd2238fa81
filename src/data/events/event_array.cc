#include "data/events/event_array.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "io/fail.h"
#include "io/npy_integers.h"

namespace tessera::train {
namespace {

constexpr int64_t kLatest = int64_t{1} << 52;

/// Where the values of an event are.
struct Columns {
  size_t x = 0;
  std::optional<size_t> y;
  size_t t = 0;
  std::optional<size_t> p;
  size_t count = 0;
};

Columns columns_of(const std::string& name, const io::NpyIntegers& array) {
  if (array.fields.empty()) {
    if (array.shape.size() != 2 || array.shape[1] != 4)
      io::fail(name,
               "an array of numbers of {} dimensions; events are [events, 4] (x, y, t, p), or records "
               "with fields x, y, t and p",
               array.shape.size());
    return {0, 1, 2, 3, 4};
  }
  if (array.shape.size() != 1)
    io::fail(name, "records in {} dimensions; events have one", array.shape.size());
  const auto find = [&](std::string_view field) -> std::optional<size_t> {
    const auto found = std::ranges::find(array.fields, field);
    if (found == array.fields.end()) return {};
    return static_cast<size_t>(found - array.fields.begin());
  };
  const std::optional<size_t> x = find("x"), t = find("t");
  if (!x || !t)
    io::fail(name, "records without a field {}; events have t and x, and may have y and p", x ? "t" : "x");
  return {*x, find("y"), *t, find("p"), array.fields.size()};
}

uint16_t pixel(const std::string& name, std::string_view what, int64_t value, size_t event) {
  if (value < 0 || value >= int64_t{kMostUnits})
    io::fail(name, "event {} has {} = {}; 0 to {} are possible", event, what, value, kMostUnits - 1);
  return static_cast<uint16_t>(value);
}

}  // namespace

std::vector<PixelEvent> read_event_array(const io::Source& source) {
  const io::NpyIntegers array = io::read_npy_integers(source, kMostValues);
  const std::string& name = source.name();
  const Columns columns = columns_of(name, array);
  std::vector<PixelEvent> events(array.values.size() / columns.count);
  for (size_t i = 0; i < events.size(); ++i) {
    const int64_t* values = array.values.data() + i * columns.count;
    const int64_t time = values[columns.t], polarity = columns.p ? values[*columns.p] : 0;
    if (time < 0 || time > kLatest)
      io::fail(name, "event {} has t = {}; times are from 0 to 2^52 µs", i, time);
    if (polarity < -1 || polarity > 1)
      io::fail(name, "event {} has p = {}; polarities are 0 and 1, or -1 and 1", i, polarity);
    events[i] = {time, pixel(name, "x", values[columns.x], i),
                 columns.y ? pixel(name, "y", values[*columns.y], i) : uint16_t{0}, polarity == 1};
  }
  return events;
}

}  // namespace tessera::train
