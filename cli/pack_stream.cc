#include "cli/pack_stream.h"

#include <fmt/format.h>
#include <tessera/packing.h>

#include <cstdio>

#include "base/clock.h"
#include "packing/bounds.h"
#include "packing/text_lengths.h"

namespace tessera::cli {
namespace {

using pack::Entry;

class Printer {
 public:
  explicit Printer(const PackRequest& request)
      : emit_(request.emit != Emit::automatic ? request.emit
              : request.json                  ? Emit::none
                                              : Emit::ids),
        has_splits_(request.overlong == pack::Overlong::truncate ||
                    request.overlong == pack::Overlong::split) {}

  void print(std::span<const Entry> pack) {
    if (emit_ == Emit::ids)
      print_ids(pack);
    else if (emit_ == Emit::json_lines)
      print_json(pack);
    if (text_.size() >= kBuffer) write();
  }

  void flush() {
    if (text_.size() > 0) write();
    std::fflush(stdout);
  }

 private:
  static constexpr size_t kBuffer = 1 << 16;

  void write() {
    std::fwrite(text_.data(), 1, text_.size(), stdout);
    text_.clear();
  }

  void number(uint64_t value) {
    const fmt::format_int digits(value);
    text_.append(digits.data(), digits.data() + digits.size());
  }

  void words(std::string_view text) { text_.append(text.data(), text.data() + text.size()); }

  void print_ids(std::span<const Entry> pack) {
    for (const Entry& entry : pack) {
      if (&entry != pack.data()) text_.push_back(' ');
      number(entry.sequence);
      if (!has_splits_) continue;
      text_.push_back('[');
      number(entry.begin);
      text_.push_back(':');
      number(entry.begin + entry.length);
      text_.push_back(']');
    }
    text_.push_back('\n');
  }

  template <class Field>
  void list(std::string_view name, std::span<const Entry> pack, Field field) {
    words(name);
    for (const Entry& entry : pack) {
      if (&entry != pack.data()) text_.push_back(',');
      number(field(entry));
    }
    text_.push_back(']');
  }

  void print_json(std::span<const Entry> pack) {
    list("{\"sequence\":[", pack, [](const Entry& e) { return e.sequence; });
    list(",\"start\":[", pack, [](const Entry& e) { return uint64_t{e.start}; });
    if (has_splits_) {
      list(",\"begin\":[", pack, [](const Entry& e) { return e.begin; });
      list(",\"length\":[", pack, [](const Entry& e) { return uint64_t{e.length}; });
    }
    words("}\n");
  }

  Emit emit_;
  bool has_splits_;
  fmt::memory_buffer text_;
};

/// Calls f(lengths) for each piece of the input as it arrives.
template <class F>
void for_each_arrival(const PackRequest& request, F f) {
  if (request.lengths == "-") {
    pack::TextLengths text("standard input", 0);
    for (auto part = text.next(); !part.empty(); part = text.next()) f(part);
    return;
  }
  const pack::Lengths lengths =
      request.offsets.empty() ? pack::read_lengths(request.lengths) : pack::read_offsets(request.offsets);
  constexpr uint64_t kAtOnce = 1 << 12;
  std::vector<uint64_t> part;
  for (uint64_t first = 0; first < lengths.size(); first += part.size()) {
    part.resize(std::min(kAtOnce, lengths.size() - first));
    lengths.read(first, part);
    f(std::span<const uint64_t>(part));
  }
}

class Count {
 public:
  explicit Count(report::PackResult& result) : result_(result) {}

  void add(std::span<const Entry> pack) {
    ++result_.packs;
    result_.sequences += pack.size();
    for (const Entry& entry : pack) result_.tokens += entry.length;
    if (result_.depths.size() <= pack.size()) result_.depths.resize(pack.size() + 1);
    ++result_.depths[pack.size()];
  }

 private:
  report::PackResult& result_;
};

}  // namespace

report::PackResult pack_stream(const PackRequest& request) {
  const base::Clock::time_point start = base::Clock::now();
  report::PackResult result;
  result.window = request.window;
  result.max_length = request.max_length;
  result.max_per_pack = request.depths.front();
  pack::StreamPacker packer({request.max_length, *request.window, request.depths.front(), request.overlong});
  Printer printer(request);
  Count count(result);
  const auto take = [&] {
    for (auto pack = packer.next(); !pack.empty(); pack = packer.next()) {
      count.add(pack);
      printer.print(pack);
    }
  };
  for_each_arrival(request, [&](std::span<const uint64_t> lengths) {
    for (const uint64_t length : lengths) {
      packer.push(length);
      take();
    }
    printer.flush();
  });
  packer.finish();
  take();
  printer.flush();
  result.set_input(packer.seen());
  result.lower_bound = pack::threshold_bound(packer.seen().histogram, result.max_per_pack).lower_bound;
  result.seconds = base::seconds_since(start);
  return result;
}

}  // namespace tessera::cli
