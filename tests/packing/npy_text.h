// `.npy` files of one dimension, for tests.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace tessera::test {

/// A file with the values, in the other byte order if requested.
template <class T>
std::string npy_text(const std::vector<T>& values, const std::string& type, bool reversed = false) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" +
                       std::to_string(values.size()) + ",), }\n";
  std::string text =
      std::string("\x93NUMPY\x01", 7) + '\0' + static_cast<char>(header.size()) + '\0' + header;
  const size_t data = text.size();
  text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  if (!reversed) return text;
  for (size_t at = data; at < text.size(); at += sizeof(T))
    std::reverse(text.begin() + static_cast<std::ptrdiff_t>(at),
                 text.begin() + static_cast<std::ptrdiff_t>(at + sizeof(T)));
  return text;
}

/// The values of a file that was written in the host's byte order.
template <class T>
std::vector<T> npy_values(const std::string& text) {
  const auto header = static_cast<unsigned char>(text[8]) | static_cast<unsigned char>(text[9]) << 8;
  const std::string data = text.substr(10 + static_cast<size_t>(header));
  std::vector<T> values(data.size() / sizeof(T));
  std::copy(data.begin(), data.end(), reinterpret_cast<char*>(values.data()));
  return values;
}

}  // namespace tessera::test
