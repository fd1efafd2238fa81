#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/images.h>

#include <filesystem>
#include <optional>

#include "data/image_files.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTestFraction = 5;  // one in five images is for testing, if a set has no test images

/// The file, or its compressed form.
std::optional<std::string> find_file(const fs::path& folder, const std::string& name) {
  for (const fs::path& path : {folder / name, folder / (name + ".gz")})
    if (fs::is_regular_file(path)) return path.string();
  return std::nullopt;
}

std::optional<ImageSet> find_idx(const fs::path& folder, const std::string& prefix) {
  const auto images = find_file(folder, prefix + "-images-idx3-ubyte");
  const auto labels = find_file(folder, prefix + "-labels-idx1-ubyte");
  if (!images || !labels) return std::nullopt;
  return read_idx_images(*images, *labels);
}

/// Images [begin, end).
ImageSet part_of(const ImageSet& all, size_t begin, size_t end) {
  ImageSet part = all;
  const auto size = static_cast<std::ptrdiff_t>(all.image_size());
  const auto first = static_cast<std::ptrdiff_t>(begin);
  const auto last = static_cast<std::ptrdiff_t>(end);
  part.pixels.assign(all.pixels.begin() + first * size, all.pixels.begin() + last * size);
  part.labels.assign(all.labels.begin() + first, all.labels.begin() + last);
  return part;
}

std::optional<ImageSplit> find_mnist(const fs::path& folder) {
  for (const fs::path& place : {folder, folder / "mnist"}) {
    const auto test = find_idx(place, "t10k");
    if (!test) continue;
    if (auto train = find_idx(place, "train")) return ImageSplit{"MNIST", std::move(*train), *test};
    const size_t first_test = test->count() - test->count() / kTestFraction;
    return ImageSplit{"MNIST (test files only)", part_of(*test, 0, first_test),
                      part_of(*test, first_test, test->count())};
  }
  return std::nullopt;
}

std::optional<ImageSplit> find_cifar10(const fs::path& folder) {
  for (const fs::path& place : {folder, folder / "cifar-10-batches-bin"}) {
    const auto test = find_file(place, "test_batch.bin");
    if (!test) continue;
    ImageSplit split{"CIFAR-10", {}, read_cifar10(*test)};
    for (int i = 1; i <= 5; ++i) {
      const auto batch = find_file(place, fmt::format("data_batch_{}.bin", i));
      if (!batch)
        throw Error(fmt::format("{}: data_batch_{}.bin is missing beside test_batch.bin", place.string(), i));
      ImageSet part = read_cifar10(*batch);
      if (i == 1) {
        split.train = std::move(part);
        continue;
      }
      split.train.pixels.insert(split.train.pixels.end(), part.pixels.begin(), part.pixels.end());
      split.train.labels.insert(split.train.labels.end(), part.labels.begin(), part.labels.end());
    }
    return split;
  }
  return std::nullopt;
}

}  // namespace

ImageSet read_idx_images(const std::string& images, const std::string& labels) {
  return train::read_idx_images(io::Source::open(images), io::Source::open(labels));
}

ImageSet read_cifar10(const std::string& batch) { return train::read_cifar10(io::Source::open(batch)); }

ImageSplit load_images(const std::string& folder, const std::string& name) {
  if (!name.empty() && name != "mnist" && name != "cifar-10")
    throw UsageError(fmt::format("unknown set of images '{}' (choose from mnist, cifar-10)", name));
  if (name != "cifar-10")
    if (auto split = find_mnist(folder)) return std::move(*split);
  if (name != "mnist")
    if (auto split = find_cifar10(folder)) return std::move(*split);
  const std::string mnist = "t10k-images-idx3-ubyte[.gz] (MNIST), in it or in mnist/",
                    cifar = "test_batch.bin (CIFAR-10, binary version), in it or in cifar-10-batches-bin/";
  throw Error(fmt::format("{}: no images of {} here; expected is {}", folder,
                          name.empty() ? "MNIST or CIFAR-10" : name,
                          name.empty()      ? mnist + "; or " + cifar
                          : name == "mnist" ? mnist
                                            : cifar));
}

}  // namespace tessera
