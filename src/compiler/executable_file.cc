#include "compiler/executable_file.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/checksum.h"
#include "compiler/describe.h"
#include "compiler/passes.h"
#include "compiler/soundness.h"
#include "io/atomic_file.h"
#include "io/source.h"

namespace tessera::compiler {
namespace {

/// The first word of a file; with another byte order it reads differently.
constexpr uint64_t kMagic = 0x4558454152455354;  // "TSERAEXE"
/// Version of what describe.h lists: increased with each change there.
constexpr uint32_t kVersion = 9;

struct Header {
  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  uint64_t checksum = 0;  ///< of everything after the header
};
constexpr size_t kHeaderBytes = 20;

template <class A>
void describe(A& a, Header& x) {
  a(x.magic, x.version, x.checksum);
}

/// The figures of its machine on which an executable depends.
std::map<std::string, double> figures_of(const machine::Machine& m, uint32_t replicas = 1) {
  std::map<std::string, double> figures = {
      {"kind", static_cast<double>(m.kind)},
      {"tiles", static_cast<double>(m.tiles) * replicas},
      {"workers_per_tile", m.workers_per_tile},
      {"clock_hz", m.clock_hz},
      {"tile_bytes", static_cast<double>(m.tile_bytes)},
      {"shared_bytes", static_cast<double>(m.shared_bytes)},
  };
  for (const machine::Figure& figure : m.sources) figures.try_emplace(figure.name, figure.value);
  if (m.chips > 1) figures["topology"] = static_cast<double>(m.topology);
  return figures;
}

void check_machine(const std::map<std::string, double>& wanted, const machine::Machine& machine) {
  const std::map<std::string, double> figures = figures_of(machine);
  for (const auto& [name, value] : wanted) {
    const auto is = figures.find(name);
    if (is == figures.end() || is->second != value)
      throw Error(fmt::format("it was compiled for a machine with {} = {}; '{}' has {}", name, value,
                              machine.name, is == figures.end() ? "none" : fmt::format("{}", is->second)));
  }
  if (figures.size() != wanted.size())
    throw Error(fmt::format("it was compiled for a machine of {} figures; '{}' has {}", wanted.size(),
                            machine.name, figures.size()));
}

/// Every vertex and every copy is in the file. Otherwise a few bytes could claim a number of vertices whose
/// verification would take long.
void check_counts(const program::Program& program, uint64_t bytes) {
  uint64_t count = 0;
  for (const program::ComputeSet& set : program.compute_sets())
    for (const program::VertexGroup& group : set.groups) count += uint64_t{group.tiles} * group.per_tile;
  for (const program::CopySet& set : program.copy_sets())
    for (const program::CopyGroup& group : set.groups) count += group.count;
  if (count > bytes) throw Error(fmt::format("it has {} vertices and copies in {} bytes", count, bytes));
}

bool has_chips_of(const machine::Machine& m, const ExchangeCost& cost) {
  return std::ranges::all_of(cost.tied, [&](const program::TiedChips& group) {
    return std::ranges::all_of(group.chips,
                               [&](uint32_t chip) { return chip - m.first_chip() < m.chip_count(); });
  });
}

/// Runs add these costs to clocks of chips, and reports list them by tile, so all must be there.
void check_costs(const Executable& e) {
  const machine::Machine& m = e.machine;
  if (e.set_cycles.size() != e.sets.size() || e.collectives.size() != e.program->collectives().size())
    throw Error("it lacks costs of compute sets or collectives, or has costs of others");
  bool are_there = true;
  for (const CompiledSet& set : e.sets) {
    are_there = are_there && set.tile_cycles.size() == set.tiles.size() &&
                std::ranges::all_of(set.tiles, [&](program::TileId tile) { return tile < m.tiles; });
    if (m.chip_count() > 1)
      are_there = are_there && has_chips_of(m, set.before.cost) && has_chips_of(m, set.after.cost) &&
                  std::ranges::all_of(set.chip_cycles, [&](const ChipCycles& cycles) {
                    return cycles.chip - m.first_chip() < m.chip_count();
                  });
  }
  for (const Exchange& copy : e.copies)
    are_there = are_there && (m.chip_count() == 1 || has_chips_of(m, copy.cost));
  for (const CollectiveCost& cost : e.collectives)
    are_there = are_there && std::ranges::all_of(cost.chips, [&](uint32_t chip) {
                  return chip - m.first_chip() < m.chip_count();
                });
  const size_t memories = m.kind == machine::Kind::tiled ? m.tiles : 1;
  are_there =
      are_there && e.memory.tiles.size() == memories && (memories == 1 || e.memory.fullest_tile < memories);
  if (!are_there) throw Error("it has costs of tiles or chips that its machine lacks");
}

/// Reads what comes before the program.
void read_front(Reader& reader, std::span<const std::byte> bytes, const machine::Machine& machine) {
  Header header;
  reader(header);
  if (header.magic != kMagic) throw Error("it is not a Tessera executable for this byte order");
  if (header.version != kVersion)
    throw Error(fmt::format("it has format version {}, this build reads {}: compile it again", header.version,
                            kVersion));
  if (header.checksum != base::checksum(bytes.subspan(kHeaderBytes))) throw Error("it is damaged");
  std::map<std::string, double> figures;
  reader(figures);
  check_machine(figures, machine);
}

/// The same description reads and writes, so it takes a mutable reference; a Writer changes nothing.
std::vector<std::byte> bytes_of_program(const program::Program& program) {
  Writer writer;
  writer(const_cast<program::Program&>(program));
  return std::move(writer).release();
}

/// Reads what comes after the program.
std::shared_ptr<const Executable> read_compiled(Reader& reader,
                                                std::shared_ptr<const program::Program> program,
                                                const machine::Machine& machine) {
  auto executable = std::make_shared<Executable>();
  executable->machine = machine_of_replica(*program, machine);
  program::verify(*program, executable->machine.tiles, machine.has_shared_space());
  executable->program = std::move(program);
  reader(*executable);
  if (!reader.at_end()) throw Error("it continues after its end");
  check_executable(*executable);
  check_costs(*executable);
  find_runtime_control(*executable);
  return executable;
}

std::shared_ptr<const Executable> read(std::span<const std::byte> bytes, const machine::Machine& machine,
                                       FindCodelet find) {
  Reader reader(bytes, find);
  read_front(reader, bytes, machine);
  program::Program program;
  reader(program);
  check_counts(program, bytes.size());
  return read_compiled(reader, std::make_shared<const program::Program>(std::move(program)), machine);
}

}  // namespace

std::vector<std::byte> to_bytes(const Executable& executable) {
  Writer all;
  Header header;
  const bool is_host = executable.machine.kind == machine::Kind::host;
  std::map<std::string, double> figures =
      figures_of(executable.machine, is_host ? 1 : executable.program->replicas());
  // The same description reads and writes, so it takes mutable references; a Writer changes nothing.
  all(header, figures, const_cast<program::Program&>(*executable.program),
      const_cast<Executable&>(executable));
  header.checksum = base::checksum(all.bytes().subspan(kHeaderBytes));
  Writer front;
  front(header);
  std::vector<std::byte> bytes = std::move(all).release();
  std::ranges::copy(front.bytes(), bytes.begin());
  return bytes;
}

void save(const Executable& executable, const std::string& file) {
  io::AtomicFile output(file);
  output.write(to_bytes(executable));
  output.commit();
}

std::shared_ptr<const Executable> load(const std::string& file, const machine::Machine& machine,
                                       FindCodelet find) {
  const std::vector<char> content = io::Source::open(file).read_all();
  try {
    return read(std::as_bytes(std::span(content)), machine, find);
  } catch (const Error& e) {
    throw Error(fmt::format("{}: {}", file, e.what()));
  }
}

std::shared_ptr<const Executable> from_bytes(std::span<const std::byte> bytes,
                                             std::shared_ptr<const program::Program> program,
                                             const machine::Machine& machine) {
  Reader reader(bytes, nullptr);  // only a program has codelets
  read_front(reader, bytes, machine);
  if (!reader.skip(bytes_of_program(*program))) throw Error("it is the executable of another program");
  return read_compiled(reader, std::move(program), machine);
}

}  // namespace tessera::compiler
