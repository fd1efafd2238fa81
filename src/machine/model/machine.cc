#include "machine/model/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>

#include <utility>

#include "machine/host/measure.h"
#include "machine/model/builtin.h"
#include "machine/model/keys.h"

namespace tessera::machine {
namespace {

std::vector<Figure> host_sources(const Machine& m, const std::string& rates) {
  const HostFigures& f = m.figures;
  const std::string system = "operating system";
  const bool is_for_sparse = f.bf16_flops_per_cycle > 0 && !has_fast_bf16_products(f.isa);
  return {
      {"tiles", static_cast<double>(m.tiles), "threads", "one per allowed physical core, or as requested"},
      {"clock", f.ghz, "GHz", rates},
      {"flops", f.flops_per_cycle, "per cycle and core", rates},
      {"bf16_flops", f.bf16_flops_per_cycle,
       is_for_sparse ? "per cycle and core, sparse products only" : "per cycle and core, 0: as FP32", rates},
      {"l1", static_cast<double>(f.l1_bytes), "bytes per core", system},
      {"l2", static_cast<double>(f.l2_bytes), "bytes per core", system},
      {"l3", static_cast<double>(f.l3_bytes), "bytes", system},
      {"l1_rate", f.l1_bytes_per_cycle, "bytes per cycle and core", rates},
      {"l2_rate", f.l2_bytes_per_cycle, "bytes per cycle and core", rates},
      {"l3_rate", f.l3_bytes_per_cycle, "bytes per cycle and core", rates},
      {"memory_rate", f.memory_gbps, "GB/s, all cores", rates},
      {"superstep", f.superstep_seconds * 1e6, "µs", rates},
      {"memory", static_cast<double>(m.shared_bytes), "bytes", system},
  };
}

}  // namespace

std::string_view name_of(Topology topology) {
  switch (topology) {
    case Topology::ladder: return "ladder";
    case Topology::torus: return "torus";
    case Topology::all_to_all: return "all-to-all";
  }
  return "";
}

Machine Machine::part(uint32_t first, uint32_t count) const {
  Machine part = *this;
  part.first_tile += first;
  part.tiles = count;
  return part;
}

bool Machine::is_like(const Machine& other) const {
  if (tiles != other.tiles || chips != other.chips) return false;
  if (chips == 1 || chip_count() > 1 || other.chip_count() > 1 || chip_tiles == 0) return *this == other;
  if (first_tile % chip_tiles != other.first_tile % chip_tiles) return false;
  Machine moved = other;
  moved.first_tile = first_tile;
  return *this == moved;
}

Machine host(unsigned threads) {
  check_threads(threads);
  Machine m;
  m.name = "host";
  m.kind = Kind::host;
  m.facts = detect_host();
  m.description = m.facts.cpu;
  m.tiles = threads != 0 ? threads : default_threads(m.facts);
  const Isa isa = active_isa();
  m.figures = builtin_figures(m.facts, isa, m.tiles);
  std::string rates = fmt::format("built in for {}", name_of(isa));
  if (const auto measurement = load_measurement(m.facts)) {
    m.figures = measured_figures(*measurement, m.facts, isa, m.tiles);
    rates = "tessera machines measure";
  }
  m.clock_hz = m.figures.ghz * 1e9;
  m.shared_bytes = m.facts.memory_bytes;
  m.sources = host_sources(m, rates);
  return m;
}

std::vector<std::string> builtin_names() {
  std::vector<std::string> names;
  for (const base::EmbeddedFile& file : kBuiltinFiles) names.emplace_back(file.name);
  return names;
}

Machine find(const std::string& name, unsigned threads) {
  if (name == "host") return host(threads);
  for (const base::EmbeddedFile& file : kBuiltinFiles)
    if (file.name == name) return parse(file.content, fmt::format("machines/{}.toml", name));
  if (name.ends_with(".toml")) return read(name);
  throw UsageError(
      fmt::format("unknown machine '{}' (choose from host, {}, or a .toml file: docs/machines.md)", name,
                  fmt::join(builtin_names(), ", ")));
}

void apply(const Setting& setting, Machine& machine) {
  const std::string where = machine.name;
  if (machine.kind != Kind::tiled)
    throw UsageError(fmt::format("{}: its figures are the host's; set figures of a modelled machine", where));
  const Key& key = find_key(setting.key, where);
  try {
    Machine changed = machine;
    enter(changed, key, setting.value, "set by hand", where);
    check_chips(changed, where);
    machine = std::move(changed);
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
}

}  // namespace tessera::machine
