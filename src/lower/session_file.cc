#include "lower/session_file.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "base/checksum.h"
#include "base/isa.h"
#include "compiler/archive.h"
#include "compiler/executable_file.h"
#include "io/atomic_file.h"
#include "io/source.h"
#include "lower/parts.h"

namespace tessera::graph {
namespace {

/// The first word of a file; with another byte order it reads differently.
constexpr uint64_t kSessionMagic = 0x5345535345545354;  // "TSTESSES"
/// Version of what comes before the executable, which has its own.
constexpr uint32_t kSessionVersion = 2;

struct SessionHeader {
  uint64_t magic = kSessionMagic;
  uint32_t version = kSessionVersion;
  uint64_t bytes = 0;     ///< of the choices, which follow
  uint64_t checksum = 0;  ///< of the choices
};

template <class A>
void describe(A& a, SessionHeader& x) {
  a(x.magic, x.version, x.bytes, x.checksum);
}

std::string sum_of(const std::string& text) {
  return fmt::format("{:016x}", base::checksum(std::as_bytes(std::span(text))));
}

}  // namespace

template <class A>
void describe(A& a, Fact& x) {
  a(x.name, x.value);
}
template <class A>
void describe(A& a, PlacementCost& x) {
  a(x.placement, x.seconds, x.overflow, x.chosen);
}
template <class A>
void describe(A& a, Placement& x) {
  a(x.chips, x.first_layers, x.pipeline);
}
template <class A>
void describe(A& a, Recomputable& x) {
  a(x.loop, x.call, x.stage);
}
template <class A>
void describe(A& a, Recomputation& x) {
  a(x.budget, x.chosen);
}
template <class A>
void describe(A& a, SessionChoices& x) {
  a(x.made_for, x.parts, x.last_parts, x.recomputation, x.placement, x.considered);
}

Facts facts_of(const Graph& graph, const machine::Machine& machine, const SessionOptions& options) {
  const bool is_host = machine.kind == machine::Kind::host;
  std::string figures = fmt::format("{} tiles, {}", machine.tiles, name_of(machine.topology));
  for (const machine::Figure& figure : machine.sources)
    figures += fmt::format(", {} {}", figure.name, figure.value);
  Facts facts = {{"version of the library", TESSERA_VERSION}, {"machine", sum_of(figures)}};
  if (is_host) {
    facts.push_back({"instruction set", std::string(name_of(active_isa()))});
    facts.push_back({"number of threads", fmt::format("{}", threads_of(machine, options))});
  }
  facts.push_back({"number of parts", fmt::format("{}", options.parts)});
  facts.push_back({"number of chips", fmt::format("{}", options.on_chips)});
  facts.push_back({"graph", sum_of(to_string(graph))});
  return facts;
}

void write_session_file(const std::string& path, SessionChoices choices,
                        const compiler::Executable& executable) {
  compiler::Writer body;
  body(choices);
  SessionHeader header{.bytes = body.bytes().size(), .checksum = base::checksum(body.bytes())};
  compiler::Writer front;
  front(header);
  io::AtomicFile file(path);
  file.write(front.bytes());
  file.write(body.bytes());
  file.write(compiler::to_bytes(executable));
  file.commit();
}

SessionFile::SessionFile(const std::string& path) : path_(path), content_(io::Source::open(path).read_all()) {
  try {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(content_));
    compiler::Reader reader(bytes, nullptr);
    SessionHeader header;
    reader(header);
    if (header.magic != kSessionMagic)
      throw Error("it is not the executable of a session for this byte order");
    if (header.version != kSessionVersion)
      throw Error(fmt::format("it has format version {}, this build reads {}: save it again", header.version,
                              kSessionVersion));
    reader.require(header.bytes);
    const std::span<const std::byte> body = reader.rest().first(header.bytes);
    if (header.checksum != base::checksum(body)) throw Error("it is damaged");
    compiler::Reader choices(body, nullptr);
    choices(choices_);
    if (!choices.at_end()) throw Error("it has more than was chosen");
    executable_at_ = bytes.size() - reader.rest().size() + header.bytes;
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", path, error.what()));
  }
}

void SessionFile::require(const Facts& facts) const {
  for (size_t i = 0; i < facts.size(); ++i)
    if (i >= choices_.made_for.size() || choices_.made_for[i] != facts[i]) refuse_other(facts[i].name);
}

void SessionFile::refuse_other(std::string_view what) const {
  throw Error(fmt::format(
      "{}: it was made for another {} than this session's: leave it out, and save another", path_, what));
}

Graph SessionFile::recomputed(const Graph& graph) const {
  const auto& [budget, chosen] = choices_.recomputation;
  if (budget != graph.memory_budget()) refuse_other("memory budget");
  Graph own = graph;
  if (!budget) return own;
  const std::vector<RecomputationCandidate> candidates = recomputation_candidates(graph);
  for (const Recomputable& each : chosen)
    if (std::ranges::find(candidates, each, &RecomputationCandidate::what) == candidates.end())
      refuse_other("graph");
  recompute(own, chosen);
  own.set_memory_budget({});
  return own;
}

std::shared_ptr<const compiler::Executable> SessionFile::executable(
    std::shared_ptr<const program::Program> program, const machine::Machine& machine) const {
  try {
    return compiler::from_bytes(std::as_bytes(std::span(content_)).subspan(executable_at_),
                                std::move(program), machine);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}: leave it out, and save another", path_, error.what()));
  }
}

}  // namespace tessera::graph
