#include <tessera/packing.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "base/clock.h"
#include "io/atomic_folder.h"
#include "io/json_text.h"
#include "io/npy_header.h"
#include "packing/assembly.h"

namespace tessera::pack {
namespace {

using base::Clock;
using base::seconds_since;
using io::AtomicFolder;
using nlohmann::ordered_json;

constexpr const char* kNames[] = {"offsets.npy", "sequence.npy",   "start.npy", "begin.npy",
                                  "length.npy",  "strategies.csv", "meta.json"};

/// An array being written to a file, in the smaller type that fits its largest element.
class ArrayFile {
 public:
  ArrayFile(AtomicFolder& folder, const std::string& name, uint64_t size, uint64_t largest)
      : name_(name), size_(size), wide_(largest > UINT32_MAX), file_(folder.add(name + ".npy")) {
    const std::string header =
        io::npy_header_text(wide_ ? io::Element::u64 : io::Element::u32, std::span(&size, 1));
    file_.write(std::as_bytes(std::span(header)));
  }

  template <class T>
  void append(const std::vector<T>& values) {
    if (wide_)
      write_as<uint64_t>(values);
    else
      write_as<uint32_t>(values);
  }

  ordered_json describe() const {
    return {{"file", name_ + ".npy"}, {"type", wide_ ? "u64" : "u32"}, {"size", size_}};
  }
  const std::string& name() const { return name_; }

 private:
  template <class To, class From>
  void write_as(const std::vector<From>& values) {
    if constexpr (std::is_same_v<To, From>) {
      file_.write(std::as_bytes(std::span(values)));
    } else {
      bytes_.resize(values.size() * sizeof(To));
      To* out = reinterpret_cast<To*>(bytes_.data());
      for (size_t i = 0; i < values.size(); ++i) out[i] = static_cast<To>(values[i]);
      file_.write(bytes_);
    }
  }

  std::string name_;
  uint64_t size_;
  bool wide_;
  AtomicFolder::File& file_;
  std::vector<std::byte> bytes_;
};

ordered_json describe(const Packing& packing, const Input& input, const Provenance& provenance) {
  return {{"schema", 1},
          {"source", provenance.source},
          {"max_length", packing.max_length},
          {"max_per_pack",
           packing.max_per_pack == 0 ? ordered_json(nullptr) : ordered_json(packing.max_per_pack)},
          {"algorithm", name_of(packing.algorithm)},
          {"seed", provenance.seed},
          {"cut_short", packing.cut_short},
          {"sequences", input.sequences},
          {"tokens", input.tokens},
          {"overlong",
           {{"policy", name_of(input.overlong)},
            {"sequences", input.overlong_sequences},
            {"lost_tokens", input.lost_tokens}}},
          {"packs", packing.packs()},
          {"lower_bound", packing.lower_bound()},
          {"entries", packing.sequences}};
}

void write_text(AtomicFolder& folder, const std::string& name, const std::string& text) {
  folder.add(name).write(std::as_bytes(std::span(text)));
}

/// The source's name may have bytes that are no UTF-8; these are replaced.
void write_meta(AtomicFolder& folder, const ordered_json& meta) {
  write_text(folder, "meta.json", io::json_text(meta, 2, io::JsonErrors::replace) + "\n");
}

}  // namespace

WriteTimes write_packs(const std::string& folder, const Packing& packing, const Input& input,
                       const Lengths& lengths, const OrderOptions& order, const Provenance& provenance,
                       const std::function<void(double)>& poll) {
  const Clock::time_point start = Clock::now();
  WriteTimes times;
  AtomicFolder out(folder, kNames);  // before the work, so that obstacles are reported at once
  Assembly assembly(packing, input, lengths, order);
  const uint64_t entries = assembly.entries();
  ArrayFile offsets(out, "offsets", assembly.packs() + 1, entries);
  ArrayFile sequence(out, "sequence", entries, lengths.size() == 0 ? 0 : lengths.size() - 1);
  ArrayFile starts(out, "start", entries, packing.max_length);
  std::vector<ArrayFile> pieces;
  if (assembly.has_splits()) {
    pieces.emplace_back(out, "begin", entries, assembly.longest_sequence());
    pieces.emplace_back(out, "length", entries, packing.max_length);
  }
  offsets.append(std::vector<uint64_t>{0});
  uint64_t done = 0;
  assembly.for_each_block([&](const EntryBlock& block) {
    const Clock::time_point handed = Clock::now();
    offsets.append(block.ends);
    sequence.append(block.sequence);
    starts.append(block.start);
    if (assembly.has_splits()) pieces[0].append(block.begin);
    if (assembly.has_splits()) pieces[1].append(block.length);
    times.writing += seconds_since(handed);
    done += block.sequence.size();
    if (poll) poll(static_cast<double>(done) / static_cast<double>(entries));
  });
  ordered_json meta = describe(packing, input, provenance);
  meta["shuffle"] = order.shuffle ? ordered_json(*order.shuffle) : ordered_json(nullptr);
  meta["ranks"] = order.ranks > 1 ? ordered_json(order.ranks) : ordered_json(nullptr);
  for (const ArrayFile* array : {&offsets, &sequence, &starts})
    meta["arrays"][array->name()] = array->describe();
  for (const ArrayFile& array : pieces) meta["arrays"][array.name()] = array.describe();
  const Clock::time_point committing = Clock::now();
  write_meta(out, meta);
  out.commit();
  times.writing += seconds_since(committing);
  times.computing = seconds_since(start) - times.writing;
  return times;
}

void write_strategies(const std::string& folder, const Packing& packing, const Input& input,
                      const Provenance& provenance) {
  std::string text = "packs,lengths\n";
  for (const Strategy& strategy : packing.strategies) {
    text += std::to_string(strategy.count) + ',';
    for (const Part& part : strategy.parts)
      for (uint32_t copy = 0; copy < part.copies; ++copy) text += std::to_string(part.length) + ' ';
    text.back() = '\n';
  }
  AtomicFolder out(folder, kNames);
  write_text(out, "strategies.csv", text);
  ordered_json meta = describe(packing, input, provenance);
  meta["strategies"] = packing.strategies.size();
  write_meta(out, meta);
  out.commit();
}

}  // namespace tessera::pack
