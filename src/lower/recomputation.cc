#include "lower/recomputation.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/record_pass.h"
#include "compiler/memory.h"
#include "graph/loop.h"
#include "lower/session_impl.h"

namespace tessera::graph {
namespace {

/// Seconds that each operation of a graph, or of the body of a loop in it, takes in a run. Reports count the
/// time of a function with its first call; calls of one function take equally long.
std::vector<double> operation_seconds(const Graph& graph, const RunCost& cost) {
  std::map<std::string_view, double> by_result;
  for (const OperationCost& operation : cost.operations)
    by_result.emplace(operation.value, operation.seconds);
  std::map<const Graph*, std::pair<double, double>> functions;  // seconds of all calls, and their number
  std::vector<double> seconds;
  for (const Node& node : graph.nodes()) {
    const auto found = by_result.find(graph.info(node.outputs[0]).name);
    seconds.push_back(found == by_result.end() ? 0 : found->second);
    if (!node.body || is_loop(node)) continue;
    auto& [of_all, calls] = functions[node.body.get()];
    of_all += seconds.back();
    ++calls;
  }
  for (size_t n = 0; n < seconds.size(); ++n)
    if (const auto function = functions.find(graph.nodes()[n].body.get()); function != functions.end())
      seconds[n] = function->second.first / function->second.second;
  return seconds;
}

class RecomputationSearch {
 public:
  RecomputationSearch(const Graph& graph, const machine::Machine& machine, const SessionOptions& options,
                      const Graph* owner)
      : budget_(graph.memory_budget().value_or(kMachineMemory)),
        plain_(graph),
        machine_(machine),
        options_(options),
        owner_(owner) {
    plain_.set_memory_budget({});
    options_.communicator.reset();  // each rank finds the same
  }

  Fitted find() {
    std::vector<PassRecord> passes;
    size_t count = 0;
    base::record_pass(passes, "recompute", [&] {
      count = fewest_that_fit();
      return fmt::format("{} of {} calls and stages, {} program{} compiled", count,
                         recomputation_candidates(plain_).size(), estimates_, estimates_ == 1 ? "" : "s");
    });
    Fitted fitted{.graph = with(count),
                  .recomputation = {budget_, first(count)},
                  .estimates = estimates_,
                  .pass = std::move(passes.front()),
                  .estimated = {}};
    if (last_count_ == count) fitted.estimated = std::move(last_);
    return fitted;
  }

 private:
  /// If none fits: the number that comes closest to fitting.
  size_t fewest_that_fit() {
    uint64_t least = lacking_with(0);
    if (least == 0) return 0;
    rank();
    size_t too_few = 0, closest = 0;
    for (const size_t count : {calls_, ranked_.size()}) {
      if (count == too_few) continue;
      const uint64_t lacking = lacking_with(count);
      if (lacking == 0) return fewest_between(too_few, count);
      if (lacking < least) {
        least = lacking;
        closest = count;
      }
      too_few = count;
    }
    if (budget_ != kMachineMemory) refuse(closest);
    return closest;
  }

  size_t fewest_between(size_t too_few, size_t enough) {
    while (enough - too_few > 1) {
      const size_t middle = (too_few + enough) / 2;
      (lacking_with(middle) == 0 ? enough : too_few) = middle;
    }
    return enough;
  }

  /// Sorts candidates by their cost in the last program, with nothing recomputed. Among equal ones, earlier
  /// calls come first, as their results are kept longest.
  void rank() {
    struct Priced {
      std::pair<bool, double> price;  ///< whether it is a stage, and seconds for each byte
      Recomputable what;
    };
    const RunCost cost = last_->cost({});
    std::map<const Graph*, std::vector<double>> seconds;
    std::vector<Priced> priced;
    for (const RecomputationCandidate& candidate : recomputation_candidates(plain_)) {
      const auto& loop = candidate.what.loop;
      const Graph& graph = loop ? *plain_.nodes()[*loop].body : plain_;
      const auto [known, is_new] = seconds.try_emplace(&graph);
      if (is_new) known->second = operation_seconds(graph, cost);
      double again = 0;
      for (const uint32_t n : candidate.nodes) again += known->second[n];
      priced.push_back(
          {{!candidate.what.call, again / static_cast<double>(candidate.bytes)}, candidate.what});
    }
    std::ranges::stable_sort(priced, {}, &Priced::price);
    for (const Priced& each : priced) {
      ranked_.push_back(each.what);
      if (each.what.call) ++calls_;
    }
  }

  std::vector<Recomputable> first(size_t count) const {
    return {ranked_.begin(), ranked_.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  Graph with(size_t count) const {
    Graph graph = plain_;
    recompute(graph, first(count));
    return graph;
  }

  /// Bytes that the fullest tile lacks. Streaming memory holds nothing that could be computed again.
  uint64_t lacking_with(size_t count) {
    last_.reset();  // before the next one takes memory
    last_ = std::make_shared<Session::Impl>(with(count), machine_, options_,
                                            Session::Impl::Owner{nullptr, owner_}, bound::Runs::none);
    last_->recomputation.chosen = first(count);
    last_count_ = count;
    ++estimates_;
    return report().overflow_bytes;
  }

  compiler::MemoryReport report() const {
    const compiler::MemoryReport& memory = last_->program().memory();
    return budget_ == kMachineMemory ? memory
                                     : with_capacity(memory, std::min(budget_, memory.tile_capacity_bytes));
  }

  [[noreturn]] void refuse(size_t closest) {
    if (last_count_ != closest) lacking_with(closest);
    const compiler::MemoryReport lacking = report();
    const std::string tried =
        ranked_.empty()
            ? "and has no calls or stages that could be computed again: make its layers calls of functions"
            : fmt::format("if {} of its {} calls and stages are computed again, which comes closest", closest,
                          ranked_.size());
    const std::string limit =
        lacking.tile_capacity_bytes == budget_
            ? fmt::format("its memory budget of {} bytes", budget_)
            : fmt::format("the {} bytes that the machine has, and its memory budget is {} bytes",
                          lacking.tile_capacity_bytes, budget_);
    throw UsageError(fmt::format("the step needs {} bytes more than {}, {}; {}", lacking.overflow_bytes,
                                 limit, tried, last_->overflow_of(lacking)));
  }

  const uint64_t budget_;
  Graph plain_;
  const machine::Machine& machine_;
  SessionOptions options_;
  const Graph* owner_;
  std::vector<Recomputable> ranked_;  ///< calls, then stages, those that save most in the least time first
  size_t calls_ = 0;                  ///< number of calls among them
  std::shared_ptr<Session::Impl> last_;
  size_t last_count_ = 0;
  uint32_t estimates_ = 0;
};

}  // namespace

Fitted fit_to_memory(const Graph& graph, const machine::Machine& machine, const SessionOptions& options,
                     const Graph* owner) {
  return RecomputationSearch(graph, machine, options, owner).find();
}

}  // namespace tessera::graph
