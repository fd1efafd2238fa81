#include "studies/mlperf/state_bytes.h"

#include <tessera/training_settings.h>

namespace tessera::studies::mlperf {

Result state_result(const graph::Graph& graph) {
  Result result;
  for (const char* name : {"parameters", "parameter_bytes", "divided_bytes", "whole_bytes"})
    result.values[name] = 0;
  for (const graph::ValueInfo& info : graph.values()) {
    if (info.kind == graph::Kind::parameter) {
      result.values["parameters"] += static_cast<double>(info.type.elements());
      result.values["parameter_bytes"] += static_cast<double>(info.type.bytes());
    } else if (info.kind == graph::Kind::state && info.belongs) {
      const bool is_divided = graph.info(*info.belongs).type.elements() >= kLargeValue;
      result.values[is_divided ? "divided_bytes" : "whole_bytes"] += static_cast<double>(info.type.bytes());
    }
  }
  return result;
}

double state_of_replica(const Result& state, uint32_t replicas) {
  return state.value("divided_bytes").value_or(0) / replicas + state.value("whole_bytes").value_or(0);
}

}  // namespace tessera::studies::mlperf
