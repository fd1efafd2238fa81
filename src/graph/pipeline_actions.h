// What lists of actions share with the code that makes them.
#pragma once

#include <tessera/pipeline_actions.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

namespace tessera::graph {

constexpr bool is_sending(ActionKind kind) {
  return kind == ActionKind::send_forward || kind == ActionKind::send_backward;
}
constexpr bool is_receiving(ActionKind kind) {
  return kind == ActionKind::receive_forward || kind == ActionKind::receive_backward;
}
constexpr bool is_backward(ActionKind kind) { return is_pass(kind) && kind >= ActionKind::backward; }
constexpr bool is_backward(PassKind kind) { return is_backward(action_kind(kind)); }

/// The SEND of a RECV, and the RECV of a SEND.
PipelineAction other_end(PipelineAction action);
/// What happens at the ends of a route.
PipelineAction send_of(const StageRoute& route, uint32_t micro_batch);
PipelineAction receive_of(const StageRoute& route, uint32_t micro_batch);

/// Positions of routes, by what is sent over them.
class RouteIndex {
 public:
  RouteIndex() = default;
  explicit RouteIndex(const std::vector<StageRoute>& routes) {
    for (const StageRoute& route : routes) add(route);
  }

  /// Adds the next route.
  void add(const StageRoute& route);
  /// The position of the route of a SEND or RECV; the number of routes, if there is none.
  size_t of(const PipelineAction& action) const;

 private:
  using Key = std::tuple<bool, uint32_t, uint32_t>;  ///< whether backward passes send, and both ends

  std::map<Key, size_t> positions_ = {};
  size_t count_ = 0;
};

}  // namespace tessera::graph
