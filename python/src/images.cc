// Labelled images: read from files, or synthetic.
#include <nanobind/stl/string.h>
#include <tessera/images.h>

#include <string>
#include <utility>

#include "arrays.h"
#include "bindings.h"

namespace tessera::python {
namespace {

using namespace nb::literals;

/// Images [count, channels, height, width] and their labels, in memory that NumPy takes over.
nb::tuple arrays_of(ImageSet&& set) {
  auto* kept = new ImageSet(std::move(set));
  const nb::object owner = keep(kept);
  const size_t shape[] = {kept->count(), kept->channels, kept->height, kept->width};
  using Images = nb::ndarray<nb::numpy, uint8_t, nb::ndim<4>>;
  return nb::make_tuple(Images(kept->pixels.data(), 4, shape, owner),
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

}  // namespace

void bind_images(nb::module_& m) {
  m.def(
      "load_images",
      [](const std::string& folder, const std::string& name) {
        return without_gil([&] { return load_images(folder, name); });
      },
      "folder"_a, "name"_a, nb::sig("def load_images(folder: str, name: str) -> tuple[object, ...]"));
  m.def(
      "synthetic_images",
      [](size_t train, size_t test, uint64_t seed, uint32_t height, uint32_t width, uint32_t classes) {
        return without_gil([&] { return synthetic_images(train, test, seed, {height, width, classes}); });
      },
      "train"_a, "test"_a, "seed"_a, "height"_a, "width"_a, "classes"_a,
      nb::sig(
          "def synthetic_images(train: int, test: int, seed: int, height: int, width: int, classes: int) -> "
          "tuple[object, ...]"));
}

}  // namespace tessera::python
