// Labelled images: files of MNIST and CIFAR-10, folders of JPEG files, and synthetic ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
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
/// Throws Error as read_idx_images() does.
ImageSet read_cifar10(const std::string& batch);

/// The images that a folder contains under their official names: MNIST in it or in its `mnist`, else CIFAR-10
/// in it or in its `cifar-10-batches-bin`. `name` is "mnist", "cifar-10", or empty for the first data set
/// found. If MNIST's training files are missing, the last fifth of its test images become the test set, the
/// others the training set. Throws Error if there are none.
ImageSplit load_images(const std::string& folder, const std::string& name = "");

struct ImageShape {
  uint32_t height = 28;
  uint32_t width = 28;
  uint32_t classes = 10;
  uint32_t channels = 1;
};

/// Numbers and shape of images: all that estimates need to know about them.
struct ImageOutline {
  std::string name;
  uint64_t train = 0;  ///< images for training
  uint64_t test = 0;
  ImageShape shape = {};
};

/// Synthetic images: each class is a few smooth random templates, each image a template that is shifted and
/// scaled, with separate noise in each channel. A function of the seed and the shape alone.
ImageSplit synthetic_images(size_t train, size_t test, uint64_t seed, const ImageShape& shape = {});

/// Labelled images in JPEG files, which are read when they are needed.
struct ImageFiles {
  std::vector<std::string> paths;
  std::vector<uint32_t> labels;  ///< class of each file

  size_t count() const { return paths.size(); }
};

/// The images of a folder.
struct ImageFolder {
  std::string name;
  std::vector<std::string> classes;  ///< names of the subfolders, in order
  ImageFiles train;
  ImageFiles test;
};

/// Finds images by class, in the usual layout of ImageNet: FOLDER/train/CLASS/*.jpg, and the same classes in
/// FOLDER/val or FOLDER/test; without these three folders, FOLDER/CLASS/*.jpg, where the last tenth of the
/// images of each class, at least one image, is for testing. The names of files end in .jpg or .jpeg, or the
/// same in capitals. Throws Error if there are none of a class for training or none at all for testing, or
/// the classes differ.
ImageFolder find_image_folder(const std::string& folder);

}  // namespace tessera
