// A batch of standardised images with their labels, in the form that sessions take.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "data/samples.h"

namespace tessera::train {

struct Batch {
  base::BufferVector<float> images;  ///< row by row
  std::vector<uint32_t> labels;

  Batch(uint32_t rows, uint32_t features) : images(size_t{rows} * features), labels(rows) {}

  /// Loads the images `which`, at most as many as the batch has rows; further rows stay as they are.
  void load(const Samples& samples, const Standardisation& standardisation, std::span<const uint32_t> which) {
    standardisation.apply(samples, which, images.data());
    for (size_t i = 0; i < which.size(); ++i) labels[i] = samples.labels[which[i]];
  }
};

}  // namespace tessera::train
