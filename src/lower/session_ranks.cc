// Sessions of ranks that divide a graph's replicas among them: what the ranks agree on.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/communicator.h>
#include <tessera/error.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/checksum.h"
#include "base/isa.h"
#include "graph/operation.h"
#include "graph/stages.h"
#include "lower/session_file.h"
#include "lower/session_impl.h"
#include "ranks/agreement.h"
#include "ranks/gather.h"

namespace tessera::graph {
namespace {

/// What a graph's text leaves out: the functions that it calls, and values, all digits of numbers and the
/// positions of blocks.
class Contents {
 public:
  explicit Contents(const Graph& graph) { add(graph); }

  uint64_t functions() const { return sum_of(functions_); }
  uint64_t values() const { return sum_of(values_); }

 private:
  template <class Items>
  static uint64_t sum_of(const Items& items) {
    return base::checksum(std::as_bytes(std::span(items)));
  }

  void add(const Graph& graph) {
    for (const ValueInfo& info : graph.values()) {
      values_.push_back(static_cast<uint64_t>(info.initial.kind));
      values_.push_back(std::bit_cast<uint64_t>(info.initial.scale));
      if (info.initial.values != nullptr) values_.push_back(sum_of(*info.initial.values));
      if (info.type.pattern == nullptr) continue;
      values_.push_back(sum_of(info.type.pattern->crow_indices));
      values_.push_back(sum_of(info.type.pattern->col_indices));
    }
    for (const Node& node : graph.nodes()) {
      for (const auto& [name, value] : node.attributes)
        if (const auto* number = std::get_if<double>(&value))
          values_.push_back(std::bit_cast<uint64_t>(*number));
      if (node.body != nullptr) add_function(*node.body);
    }
  }
  void add_function(const Graph& function) {
    const auto [known, is_new] = numbers_.try_emplace(&function, numbers_.size());
    functions_.push_back(known->second);
    if (!is_new) return;
    functions_.push_back(sum_of(to_string(function)));
    add(function);
  }

  std::vector<uint64_t> functions_, values_;
  std::map<const Graph*, uint64_t> numbers_;
};

/// A number that all ranks have for the session that they make, and for no other: the first rank's.
uint64_t number_of_session(Communicator& communicator) {
  static std::atomic<uint64_t> last = 0;
  const uint64_t own = ++last;
  std::vector<uint64_t> all(communicator.size());
  ranks::all_gather(communicator, std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  return all.front();
}

}  // namespace

std::shared_ptr<Session::Impl> Session::Impl::from_options(const Graph& graph,
                                                           const machine::Machine& machine,
                                                           const SessionOptions& options, const Owner& of) {
  Communicator* communicator = options.communicator.get();
  if (communicator == nullptr || communicator->size() == 1)
    return make(graph, machine, options, of, bound::Runs::resumed);
  std::shared_ptr<Impl> made;
  ranks::do_on_each(communicator, [&] {
    const auto require_some = [&](bool are_there) {
      if (!are_there)
        throw UsageError(fmt::format(
            "{} ranks divide the replicas of a graph among them, but there is only one: ask for a "
            "multiple of {}, or on a host for stages, which they divide as well",
            communicator->size(), communicator->size()));
    };
    const bool may_have_parts = machine.kind == machine::Kind::host && has_stages(graph);
    require_some(of.session != nullptr || graph.replicas() > 1 || may_have_parts);
    made = make(graph, machine, options, of, bound::Runs::resumed);
    require_some(of.session != nullptr || graph.replicas() > 1 || made->executable().program->parts() > 1);
  });
  ranks::Facts facts = {
      {"number of tiles", fmt::format("{}", machine.tiles)}};  // in which hosts differ most often
  for (const Fact& fact : facts_of(graph, machine, options)) facts.emplace_back(fact.name, fact.value);
  facts.emplace_back("instruction set", std::string(name_of(active_isa())));
  facts.emplace_back("number of replicas", fmt::format("{}", graph.replicas()));
  std::vector<std::string> begins;
  for (const ValueId id : made->graph.stage_begins()) begins.push_back(made->graph.info(id).name);
  facts.emplace_back("division into stages", fmt::format("[{}]", fmt::join(begins, ", ")));
  facts.emplace_back("seed", fmt::format("{}", options.seed));
  const Contents contents(graph);
  facts.emplace_back("set of functions", fmt::format("{:016x}", contents.functions()));
  facts.emplace_back("set of values", fmt::format("{:016x}", contents.values()));
  ranks::require_equal(*communicator, facts);
  // Otherwise ranks could mix what equal sessions send.
  made->program().state().note(number_of_session(*communicator));
  return made;
}

void Session::Impl::on_each(const std::function<void()>& work) const {
  ranks::do_on_each(options.communicator.get(), work);
}

void Session::Impl::require_same(const std::map<ValueId, Pattern>& patterns, const ReadValues& values,
                                 const ReadIntegers& integers) const {
  if (options.communicator == nullptr) return;
  std::vector<uint64_t> sums;
  const auto add = [&](const auto& items) {
    sums.push_back(base::checksum(std::as_bytes(std::span(items))));
  };
  for (const auto& [id, pattern] : patterns) {
    add(pattern.crow_indices);
    add(pattern.col_indices);
  }
  for (const auto& [id, array] : values) add(array);
  for (const auto& [id, elements] : integers) add(elements);
  const uint64_t all = base::checksum(std::as_bytes(std::span(sums)));
  ranks::require_equal(*options.communicator, {{"file to load", fmt::format("{:016x}", all)}});
}

void Session::Impl::write_once(const std::function<void()>& write) const {
  ranks::do_once(options.communicator.get(), write);
}

}  // namespace tessera::graph
