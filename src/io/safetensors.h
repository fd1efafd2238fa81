// `.safetensors`: a JSON header and named tensors.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/dense_values.h"
#include "io/source.h"

namespace tessera::io {

/// A tensor of the file.
struct TensorInfo {
  std::string name;
  std::string dtype;  ///< as the file calls it: "F32", "BF16", "I64", …
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  ///< its bytes in the file are [begin, end)
  uint64_t end = 0;
};

/// Texts by name, beside the tensors.
using TensorMetadata = std::map<std::string, std::string>;

/// The file's tensors in the order of their data, and its metadata if `metadata` is given. Throws Error if
/// the header is malformed or has a duplicate name, or if its offsets overlap, leave gaps, or disagree with
/// shapes or file.
std::vector<TensorInfo> list_safetensors(const Source& source, TensorMetadata* metadata = nullptr);

/// Reads the non-zeros of a 2-D tensor of F64, F32, F16, BF16, integers or booleans. An empty name means the
/// only 2-D tensor. Throws UsageError that lists the names if there is no such tensor, and Error as above.
SparseMatrix read_safetensors(const Source& source, const std::string& tensor);

/// A shape for a message: "[2, 3]", with the first 8 sizes.
std::string shape_text(const std::vector<uint64_t>& shape);

/// The type of elements with this name in the format; none for types that are not read.
std::optional<Element> element_of(std::string_view dtype);

/// The name of a type in the format.
std::string dtype_of(Type type);

/// A tensor to write.
struct TensorData {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::span<const std::byte> bytes;  ///< row-major, little-endian
};

/// Writes a file with these tensors, and metadata if there is any. Throws UsageError if the bytes of a tensor
/// disagree with its shape or a name occurs twice, Error if writing fails; an existing file is only replaced
/// by a complete one.
void write_safetensors(const std::string& path, std::span<const TensorData> tensors,
                       const TensorMetadata& metadata = {});

}  // namespace tessera::io
