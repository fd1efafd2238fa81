// Labelled recordings for spiking networks: read from files, or synthetic.
#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <tessera/error.h>
#include <tessera/recordings.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "data/events/recording_batch.h"

namespace tessera::python {
namespace {

using namespace nb::literals;

using Shared = std::shared_ptr<const Recordings>;

/// One part of a split, which both keep in memory.
struct Part {
  Shared recordings;
  uint32_t capacity = 0;  ///< most spikes in a step
};

Part part_of(Recordings&& recordings) {
  const uint32_t capacity = train::most_spikes(recordings);
  return {std::make_shared<const Recordings>(std::move(recordings)), capacity};
}

std::vector<uint32_t> samples_of(const Part& part, nb::handle object) {
  std::vector<uint32_t> which = integers_of<uint32_t>(object, "samples");
  for (const uint32_t i : which)
    if (i >= part.recordings->count())
      throw UsageError(fmt::format("recording {}; there are {}", i, part.recordings->count()));
  return which;
}

/// Currents [steps, batch, units], or lists and their lengths.
nb::object batch_of(const Part& part, nb::handle samples) {
  const std::vector<uint32_t> which = samples_of(part, samples);
  const Recordings& of = *part.recordings;
  const auto batch = static_cast<uint32_t>(which.size());
  auto* loaded = new train::RecordingBatch(of, batch, part.capacity);
  const nb::object owner = keep(loaded);
  {
    const nb::gil_scoped_release released;
    loaded->load(of, which);
  }
  if (of.are_currents()) {
    const size_t shape[] = {of.steps, batch, of.units};
    auto* data = const_cast<float*>(loaded->currents().data());
    return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<3>>(data, 3, shape, owner));
  }
  const SpikeLists lists = loaded->spikes();
  const size_t of_ids[] = {of.steps, batch, lists.capacity}, of_num[] = {of.steps, batch, 2};
  auto* ids = reinterpret_cast<int16_t*>(const_cast<uint16_t*>(lists.ids));
  auto* num = reinterpret_cast<int32_t*>(const_cast<uint32_t*>(lists.num));
  return nb::make_tuple(nb::ndarray<nb::numpy, int16_t, nb::ndim<3>>(ids, 3, of_ids, owner),
                        nb::ndarray<nb::numpy, int32_t, nb::ndim<3>>(num, 3, of_num, owner));
}

nb::tuple load(const std::string& name, const std::string& folder, const RecordingSettings& settings) {
  RecordingSplit split;
  Part training, test;
  {
    const nb::gil_scoped_release released;
    split = load_recordings(name, folder, settings);
    training = part_of(std::move(split.train));
    test = part_of(std::move(split.test));
  }
  return nb::make_tuple(split.name, training, test, split.merged, split.outside);
}

}  // namespace

void bind_recordings(nb::module_& m) {
  nb::class_<Part>(m, "Recordings", "Labelled recordings of one length, of spikes or of currents.")
      .def_prop_ro("steps", [](const Part& p) { return p.recordings->steps; })
      .def_prop_ro("units", [](const Part& p) { return p.recordings->units; })
      .def_prop_ro("classes", [](const Part& p) { return p.recordings->classes; })
      .def_prop_ro("are_currents", [](const Part& p) { return p.recordings->are_currents(); })
      .def_prop_ro(
          "labels", [](const Part& p) { return array_from(p.recordings->labels); }, kOwned)
      .def("batch", &batch_of, "samples"_a);
  m.def(
      "load_recordings",
      [](const std::string& name, const std::string& folder, uint32_t steps, double seconds, uint32_t crop,
         uint32_t downscale, double delta, double test, uint64_t seed) {
        return load(name, folder,
                    {.steps = steps,
                     .seconds = seconds,
                     .crop = crop,
                     .downscale = downscale,
                     .delta = delta,
                     .test = test,
                     .seed = seed});
      },
      "name"_a, "folder"_a, "steps"_a, "seconds"_a, "crop"_a, "downscale"_a, "delta"_a, "test"_a, "seed"_a,
      nb::sig("def load_recordings(name: str, folder: str, steps: int, seconds: float, crop: int, downscale: "
              "int, "
              "delta: float, test: float, seed: int) -> tuple[str, Recordings, Recordings, int, int]"));
}

}  // namespace tessera::python
