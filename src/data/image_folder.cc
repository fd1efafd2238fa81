// Images in JPEG files, by class.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/images.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "data/image_source.h"
#include "data/regions.h"
#include "io/jpeg.h"
#include "io/source.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTestPartOfFolder =
    10;  // a tenth of the images of a class, if a folder has none for testing

bool is_jpeg(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".jpg" || extension == ".jpeg" || extension == ".JPEG" || extension == ".JPG";
}

/// Names of what a folder contains, in order.
template <class Wanted>
std::vector<std::string> names_in(const fs::path& folder, const Wanted& is_wanted) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (is_wanted(entry)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> classes_in(const fs::path& folder) {
  return names_in(folder, [](const fs::directory_entry& entry) { return entry.is_directory(); });
}

std::vector<std::string> files_in(const fs::path& folder) {
  return names_in(folder, [](const fs::directory_entry& entry) {
    return entry.is_regular_file() && is_jpeg(entry.path());
  });
}

/// Files [begin, end) of a class.
void add_files(const fs::path& folder, const std::vector<std::string>& files, size_t begin, size_t end,
               uint32_t label, ImageFiles& to) {
  for (size_t i = begin; i < end; ++i) {
    to.paths.push_back((folder / files[i]).string());
    to.labels.push_back(label);
  }
}

ImageFiles files_by_class(const fs::path& folder, const std::vector<std::string>& classes) {
  ImageFiles all;
  for (uint32_t label = 0; label < classes.size(); ++label) {
    const fs::path of_class = folder / classes[label];
    const std::vector<std::string> files = files_in(of_class);
    add_files(of_class, files, 0, files.size(), label, all);
  }
  return all;
}

/// For a folder without a part for testing.
void divide_classes(const fs::path& folder, ImageFolder& to) {
  for (uint32_t label = 0; label < to.classes.size(); ++label) {
    const fs::path of_class = folder / to.classes[label];
    const std::vector<std::string> files = files_in(of_class);
    const size_t tests = (files.size() + kTestPartOfFolder - 1) / kTestPartOfFolder;
    add_files(of_class, files, 0, files.size() - tests, label, to.train);
    add_files(of_class, files, files.size() - tests, files.size(), label, to.test);
  }
}

std::optional<fs::path> test_folder_of(const fs::path& folder) {
  for (const char* name : {"val", "test"})
    if (fs::is_directory(folder / name)) return folder / name;
  return std::nullopt;
}

/// Throws Error if a class has no images for training, or is the only one.
void require_each_class(const ImageFolder& folder) {
  if (folder.classes.size() == 1)
    throw Error(
        fmt::format("{}: '{}' is the only class, so there is nothing to tell it from: give at least two",
                    folder.name, folder.classes.front()));
  std::vector<size_t> counts(folder.classes.size());
  for (const uint32_t label : folder.train.labels) ++counts[label];
  const auto none = std::ranges::find(counts, size_t{0});
  if (none == counts.end()) return;
  const auto label = static_cast<uint32_t>(none - counts.begin());
  throw Error(fmt::format(
      "{}: there is no JPEG file of class '{}' for training{}: add some, or remove the folder of the class",
      folder.name, folder.classes[label],
      std::ranges::count(folder.test.labels, label) > 0 ? " beside those for testing" : ""));
}

/// Decodes images when they are read.
class FileImages final : public train::ImageSource {
 public:
  FileImages(ImageFiles files, uint32_t size, uint64_t seed, bool augments)
      : files_(std::move(files)), size_(size), seed_(seed), augments_(augments) {}

  size_t count() const override { return files_.count(); }
  uint32_t label(size_t i) const override { return files_.labels[i]; }
  bool is_slow() const override { return true; }
  void read(size_t i, std::optional<uint32_t> epoch, std::span<uint8_t> pixels) const override {
    const std::vector<char> content = io::Source::open(files_.paths[i]).read_all();
    const io::Pixels image = io::read_jpeg(files_.paths[i], std::as_bytes(std::span(content)));
    const train::Region region =
        epoch && augments_
            ? train::random_region(seed_, *epoch, static_cast<uint32_t>(i), image.height, image.width)
            : train::middle_region(image.height, image.width);
    train::resize(image, region, size_, pixels);
  }

 private:
  ImageFiles files_;
  uint32_t size_;
  uint64_t seed_;
  bool augments_;
};

/// A checksum of names, sizes and labels; contents would take too long.
uint64_t checksum_of(const ImageFolder& folder) {
  base::Checksum sum;
  for (const ImageFiles* files : {&folder.train, &folder.test})
    for (size_t i = 0; i < files->count(); ++i) {
      const fs::path path = files->paths[i];
      std::error_code error;
      const uint64_t bytes = fs::file_size(path, error);
      if (error) throw Error(fmt::format("{}: {}", files->paths[i], error.message()));
      const std::string text =
          fmt::format("{} {} {} ", path.filename().string(), bytes, folder.classes[files->labels[i]]);
      const uint64_t own = base::checksum(std::as_bytes(std::span(text)));
      sum.add(std::as_bytes(std::span(&own, 1)));
    }
  return sum.value();
}

}  // namespace

ImageFolder find_image_folder(const std::string& folder) {
  const fs::path place = folder;
  if (!fs::is_directory(place)) throw Error(fmt::format("{}: there is no such folder of images", folder));
  const bool has_parts = fs::is_directory(place / "train");
  ImageFolder found;
  found.name = folder;
  found.classes = classes_in(has_parts ? place / "train" : place);
  if (has_parts) {
    const std::optional<fs::path> tests = test_folder_of(place);
    if (!tests) throw Error(fmt::format("{}: val or test is missing beside train", folder));
    if (classes_in(*tests) != found.classes)
      throw Error(fmt::format("{}: its classes are not the classes of the training images", tests->string()));
    found.train = files_by_class(place / "train", found.classes);
    found.test = files_by_class(*tests, found.classes);
  } else {
    divide_classes(place, found);
  }
  if (found.test.count() == 0)
    throw Error(
        fmt::format("{}: {} JPEG files for training and {} for testing; expected are CLASS/*.jpg, or "
                    "train/CLASS/*.jpg and val/CLASS/*.jpg",
                    folder, found.train.count(), found.test.count()));
  require_each_class(found);
  return found;
}

train::ImageSources train::images_of_files(const ImageFolder& folder, uint32_t size, uint64_t seed,
                                           bool augments) {
  constexpr uint32_t kChannels = 3;
  const double most = 255;
  const ChannelStatistics of_imagenet{{0.485 * most, 0.456 * most, 0.406 * most},
                                      {0.229 * most, 0.224 * most, 0.225 * most}};
  return {fmt::format("JPEG files, {} for training and {} for testing, checksum {:016x}",
                      folder.train.count(), folder.test.count(), checksum_of(folder)),
          {size, size, kChannels, static_cast<uint32_t>(folder.classes.size()), of_imagenet},
          std::make_unique<FileImages>(folder.train, size, seed, augments),
          std::make_unique<FileImages>(folder.test, size, seed, augments)};
}

}  // namespace tessera
