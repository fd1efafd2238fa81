#include "graph/routes.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "graph/operation.h"

namespace tessera::graph {
namespace {

/// By value that another pass computes: the passes that take it, in their order.
std::map<ValueId, std::vector<size_t>> takers_of_values(const Graph& graph,
                                                        const std::vector<StagePart>& passes,
                                                        const std::vector<size_t>& pass_of) {
  std::map<ValueId, std::vector<size_t>> takers;
  for (size_t p = 0; p < passes.size(); ++p) {
    std::set<ValueId> taken;
    for (const uint32_t n : passes[p].nodes)
      for (const ValueId input : graph.nodes()[n].inputs)
        if (const auto& from = graph.info(input).node; from && pass_of[*from] != p) taken.insert(input);
    for (const ValueId id : taken) takers[id].push_back(p);
  }
  return takers;
}

}  // namespace

std::vector<PassRoute> routes_of_passes(const Graph& graph, const std::vector<StagePart>& passes,
                                        const std::vector<uint32_t>& places, bool hand_on) {
  std::vector<size_t> pass_of(graph.nodes().size());
  for (size_t p = 0; p < passes.size(); ++p)
    for (const uint32_t n : passes[p].nodes) pass_of[n] = p;
  const auto place_of = [&](size_t pass) { return places.at(passes[pass].stage); };
  std::map<std::pair<size_t, uint32_t>, PassRoute> routes;  // by sending pass and receiving part
  for (const auto& [id, takers] : takers_of_values(graph, passes, pass_of)) {
    const size_t home = pass_of[*graph.info(id).node];
    std::set<uint32_t> reached = {place_of(home)};
    size_t sender = home;
    for (const size_t taker : takers) {
      const uint32_t to = place_of(taker);
      if (reached.insert(to).second) {
        PassRoute& route = routes.try_emplace({sender, to}, PassRoute{sender, taker}).first->second;
        route.to = std::min(route.to, taker);
        route.values.push_back(id);
      }
      // Gradients of weights may be computed later than what others take.
      const bool is_late = passes[taker].kind == PassKind::backward_weight;
      if (hand_on && to != place_of(home) && !is_late) sender = taker;
    }
  }
  std::vector<PassRoute> all;
  for (auto& [key, route] : routes) all.push_back(std::move(route));
  return all;
}

StageLinks links_of_passes(const Graph& graph, const std::vector<StagePart>& passes,
                           const std::vector<PassRoute>& routes, std::vector<uint32_t> places,
                           uint32_t replicas) {
  StageLinks links{.places = std::move(places)};
  for (const PassRoute& route : routes) {
    const StagePart &from = passes[route.from], &to = passes[route.to];
    links.routes.push_back({from.stage, to.stage, from.is_backward(), to.is_backward()});
  }
  const auto& nodes = graph.nodes();
  for (const StagePart& pass : passes)
    if (replicas > 1 && std::ranges::any_of(pass.nodes, [&](uint32_t n) { return sums_gradients(nodes[n]); }))
      links.summed_in_passes.insert(pass.stage);
  return links;
}

}  // namespace tessera::graph
