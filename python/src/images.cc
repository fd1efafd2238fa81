// Labelled images: read from files, synthetic, or of arrays, and random parts of them.
#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <tessera/error.h>
#include <tessera/images.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "data/crops.h"

namespace tessera::python {
namespace {

using namespace nb::literals;
using PixelArray = nb::ndarray<nb::numpy, uint8_t, nb::ndim<4>>;

/// Images [count, channels, height, width] and their labels, in memory that NumPy takes over.
nb::tuple arrays_of(ImageSet&& set) {
  auto* kept = new ImageSet(std::move(set));
  const nb::object owner = keep(kept);
  const size_t shape[] = {kept->count(), kept->channels, kept->height, kept->width};
  return nb::make_tuple(PixelArray(kept->pixels.data(), 4, shape, owner),
                        Numbers<uint8_t>(kept->labels.data(), {kept->count()}, owner), kept->classes);
}

nb::tuple arrays_of(ImageSplit&& split) {
  return nb::make_tuple(split.name, arrays_of(std::move(split.train)), arrays_of(std::move(split.test)));
}

template <class Make>
nb::tuple without_gil(const Make& make) {
  ImageSplit split;
  {
    const nb::gil_scoped_release released;
    split = make();
  }
  return arrays_of(std::move(split));
}

/// A contiguous array of bytes.
nb::ndarray<nb::ro> bytes_of(nb::handle object, const char* name, size_t dimensions) {
  nb::ndarray<nb::ro> array = array_of(object, name);
  if (array.dtype() != nb::dtype<uint8_t>())
    type_error(fmt::format("{} have elements of type {}; they must be uint8", name, name_of(array.dtype())));
  if (array.ndim() != dimensions || !is_contiguous(array))
    throw UsageError(fmt::format("{} must have {} dimensions, and be contiguous", name, dimensions));
  return array;
}

/// Copies images [count, channels, height, width], without labels.
ImageSet pixels_of(nb::handle images) {
  const nb::ndarray<nb::ro> array = bytes_of(images, "images", 4);
  const auto size = [&](size_t dimension) { return static_cast<uint32_t>(array.shape(dimension)); };
  ImageSet set;
  set.channels = size(1);
  set.height = size(2);
  set.width = size(3);
  const auto* first = static_cast<const uint8_t*>(array.data());
  set.pixels.assign(first, first + array.size());
  return set;
}

ImageSet set_of(nb::handle images, nb::handle labels, uint32_t classes) {
  ImageSet set = pixels_of(images);
  const nb::ndarray<nb::ro> array = bytes_of(labels, "labels", 1);
  const auto* first = static_cast<const uint8_t*>(array.data());
  set.classes = classes;
  set.labels.assign(first, first + array.size());
  if (set.count() * set.image_size() != set.pixels.size())
    throw UsageError(fmt::format("{} labels of {} images: each has one", set.count(),
                                 set.pixels.size() / set.image_size()));
  for (const uint8_t label : set.labels)
    if (label >= classes)
      throw UsageError(fmt::format("a label is {}; there are {} classes", label, classes));
  return set;
}

/// Random parts [count, height, width, channels] of images, each of which has a number.
PixelArray crops_of(nb::handle images, nb::handle numbers, uint64_t seed, uint32_t epoch, uint32_t padding) {
  const ImageSet set = pixels_of(images);
  const std::vector<uint32_t> keys = integers_of<uint32_t>(numbers, "numbers");
  const size_t size = set.image_size();
  if (keys.size() * size != set.pixels.size())
    throw UsageError(
        fmt::format("{} numbers of {} images: each has one", keys.size(), set.pixels.size() / size));
  auto* kept = new std::vector<uint8_t>(set.pixels.size());
  const nb::object owner = keep(kept);
  {
    const nb::gil_scoped_release released;
    for (size_t i = 0; i < keys.size(); ++i)
      train::copy_crop(set, i, train::random_crop(seed, epoch, keys[i], padding),
                       std::span(*kept).subspan(i * size, size));
  }
  const size_t shape[] = {keys.size(), set.height, set.width, set.channels};
  return PixelArray(kept->data(), 4, shape, owner);
}

/// What trainers take.
void bind_image_data(nb::module_& m) {
  nb::class_<ImageSplit>(m, "ImageArrays", "Images in memory, for training and testing.")
      .def(
          "__init__",
          [](ImageSplit* made, const std::string& name, nb::handle train_images, nb::handle train_labels,
             nb::handle test_images, nb::handle test_labels, uint32_t classes) {
            new (made) ImageSplit{name, set_of(train_images, train_labels, classes),
                                  set_of(test_images, test_labels, classes)};
          },
          "name"_a, "train_images"_a, "train_labels"_a, "test_images"_a, "test_labels"_a, "classes"_a,
          nb::sig("def __init__(self, name: str, train_images: object, train_labels: object, test_images: "
                  "object, test_labels: object, classes: int) -> None"));
  nb::class_<ImageFolder>(m, "ImageFolder", "Images in JPEG files, for training and testing.")
      .def(
          "__init__",
          [](ImageFolder* made, const std::string& folder) {
            const nb::gil_scoped_release released;
            new (made) ImageFolder(find_image_folder(folder));
          },
          "folder"_a)
      .def_ro("classes", &ImageFolder::classes, "Names of the classes.");
}

}  // namespace

void bind_images(nb::module_& m) {
  bind_image_data(m);
  m.def(
      "load_images",
      [](const std::string& folder, const std::string& name) {
        return without_gil([&] { return load_images(folder, name); });
      },
      "folder"_a, "name"_a, nb::sig("def load_images(folder: str, name: str) -> tuple[object, ...]"));
  m.def(
      "synthetic_images",
      [](size_t train, size_t test, uint64_t seed, uint32_t height, uint32_t width, uint32_t classes,
         uint32_t channels) {
        return without_gil([&] {
          return synthetic_images(train, test, seed, {height, width, classes, channels});
        });
      },
      "train"_a, "test"_a, "seed"_a, "height"_a, "width"_a, "classes"_a, "channels"_a,
      nb::sig("def synthetic_images(train: int, test: int, seed: int, height: int, width: int, classes: int, "
              "channels: int) -> tuple[object, ...]"));
  m.def("random_crops", &crops_of, "images"_a, "numbers"_a, "seed"_a, "epoch"_a, "padding"_a,
        nb::sig("def random_crops(images: object, numbers: object, seed: int, epoch: int, padding: int) -> "
                "object"));
}

}  // namespace tessera::python
