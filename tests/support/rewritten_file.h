// Files in the form of earlier versions.
#pragma once

#include <string>
#include <vector>

#include "io/safetensors.h"

namespace tessera::test {

/// The text with every `from` replaced by `to`.
inline std::string with_all(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

/// Rewrites a .safetensors file without its checksum, with `renamed` applied to every name of a tensor and
/// every text of the metadata.
template <class Renamed>
void rewrite_safetensors(const std::string& path, const Renamed& renamed) {
  io::TensorMetadata metadata;
  std::vector<std::vector<std::byte>> contents;
  std::vector<io::TensorData> tensors;
  {
    const io::Source source = io::Source::open(path);
    for (const io::TensorInfo& info : io::list_safetensors(source, &metadata)) {
      std::vector<std::byte>& bytes = contents.emplace_back(info.end - info.begin);
      source.read(info.begin, bytes);
      tensors.push_back({renamed(info.name), info.dtype, info.shape, bytes});
    }
  }
  metadata.erase("tessera_checksum");
  for (auto& [name, text] : metadata) text = renamed(text);
  io::write_safetensors(path, tensors, metadata);
}

}  // namespace tessera::test
