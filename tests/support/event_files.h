// Small files of event cameras.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::test {

inline std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i & 0xFF);
  return text;
}

/// An event of N-MNIST.
inline std::string n_mnist_event(uint8_t x, uint8_t y, uint8_t polarity, uint32_t time) {
  std::string text{static_cast<char>(x), static_cast<char>(y)};
  text += static_cast<char>(polarity << 7 | (time >> 16 & 0x7F));
  text += static_cast<char>(time >> 8 & 0xFF);
  text += static_cast<char>(time & 0xFF);
  return text;
}

/// Data and time of a polarity event of AEDAT 3.1.
inline std::string aedat_event(uint32_t x, uint32_t y, uint32_t polarity, uint32_t time, bool valid = true) {
  return little_endian(x << 17 | y << 2 | polarity << 1 | (valid ? 1U : 0U), 4) + little_endian(time, 4);
}

/// A packet of `events` events, with this content.
inline std::string aedat_packet(uint32_t type, uint32_t event_bytes, uint32_t overflow, uint32_t events,
                                const std::string& content) {
  return little_endian(type, 2) + little_endian(1, 2) + little_endian(event_bytes, 4) + little_endian(4, 4) +
         little_endian(overflow, 4) + little_endian(events, 4) + little_endian(events, 4) +
         little_endian(events, 4) + content;
}

inline std::string aedat_header() {
  return "#!AER-DAT3.1\r\n#Format: RAW\r\n#Source 1: DVS128\r\n#!END-HEADER\r\n";
}

/// An array of `.npy` format version 1 with this description, shape and content.
inline std::string npy_file(const std::string& descr, const std::string& shape, const std::string& content,
                            bool fortran = false) {
  const std::string header = "{'descr': " + descr + ", 'fortran_order': " + (fortran ? "True" : "False") +
                             ", 'shape': " + shape + ", }\n";
  return std::string("\x93NUMPY\x01\x00", 8) + little_endian(header.size(), 2) + header + content;
}

}  // namespace tessera::test
