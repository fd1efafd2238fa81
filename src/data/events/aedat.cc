#include "data/events/aedat.h"

#include <cstddef>
#include <string_view>

#include "io/fail.h"
#include "io/text_scanner.h"

namespace tessera::train {
namespace {

constexpr uint64_t kMostAedatBytes = uint64_t{1} << 32;
constexpr uint64_t kMostListBytes = uint64_t{1} << 20;
constexpr std::string_view kVersion = "#!AER-DAT3.1";
constexpr std::string_view kEndOfHeader = "#!END-HEADER";
constexpr size_t kPacketHeader = 28;
constexpr uint16_t kPolarityPacket = 1;
constexpr uint32_t kPolarityBytes = 8;

uint32_t little_endian(const char* bytes, size_t count) {
  uint32_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= uint32_t{static_cast<uint8_t>(bytes[i])} << 8 * i;
  return value;
}

/// The header of a packet of events.
struct Packet {
  uint16_t type = 0;
  uint32_t event_bytes = 0;
  uint32_t overflow = 0;  ///< of times, in units of 2^31 µs
  uint32_t events = 0;
};

class AedatReader {
 public:
  explicit AedatReader(const io::Source& source) : name_(source.name()) {
    if (source.size() > kMostAedatBytes)
      io::fail(name_, "{} bytes are more than a recording may have ({})", source.size(), kMostAedatBytes);
    content_ = source.read_all();
  }

  std::vector<PixelEvent> read() {
    skip_header();
    std::vector<PixelEvent> events;
    while (at_ < content_.size()) read_packet(events);
    return events;
  }

 private:
  std::string_view line() {
    const std::string_view rest(content_.data() + at_, content_.size() - at_);
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) io::fail(name_, "the header has no line {}", kEndOfHeader);
    at_ += end + 1;
    std::string_view text = rest.substr(0, end);
    if (text.ends_with('\r')) text.remove_suffix(1);
    return text;
  }

  void skip_header() {
    const std::string_view all(content_.data(), content_.size());
    if (!all.starts_with("#!AER-DAT")) io::fail(name_, "not an AEDAT file: it does not begin with #!AER-DAT");
    if (const std::string_view version = line(); version != kVersion)
      io::fail(name_, "version {}; only {} can be read", io::excerpt(version), kVersion);
    for (std::string_view text = line(); text != kEndOfHeader; text = line())
      if (!text.starts_with('#'))
        io::fail(name_, "{} in the header, whose lines begin with '#' up to {}", io::excerpt(text),
                 kEndOfHeader);
  }

  Packet packet() {
    if (content_.size() - at_ < kPacketHeader)
      io::fail(name_, "{} bytes are left at byte {}; a packet's header has {}: the file may be truncated",
               content_.size() - at_, at_, kPacketHeader);
    const char* header = content_.data() + at_;
    const Packet packet{static_cast<uint16_t>(little_endian(header, 2)), little_endian(header + 4, 4),
                        little_endian(header + 12, 4), little_endian(header + 20, 4)};
    const uint32_t capacity = little_endian(header + 16, 4);
    if (packet.events != capacity)
      io::fail(name_, "the packet at byte {} has {} events and room for {}; in files both are the same", at_,
               packet.events, capacity);
    at_ += kPacketHeader;
    if (uint64_t{packet.events} * packet.event_bytes > content_.size() - at_)
      io::fail(name_,
               "a packet of {} events of {} bytes at byte {}, where {} bytes are left: the file may be "
               "truncated",
               packet.events, packet.event_bytes, at_, content_.size() - at_);
    return packet;
  }

  void read_packet(std::vector<PixelEvent>& events) {
    const Packet p = packet();
    const char* data = content_.data() + at_;
    at_ += uint64_t{p.events} * p.event_bytes;
    if (p.type != kPolarityPacket) return;
    if (p.event_bytes != kPolarityBytes)
      io::fail(name_, "polarity events of {} bytes; they have {}", p.event_bytes, kPolarityBytes);
    for (uint32_t i = 0; i < p.events; ++i, data += kPolarityBytes) {
      const uint32_t word = little_endian(data, 4), time = little_endian(data + 4, 4);
      const uint32_t x = word >> 17 & 0x7FFF, y = word >> 2 & 0x7FFF;
      const bool valid = (word & 1) != 0;
      if (!valid) continue;
      if (x >= kDvsSide || y >= kDvsSide)
        io::fail(name_, "event {} is at pixel ({}, {}); the sensor has {} × {}", events.size(), x, y,
                 kDvsSide, kDvsSide);
      events.push_back({int64_t{p.overflow} << 31 | (time & 0x7FFFFFFF), static_cast<uint16_t>(x),
                        static_cast<uint16_t>(y), static_cast<uint8_t>(word >> 1 & 1)});
    }
  }

  const std::string& name_;
  std::vector<char> content_;
  size_t at_ = 0;
};

}  // namespace

std::vector<PixelEvent> read_aedat(const io::Source& source) { return AedatReader(source).read(); }

std::vector<Gesture> read_gestures(const io::Source& source) {
  if (source.size() > kMostListBytes)
    io::fail(source.name(), "{} bytes are more than a list of gestures may have ({})", source.size(),
             kMostListBytes);
  const std::vector<char> content = source.read_all();
  io::TextScanner lines(source.name(), {content.data(), content.size()});
  lines.line();
  std::vector<Gesture> gestures;
  constexpr uint64_t kLatest = uint64_t{1} << 62;
  while (!lines.at_end()) {
    const std::string_view text = lines.line();
    if (text.find_first_not_of(" \t") == std::string_view::npos) continue;
    io::TextScanner line(source.name(), text);
    const auto label = line.integer<uint32_t>("class", kGestures);
    const auto begin = line.integer<uint64_t>("begin", kLatest);
    const auto end = line.integer<uint64_t>("end", kLatest);
    line.end_text("end");
    if (label == 0 || end <= begin)
      io::fail(
          source.name(),
          "gesture {} has class {} and is from {} to {} µs; classes are 1 to {}, and a gesture ends after "
          "it began",
          gestures.size() + 1, label, begin, end, kGestures);
    gestures.push_back({label - 1, static_cast<int64_t>(begin), static_cast<int64_t>(end)});
  }
  return gestures;
}

}  // namespace tessera::train
