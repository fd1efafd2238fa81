// `.npy`: arrays of integers, and of records of integers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/source.h"

namespace tessera::io {

struct NpyIntegers {
  std::vector<uint64_t> shape;
  std::vector<std::string> fields;  ///< names of a record's fields; none: an array of numbers
  std::vector<int64_t> values;      ///< in C order; records field by field
};

/// Reads an array of integers or booleans of either byte order and any dimension, or of records of these.
/// Throws Error for other types, a file of another length, more than `most` values, and values of 2^63 and
/// more.
NpyIntegers read_npy_integers(const Source& source, uint64_t most);

}  // namespace tessera::io
