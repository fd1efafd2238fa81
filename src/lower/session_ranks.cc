// Sessions of ranks that divide a graph's replicas among them: what the ranks agree on.
#include <fmt/format.h>
#include <tessera/communicator.h>
#include <tessera/error.h>

#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/isa.h"
#include "graph/operation.h"
#include "lower/session_file.h"
#include "lower/session_impl.h"
#include "ranks/agreement.h"
#include "ranks/gather.h"

namespace tessera::graph {
namespace {

/// What a graph's text leaves out: values, and the positions of blocks.
class Contents {
 public:
  explicit Contents(const Graph& graph) { add(graph); }

  uint64_t checksum() const { return base::checksum(std::as_bytes(std::span(sums_))); }

 private:
  void add(const Graph& graph) {
    for (const ValueInfo& info : graph.values()) {
      sums_.push_back(static_cast<uint64_t>(info.initial.kind));
      sums_.push_back(std::bit_cast<uint64_t>(info.initial.scale));
      if (info.initial.values != nullptr) add_items(*info.initial.values);
      if (info.type.pattern == nullptr) continue;
      add_items(info.type.pattern->crow_indices);
      add_items(info.type.pattern->col_indices);
    }
    for (const Node& node : graph.nodes())
      if (node.body != nullptr && bodies_.insert(node.body.get()).second) add(*node.body);
  }
  template <class T>
  void add_items(const std::vector<T>& items) {
    sums_.push_back(base::checksum(std::as_bytes(std::span(items))));
  }

  std::vector<uint64_t> sums_;
  std::set<const Graph*> bodies_;
};

/// One on each line: its name, a tab, and its value.
std::string lines_of(const Facts& facts) {
  std::string lines;
  for (const Fact& fact : facts) lines += fmt::format("{}\t{}\n", fact.name, fact.value);
  return lines;
}

std::string text_of_difference(uint32_t rank, const std::string& facts, const std::string& of_first) {
  std::istringstream own(facts), first(of_first);
  std::string line, expected;
  while (std::getline(own, line) && std::getline(first, expected) && line == expected) {
  }
  const size_t tab = line.find('\t');
  return fmt::format("rank {} has another {} than rank 0, {} and not {}: start all ranks with the same", rank,
                     line.substr(0, tab), line.substr(tab + 1), expected.substr(expected.find('\t') + 1));
}

void require_equal(Communicator& communicator, const Facts& facts) {
  const std::vector<std::string> all = ranks::all_gather(communicator, lines_of(facts));
  for (uint32_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0]) throw RankError(text_of_difference(rank, all[rank], all[0]));
}

}  // namespace

std::shared_ptr<Session::Impl> Session::Impl::from_options(const Graph& graph,
                                                           const machine::Machine& machine,
                                                           const SessionOptions& options, const Owner& of) {
  Communicator* communicator = options.communicator.get();
  if (communicator == nullptr || communicator->size() == 1) return make(graph, machine, options, of);
  std::shared_ptr<Impl> made;
  ranks::do_on_each(*communicator, [&] {
    if (of.session == nullptr && graph.replicas() == 1)
      throw UsageError(
          fmt::format("{} ranks divide the replicas of a graph among them, and there is one: ask for a "
                      "multiple of {}",
                      communicator->size(), communicator->size()));
    made = make(graph, machine, options, of);
  });
  Facts facts = facts_of(graph, machine, options);
  facts.push_back({"instruction set", std::string(name_of(active_isa()))});
  facts.push_back({"number of replicas", fmt::format("{}", graph.replicas())});
  facts.push_back({"seed", fmt::format("{}", options.seed)});
  facts.push_back({"set of values", fmt::format("{:016x}", Contents(graph).checksum())});
  require_equal(*communicator, facts);
  return made;
}

void Session::Impl::write_once(const std::function<void()>& write) const {
  ranks::do_once(options.communicator.get(), write);
}

}  // namespace tessera::graph
