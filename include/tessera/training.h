// Training of classifiers: labelled images, the choice of blocks of a dynamic weight to drop and grow, and
// the training loop with its checkpoints.
#pragma once

#include <tessera/machine.h>
#include <tessera/model.h>
#include <tessera/types.h>
#include <tessera/weight.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Labelled images of one size.
struct ImageSet {
  uint32_t channels = 1;
  uint32_t height = 0;
  uint32_t width = 0;
  uint32_t classes = 10;
  std::vector<uint8_t> pixels;  ///< image after image, each channel by channel, row by row
  std::vector<uint8_t> labels;  ///< class of each image, less than `classes`

  size_t count() const { return labels.size(); }
  size_t image_size() const { return size_t{channels} * height * width; }
  std::span<const uint8_t> image(size_t i) const { return {pixels.data() + i * image_size(), image_size()}; }
};

/// Images for training and testing.
struct ImageSplit {
  std::string name;  ///< "MNIST", "CIFAR-10", …
  ImageSet train;
  ImageSet test;
};

/// MNIST and its derivatives (LeCun, Cortes & Burges 1998): a file of images (IDX, 3 dimensions of bytes) and
/// one of labels (1 dimension), optionally gzip-compressed. Throws Error, naming the file, if one cannot be
/// read or is malformed, if their counts differ, or for labels above 9.
ImageSet read_idx_images(const std::string& images, const std::string& labels);

/// A batch of CIFAR-10 in its binary version (Krizhevsky 2009): records of a label and 3 × 32 × 32 bytes.
/// Throws Error as above.
ImageSet read_cifar10(const std::string& batch);

/// The images that a folder contains under their official names: MNIST in it or in its `mnist`, else CIFAR-10
/// in it or in its `cifar-10-batches-bin`. `name` is "mnist", "cifar-10", or empty for the first found. If
/// MNIST's training files are missing, the last fifth of its test images become the test set, the others the
/// training set. Throws Error if there are none.
ImageSplit load_images(const std::string& folder, const std::string& name = "");

struct ImageShape {
  uint32_t height = 28;
  uint32_t width = 28;
  uint32_t classes = 10;
};

/// Synthetic images: each class is a few smooth random templates, each image a template shifted, scaled and
/// with noise. A function of the seed and the shape alone.
ImageSplit synthetic_images(size_t train, size_t test, uint64_t seed, const ImageShape& shape = {});

// Dropping and growing blocks of a dynamic weight, as sparse training does periodically.

/// The `count` stored blocks with the smallest sums of absolute values, or all if there are fewer. Weights
/// have to be FP32.
std::vector<BlockPosition> weakest_blocks(const Weight& weight, uint64_t count);
std::vector<BlockPosition> weakest_blocks(const SparseMatrix& matrix, uint64_t count);

/// `count` blocks that are not stored, chosen uniformly (SET; Mocanu et al., Nature Communications 9, 2018),
/// or all if there are fewer. The choice is a function of the pattern, `seed`, `step` and `layer`.
std::vector<BlockPosition> random_empty_blocks(const Weight& weight, uint64_t count, uint64_t seed,
                                               uint32_t step);
std::vector<BlockPosition> random_empty_blocks(const Pattern& pattern, uint64_t count, uint64_t seed,
                                               uint32_t step, uint32_t layer = 0);

/// The `count` blocks that are not stored in which the gradient of the dense m × k matrix has the largest
/// sums of absolute values (RigL; Evci et al., ICML 2020), or all if there are fewer.
std::vector<BlockPosition> strongest_empty_blocks(const Weight& weight, uint64_t count,
                                                  MatrixView<const float> dense_gradient);
std::vector<BlockPosition> strongest_empty_blocks(const Pattern& pattern, uint64_t count,
                                                  MatrixView<const float> dense_gradient);

/// The pattern without and with these blocks. Throws UsageError if one is grown that is stored already.
Pattern replaced(const Pattern& pattern, std::span<const BlockPosition> drop,
                 std::span<const BlockPosition> grow);

}  // namespace tessera
