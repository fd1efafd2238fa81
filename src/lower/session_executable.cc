// Executables of a session, to and from files.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lower/parts.h"
#include "lower/placement.h"
#include "lower/recomputation.h"
#include "lower/session_file.h"
#include "lower/session_impl.h"

namespace tessera::graph {

std::shared_ptr<Session::Impl> Session::Impl::make(const Graph& graph, const machine::Machine& machine,
                                                   const SessionOptions& options, const Owner& of,
                                                   bound::Runs runs) {
  if (graph.balanced_stages().value_or(1) > 1)
    return make(with_balanced_stages(graph, machine), machine, options, of, runs);
  if (!options.executable.empty()) {
    const SessionFile compiled(options.executable);
    auto made = std::make_shared<Impl>(compiled.recomputed(graph), machine, options, of, runs, &compiled);
    made->recomputation = compiled.choices().recomputation;
    return made;
  }
  if (!graph.memory_budget()) return std::make_shared<Impl>(graph, machine, options, of, runs);
  Fitted fitted = fit_to_memory(graph, machine, options, of.graph);
  if (runs != bound::Runs::none) fitted.estimated.reset();  // before the next one takes memory
  auto made = fitted.estimated ? std::move(fitted.estimated)
                               : std::make_shared<Impl>(fitted.graph, machine, options, of, runs);
  made->recomputation = std::move(fitted.recomputation);
  made->passes.insert(made->passes.begin(), std::move(fitted.pass));
  return made;
}

std::optional<Parts> Session::Impl::parts_of(const SessionFile& compiled, const Graph& network,
                                             const machine::Machine& machine) {
  const SessionChoices& choices = compiled.choices();
  if (choices.parts == 0) return {};
  if (machine.kind != machine::Kind::host) compiled.refuse_other("machine");
  std::optional<Parts> parts = divide(network, choices.parts);
  if (!parts || choices.last_parts >= parts->count) compiled.refuse_other("graph");
  parts->last = choices.last_parts;
  return parts;
}

Placed Session::Impl::place_as(const SessionFile& compiled, const machine::Machine& own,
                               bound::Runs runs) const {
  compiled.require(facts_of(graph, whole_machine, options));
  const SessionChoices& choices = compiled.choices();
  Placed again = place_again(
      graph, own, in_place, choices.placement, runs,
      [&](std::shared_ptr<const program::Program> program, const machine::Machine& machine) {
        return compiled.executable(std::move(program), machine);
      },
      ranks_of_runs());
  again.considered = choices.considered;
  return again;
}

void Session::Impl::save_executable(const std::string& path) const {
  write_session_file(path,
                     {.made_for = facts_of(graph, whole_machine, options),
                      .parts = parts ? parts->count : 0,
                      .last_parts = parts ? parts->last : 0,
                      .recomputation = recomputation,
                      .placement = placed.placement,
                      .considered = placed.considered},
                     executable());
}

void Session::save_executable(const std::string& path) const {
  const Impl::Lock lock(*impl_);
  impl_->write_once([&] { impl_->save_executable(path); });
}

}  // namespace tessera::graph
