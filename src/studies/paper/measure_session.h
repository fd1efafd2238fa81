// Runs of networks with arrays in place.
#pragma once

#include <tessera/model.h>

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace tessera::studies {

/// Arrays for a graph's inputs, in their types, and for its outputs.
class GraphArrays {
 public:
  GraphArrays(const model::Session& session, const model::Arrays& inputs);

  std::span<const model::Tensor> tensors() const { return tensors_; }

 private:
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::vector<model::Tensor> tensors_;
};

/// The median of runs on a host with these inputs.
double median_seconds(model::Session& session, const model::Arrays& inputs);

}  // namespace tessera::studies
