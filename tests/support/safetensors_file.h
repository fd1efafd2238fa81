// Handmade `.safetensors` files, which may also be wrong.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace tessera::test {

class SafetensorsFile {
 public:
  SafetensorsFile& add(const std::string& name, const std::string& dtype, const std::vector<uint64_t>& shape,
                       const std::string& bytes) {
    header_ += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                           header_.empty() ? "" : ",", name, dtype, fmt::join(shape, ","), data_.size(),
                           data_.size() + bytes.size());
    data_ += bytes;
    return *this;
  }

  /// Adds a tensor with elements of this type.
  template <class T>
  SafetensorsFile& add(const std::string& name, const std::string& dtype, const std::vector<uint64_t>& shape,
                       const std::vector<T>& elements) {
    std::string bytes(elements.size() * sizeof(T), '\0');
    if (!elements.empty()) std::memcpy(bytes.data(), elements.data(), bytes.size());
    return add(name, dtype, shape, bytes);
  }

  SafetensorsFile& floats(const std::string& name, const std::vector<uint64_t>& shape,
                          const std::vector<float>& elements) {
    return add(name, "F32", shape, elements);
  }
  SafetensorsFile& integers(const std::string& name, const std::vector<int64_t>& elements) {
    return add(name, "I64", {elements.size()}, elements);
  }
  SafetensorsFile& bytes(const std::string& name, const std::vector<uint64_t>& shape,
                         const std::vector<uint8_t>& elements) {
    return add(name, "U8", shape, elements);
  }

  SafetensorsFile& metadata(const std::vector<std::pair<std::string, std::string>>& texts) {
    std::string all;
    for (const auto& [name, text] : texts)
      all += fmt::format(R"({}"{}":"{}")", all.empty() ? "" : ",", name, text);
    header_ += fmt::format(R"({}"__metadata__":{{{}}})", header_.empty() ? "" : ",", all);
    return *this;
  }

  std::string content() const {
    const std::string header = "{" + header_ + "}";
    std::string length;
    for (size_t i = 0; i < 8; ++i) length += static_cast<char>(header.size() >> 8 * i & 0xFF);
    return length + header + data_;
  }

 private:
  std::string header_;
  std::string data_;
};

}  // namespace tessera::test
