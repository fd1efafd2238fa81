#include "data/events/n_mnist.h"

#include <cstddef>

#include "io/fail.h"

namespace tessera::train {
namespace {

constexpr uint64_t kMostNMnistBytes = uint64_t{1} << 28;
constexpr size_t kEventBytes = 5;
constexpr uint8_t kOverflowY = 240;
constexpr int64_t kOverflow = int64_t{1} << 13;

}  // namespace

std::vector<PixelEvent> read_n_mnist(const io::Source& source) {
  if (source.size() % kEventBytes != 0)
    io::fail(source.name(), "{} bytes; a recording of N-MNIST has {} for each event", source.size(),
             kEventBytes);
  if (source.size() > kMostNMnistBytes)
    io::fail(source.name(), "{} bytes are more than a recording may have ({})", source.size(),
             kMostNMnistBytes);
  const std::vector<char> content = source.read_all();
  std::vector<PixelEvent> events;
  events.reserve(content.size() / kEventBytes);
  int64_t passed = 0;
  for (size_t at = 0; at < content.size(); at += kEventBytes) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(content[at + i]); };
    if (byte(1) == kOverflowY) {
      passed += kOverflow;
      continue;
    }
    if (byte(0) >= kNMnistSide || byte(1) >= kNMnistSide)
      io::fail(source.name(), "event {} is at pixel ({}, {}); the sensor has {} × {}", at / kEventBytes,
               byte(0), byte(1), kNMnistSide, kNMnistSide);
    const int64_t time = (byte(2) & 0x7F) << 16 | byte(3) << 8 | byte(4);
    events.push_back({passed + time, byte(0), byte(1), static_cast<uint8_t>(byte(2) >> 7)});
  }
  return events;
}

}  // namespace tessera::train
