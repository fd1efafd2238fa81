// What lists of actions have in common with those who make them.
#pragma once

#include <tessera/pipeline_actions.h>

#include <cstddef>
#include <cstdint>

namespace tessera::graph {

constexpr bool is_sending(ActionKind kind) {
  return kind == ActionKind::send_forward || kind == ActionKind::send_backward;
}
constexpr bool is_receiving(ActionKind kind) {
  return kind == ActionKind::receive_forward || kind == ActionKind::receive_backward;
}

/// The SEND of a RECV, and the RECV of a SEND.
PipelineAction other_end(PipelineAction action);
/// What happens at the ends of a route.
PipelineAction send_of(const StageRoute& route, uint32_t micro_batch);
PipelineAction receive_of(const StageRoute& route, uint32_t micro_batch);
/// The position of the route of a SEND or RECV; the number of routes, if there is none.
size_t route_of(const StageLinks& links, const PipelineAction& action);

}  // namespace tessera::graph
