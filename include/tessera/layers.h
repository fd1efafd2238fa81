// Linear layers of networks by structure: their parameters with initial values and learning rates.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::graph {

/// The structure of a layer's weight.
enum class LayerStructure : uint8_t {
  dense,
  butterfly,  ///< a butterfly of tied factors, with a bias of its own (Dao et al. 2019)
  bpbp,       ///< two tied butterflies, each after a bit-reversal permutation (Dao et al. 2019)
  pixelfly,   ///< a flat block butterfly plus a low-rank matrix (Chen et al. 2021)
  fastfood,   ///< (Le et al. 2013)
  circulant,
  low_rank,
  monarch,          ///< two block-diagonal factors and a permutation (Dao et al. 2022)
  block_butterfly,  ///< factors of a butterfly with blocks instead of numbers (Chen et al. 2021)
};

/// "dense", "butterfly", …; layer_structure_named() throws UsageError, listing the names, for any other name.
std::string_view name_of(LayerStructure structure);
LayerStructure layer_structure_named(std::string_view name);

struct LayerOptions {
  LayerStructure structure = LayerStructure::dense;
  uint32_t rank = 1;             ///< for low rank, and for pixelfly's low-rank matrix
  uint32_t block_size = 32;      ///< for pixelfly and block butterflies
  uint32_t butterfly_size = 16;  ///< cells of pixelfly's pattern in a row
  /// Initial values that keep the size of activations, and learning rates for each factor, for Adam;
  /// otherwise the initial values published with each structure, for SGD.
  bool scaled = true;
  uint64_t seed = 0;
  /// Form of butterflies of all kinds, pixelfly, fastfood and Monarch. Other structures are the same in both
  /// forms: low rank is two dense products, circulant a dense product with the circulant matrix of its
  /// parameter.
  Form form = Form::fused;
};

/// A linear layer without its bias.
struct Layer {
  Value y;
  std::vector<Value> parameters = {};
  /// Learning rate of each parameter relative to a dense layer's, for ParameterGroup::lr_scale.
  std::vector<double> lr_scales = {};
};

/// Adds the product x · Wᵀ with `outputs` features, and its parameters, whose names begin with `name`, to the
/// graph. Throws UsageError for sizes that the structure cannot have.
Layer linear_layer(Graph& graph, const std::string& name, Value x, uint32_t outputs,
                   const LayerOptions& options);

}  // namespace tessera::graph
