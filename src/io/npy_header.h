// Headers of `.npy` files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/dense_values.h"
#include "io/source.h"

namespace tessera::io {

/// A field of an array of records.
struct NpyField {
  std::string name;
  Element element = Element::f32;
  bool big_endian = false;
  uint64_t offset = 0;  ///< of its bytes in a record
};

/// The header of a `.npy` file.
struct NpyHeader {
  Element element = Element::f32;
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<uint64_t> shape;
  uint64_t data_offset = 0;      ///< offset of the first element in the file
  std::vector<NpyField> fields;  ///< fields of records, which have no `element`
  uint64_t element_bytes = 0;    ///< bytes of an element or a record
};

enum class NpyRecords : uint8_t { refused, accepted };

/// Reads the header of format version 1 to 3: floating-point numbers of 2, 4 or 8 bytes, integers or
/// booleans, of either byte order, or records of them. Throws Error for anything else; the caller checks
/// whether the file is long enough.
NpyHeader read_npy_header(const Source& source, NpyRecords records = NpyRecords::refused);

/// A version 1 header for an array in C order and the host's byte order. The format has no code for
/// bf16.
std::string npy_header_text(Element element, std::span<const uint64_t> shape);

}  // namespace tessera::io
