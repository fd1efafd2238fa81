// Linear layers of networks by structure: their parameters with initial values and learning rates.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::graph {

/// What the weight of a layer is a product of.
enum class LayerStructure : uint8_t {
  dense,
  butterfly,  ///< of tied factors, with a bias of its own (Dao et al. 2019)
  bpbp,       ///< two such butterflies, each after a bit-reversal permutation (Dao et al. 2019)
  pixelfly,   ///< a flat block butterfly plus a low-rank matrix (Chen et al. 2021)
  fastfood,   ///< (Le et al. 2013)
  circulant,
  low_rank,
  monarch,          ///< two block-diagonal factors and a permutation (Dao et al. 2022)
  block_butterfly,  ///< factors of a butterfly with blocks for numbers (Chen et al. 2021)
};

/// "dense", "butterfly", …; the function from a name throws UsageError that lists them.
std::string_view name_of(LayerStructure structure);
LayerStructure layer_structure_named(std::string_view name);

struct LayerOptions {
  LayerStructure structure = LayerStructure::dense;
  uint32_t rank = 1;             ///< of low rank, and of pixelfly's low-rank matrix
  uint32_t block_size = 32;      ///< of pixelfly and block butterflies
  uint32_t butterfly_size = 16;  ///< cells of pixelfly's pattern in a row
  /// Initial values that keep the size of activations, and learning rates for each factor, for Adam;
  /// otherwise those that were published with each structure, for SGD.
  bool scaled = true;
  uint64_t seed = 0;
  /// Of butterflies of all kinds, pixelfly, fastfood and Monarch. Others are the same in both forms: low rank
  /// two dense products, circulant a dense product with the matrix that its parameter fills.
  Form form = Form::fused;
};

/// A linear layer without its bias.
struct Layer {
  Value y;
  std::vector<Value> parameters = {};
  std::vector<double> lr_scales =
      {};  ///< of each, relative to that of a dense layer: for ParameterGroup::lr_scale
};

/// Adds x · Wᵀ with `outputs` features, and parameters whose names begin with `name`. Throws UsageError for
/// sizes that the structure cannot have.
Layer linear_layer(Graph& graph, const std::string& name, Value x, uint32_t outputs,
                   const LayerOptions& options);

}  // namespace tessera::graph
