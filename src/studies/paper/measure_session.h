// Runs of networks with arrays in place.
#pragma once

#include <tessera/graph.h>

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace tessera::studies {

/// Arrays for a graph's inputs, in their types, and for its outputs.
class GraphArrays {
 public:
  GraphArrays(const graph::Session& session, const graph::Arrays& inputs);

  std::span<const graph::Tensor> tensors() const { return tensors_; }

 private:
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::vector<graph::Tensor> tensors_;
};

/// The seconds of a run on a host.
double run_seconds(graph::Session& session, std::span<const graph::Tensor> arrays);

/// The median of runs on a host with these inputs.
double median_seconds(graph::Session& session, const graph::Arrays& inputs);

}  // namespace tessera::studies
