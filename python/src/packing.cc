// Sequence packing: counts, plans, index arrays, and the gathering of tokens.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <tessera/error.h>
#include <tessera/packing.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"

namespace tessera::python {
namespace {

using namespace nb::literals;
using pack::Histogram;
using pack::IndexArray;
using pack::Input;
using pack::Lengths;
using pack::Packing;

/// A contiguous one-dimensional array of integers, in place.
Lengths lengths_of(nb::handle object) {
  const nb::ndarray<nb::ro> array = array_of(object, "lengths");
  if (array.ndim() != 1 || (array.shape(0) > 1 && array.stride(0) != 1))
    throw UsageError("lengths must be one-dimensional and contiguous");
  const auto as = [&]<class T>(T) {
    return Lengths(std::span(static_cast<const T*>(array.data()), array.shape(0)));
  };
  const nb::dlpack::dtype type = array.dtype();
  if (type == nb::dtype<int64_t>()) return as(int64_t{});
  if (type == nb::dtype<int32_t>()) return as(int32_t{});
  if (type == nb::dtype<int16_t>()) return as(int16_t{});
  if (type == nb::dtype<int8_t>()) return as(int8_t{});
  if (type == nb::dtype<uint64_t>()) return as(uint64_t{});
  if (type == nb::dtype<uint32_t>()) return as(uint32_t{});
  if (type == nb::dtype<uint16_t>()) return as(uint16_t{});
  if (type == nb::dtype<uint8_t>()) return as(uint8_t{});
  type_error(fmt::format("lengths have elements of type {}; they must be integers", name_of(type)));
}

/// Wrong lengths in an array are the caller's error; the library assumes that they come from a file.
template <class Call>
auto as_argument(const Call& call) {
  try {
    return call();
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
}

Input count_lengths(nb::object lengths, uint32_t max_length, const std::string& overlong) {
  const Lengths counted = lengths_of(lengths);
  const pack::Overlong policy = pack::overlong_named(overlong);
  const nb::gil_scoped_release released;
  return as_argument([&] { return pack::count(counted, max_length, policy); });
}

Input count_histogram(nb::object lengths, nb::object counts, uint32_t max_length,
                      const std::string& overlong) {
  const auto each = integers_of<uint64_t>(lengths, "lengths"),
             times = integers_of<uint64_t>(counts, "counts");
  if (each.size() != times.size())
    throw UsageError(fmt::format("{} lengths and {} counts", each.size(), times.size()));
  std::vector<pack::LengthCount> entries(each.size());
  for (size_t i = 0; i < entries.size(); ++i) entries[i] = {each[i], times[i]};
  return as_argument([&] {
    return pack::count(std::span<const pack::LengthCount>(entries), max_length,
                       pack::overlong_named(overlong));
  });
}

/// Ends a search when the interpreter has a signal to handle, such as Ctrl-C.
bool poll(const pack::Progress&) {
  const nb::gil_scoped_acquire acquired;
  return PyErr_CheckSignals() == 0;
}

Packing plan(const Input& input, const std::string& algorithm, uint32_t max_per_pack, uint64_t seed,
             bool certify, double time_limit) {
  const pack::Options options{.algorithm = pack::algorithm_named(algorithm),
                              .max_per_pack = max_per_pack,
                              .certify = certify,
                              .time_limit = time_limit,
                              .seed = seed,
                              .poll = poll};
  Packing packing;
  {
    const nb::gil_scoped_release released;
    packing = pack::plan(input.histogram, options);
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return packing;
}

/// An index array as one of NumPy, without a copy.
nb::object index_array(IndexArray array) {
  auto* kept = new IndexArray(std::move(array));
  const nb::capsule owner = keep(kept);
  const auto as = [&]<class T>(T) -> nb::object {
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner).cast();
  };
  return kept->width() == 4 ? as(uint32_t{}) : as(uint64_t{});
}

/// Offsets, sequence, start, and begin and length or None.
using IndexArrays = nb::typed<nb::tuple, nb::any, nb::any, nb::any, nb::any, nb::any>;

/// Throws UsageError unless an input is the count of these lengths.
void require_counted(const Input& input, const Lengths& lengths) {
  const Input again =
      as_argument([&] { return pack::count(lengths, input.histogram.max_length(), input.overlong); });
  if (again.histogram.counts != input.histogram.counts || again.sequences != input.sequences)
    throw UsageError(
        "these are not the lengths that were planned; plan them, or take the lengths of the plan");
}

pack::PackIndex index_of(const Packing& packing, const Input& input, const Lengths& lengths,
                         const pack::OrderOptions& order) {
  try {
    return pack::index_packs(packing, input, lengths, order);
  } catch (const UsageError&) {
    throw;
  } catch (const Error&) {  // the library supposes that they have changed since they were counted
    require_counted(input, lengths);
    throw;
  }
}

IndexArrays index(const Packing& packing, const Input& input, nb::object lengths,
                  std::optional<uint64_t> shuffle, uint32_t ranks) {
  const Lengths indexed = lengths_of(lengths);
  pack::PackIndex packs;
  {
    const nb::gil_scoped_release released;
    packs = index_of(packing, input, indexed, {.shuffle = shuffle, .ranks = ranks});
  }
  const bool has_pieces = packs.length.size() > 0;
  return nb::borrow<IndexArrays>(nb::make_tuple(
      index_array(std::move(packs.offsets)), index_array(std::move(packs.sequence)),
      index_array(std::move(packs.start)), has_pieces ? index_array(std::move(packs.begin)) : nb::none(),
      has_pieces ? index_array(std::move(packs.length)) : nb::none()));
}

/// Kinds of packs: the lengths in one, and how many there are.
std::vector<std::pair<std::vector<uint32_t>, uint64_t>> strategies(const Packing& packing) {
  std::vector<std::pair<std::vector<uint32_t>, uint64_t>> all;
  for (const pack::Strategy& strategy : packing.strategies) {
    std::vector<uint32_t>& lengths = all.emplace_back(std::vector<uint32_t>{}, strategy.count).first;
    for (const pack::Part& part : strategy.parts) lengths.insert(lengths.end(), part.copies, part.length);
  }
  return all;
}

// Pickles: plain numbers, of which reading believes none.

using InputState = std::tuple<std::vector<uint64_t>, std::string, uint64_t, uint64_t, uint64_t, uint64_t>;

InputState state_of(const Input& input) {
  return {input.histogram.counts,   std::string(pack::name_of(input.overlong)),
          input.sequences,          input.tokens,
          input.overlong_sequences, input.lost_tokens};
}

Input input_from(const InputState& state) {
  const auto& [counts, policy, sequences, tokens, overlong_sequences, lost_tokens] = state;
  Input input{{counts}, pack::overlong_named(policy), sequences, tokens, overlong_sequences, lost_tokens};
  if (counts.empty()) throw UsageError("a pickled histogram has no lengths");
  pack::require_sane(input.histogram);
  return input;
}

using PackingState =
    std::tuple<std::string, uint32_t, std::vector<std::vector<uint32_t>>, std::vector<uint64_t>,
               std::vector<uint64_t>, std::vector<uint64_t>, uint64_t, uint64_t, bool, double>;

PackingState state_of(const Packing& packing) {
  std::vector<std::vector<uint32_t>> parts;
  std::vector<uint64_t> counts;
  for (const pack::Strategy& strategy : packing.strategies) {
    std::vector<uint32_t>& numbers = parts.emplace_back();
    for (const pack::Part& part : strategy.parts) numbers.insert(numbers.end(), {part.length, part.copies});
    counts.push_back(strategy.count);
  }
  const pack::Certificate& proof = packing.certificate;
  return {std::string(pack::name_of(packing.algorithm)),
          packing.max_per_pack,
          parts,
          counts,
          proof.histogram.counts,
          proof.weights,
          proof.heaviest,
          proof.lower_bound,
          packing.cut_short,
          packing.seconds};
}

Packing packing_from(const PackingState& state) {
  const auto& [algorithm, max_per_pack, parts, counts, lengths, weights, heaviest, lower_bound, cut_short,
               seconds] = state;
  if (parts.size() != counts.size() || lengths.empty())
    throw UsageError("a pickled packing has parts that do not belong together");
  Packing packing{.algorithm = pack::algorithm_named(algorithm),
                  .max_length = static_cast<uint32_t>(lengths.size() - 1),
                  .max_per_pack = max_per_pack,
                  .strategies = {},
                  .certificate = {{lengths}, max_per_pack, weights, heaviest, lower_bound},
                  .cut_short = cut_short,
                  .seconds = seconds};
  for (size_t s = 0; s < parts.size(); ++s) {
    if (parts[s].size() % 2 != 0)
      throw UsageError("a pickled packing has a length without a number of copies");
    pack::Strategy& strategy = packing.strategies.emplace_back(pack::Strategy{{}, counts[s]});
    for (size_t i = 0; i < parts[s].size(); i += 2) strategy.parts.push_back({parts[s][i], parts[s][i + 1]});
  }
  pack::verify(packing, packing.certificate.histogram);
  packing.sequences = packing.certificate.histogram.sequences();
  packing.tokens = packing.certificate.histogram.tokens();
  return packing;
}

/// Copies values[begin[i] : begin[i] + length[i]] one after another.
nb::object gather(nb::object values, nb::object begin, nb::object length) {
  const nb::ndarray<nb::ro> source = array_of(values, "values");
  if (source.ndim() != 1 || (source.shape(0) > 1 && source.stride(0) != 1))
    throw UsageError("values must be one-dimensional and contiguous");
  const auto begins = integers_of<uint64_t>(begin, "begin"),
             lengths = integers_of<uint64_t>(length, "length");
  if (begins.size() != lengths.size())
    throw UsageError(fmt::format("{} begins and {} lengths", begins.size(), lengths.size()));
  const uint64_t size = source.shape(0), width = source.itemsize();
  uint64_t total = 0;
  for (size_t i = 0; i < begins.size(); ++i) {
    if (begins[i] > size || lengths[i] > size - begins[i])
      throw UsageError(
          fmt::format("piece {} has values {} to {} of {}", i, begins[i], begins[i] + lengths[i], size));
    total += lengths[i];
  }
  auto* data = new std::byte[std::max<uint64_t>(total * width, 1)];
  const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<std::byte*>(p); });
  {
    const nb::gil_scoped_release released;
    const auto* from = static_cast<const std::byte*>(source.data());
    std::byte* to = data;
    for (size_t i = 0; i < begins.size(); ++i) {
      std::memcpy(to, from + begins[i] * width, lengths[i] * width);
      to += lengths[i] * width;
    }
  }
  return nb::ndarray<nb::numpy>(data, {total}, owner, {1}, source.dtype()).cast();
}

}  // namespace

