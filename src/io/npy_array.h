// `.npy`: arrays of numbers of any dimension.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/dense_values.h"
#include "io/source.h"

namespace tessera::io {

struct NpyArray {
  Element element = Element::f32;  ///< type of the elements in the file
  std::vector<uint64_t> shape;
  std::vector<double> values;  ///< in C order
};

/// Reads an array of numbers or booleans of either byte order and any dimension, in C order. Throws Error for
/// others, a file of another length, and more than `most` values.
NpyArray read_npy_array(const Source& source, uint64_t most);

/// Writes numbers in C order; as 64-bit integers if the type is an integer. Throws Error on failure; an
/// existing file is only replaced by a complete one.
void write_npy_array(const std::string& path, std::span<const uint64_t> shape, std::span<const double> values,
                     bool integers);

}  // namespace tessera::io