void bind_packing(nb::module_& m) {
  nb::class_<Input>(m, "PackInput", "Sequences to pack, counted by length.")
      .def("__getstate__", [](const Input& input) { return state_of(input); })
      .def("__setstate__",
           [](Input& input, const InputState& state) { new (&input) Input(input_from(state)); })
      .def_ro("sequences", &Input::sequences)
      .def_ro("tokens", &Input::tokens)
      .def_ro("overlong_sequences", &Input::overlong_sequences)
      .def_ro("lost_tokens", &Input::lost_tokens)
      .def_prop_ro("pieces", [](const Input& input) { return input.histogram.sequences(); });
  m.def("count_lengths", &count_lengths, "lengths"_a, "max_length"_a, "overlong"_a);
  m.def("count_histogram", &count_histogram, "lengths"_a, "counts"_a, "max_length"_a, "overlong"_a);

  nb::class_<Packing>(m, "Packing", "A packing of a histogram: every sequence in exactly one pack.")
      .def("__getstate__", [](const Packing& packing) { return state_of(packing); })
      .def("__setstate__",
           [](Packing& packing, const PackingState& state) { new (&packing) Packing(packing_from(state)); })
      .def_ro("max_length", &Packing::max_length)
      .def_ro("max_per_pack", &Packing::max_per_pack)
      .def_ro("sequences", &Packing::sequences)
      .def_ro("tokens", &Packing::tokens)
      .def_ro("cut_short", &Packing::cut_short)
      .def_ro("seconds", &Packing::seconds)
      .def_prop_ro("algorithm", [](const Packing& p) { return std::string(pack::name_of(p.algorithm)); })
      .def_prop_ro("packs", &Packing::packs)
      .def_prop_ro("lower_bound", &Packing::lower_bound)
      .def_prop_ro("padding", &Packing::padding)
      .def_prop_ro("efficiency", &Packing::efficiency)
      .def_prop_ro("packing_factor", &Packing::packing_factor)
      .def_prop_ro("depths", &Packing::depths)
      .def_prop_ro("strategies", &strategies)
      .def(
          "save_certificate",
          [](const Packing& p, const std::string& path) { pack::save_certificate(path, p.certificate); },
          "path"_a);
  m.def("plan_packs", &plan, "input"_a, "algorithm"_a, "max_per_pack"_a, "seed"_a, "certify"_a,
        "time_limit"_a);
  m.def(
      "plan_shard",
      [](const Packing& whole, const Input& shard) { return pack::plan_shard(whole, shard.histogram); },
      "whole"_a, "shard"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def("index_packs", &index, "packing"_a, "input"_a, "lengths"_a, "shuffle"_a.none(), "ranks"_a);
  m.def(
      "verify_certificate", [](const std::string& path) { pack::verify(pack::load_certificate(path)); },
      "path"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def("gather", &gather, "values"_a, "begin"_a, "length"_a);
}

}  // namespace tessera::python
