// The forms of weights in the graphs of a model.
#pragma once

#include <tessera/graph.h>
#include <tessera/onnx.h>
#include <tessera/sparse.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "onnx/constant.h"

namespace tessera::onnx {

/// Chooses, once for each weight of a model, the form that it has in all graphs.
class WeightForms {
 public:
  /// The form of a weight [outputs, inputs].
  struct Form {
    LayerChoice choice = {};
    std::shared_ptr<const Pattern> pattern = {};  ///< none: dense
    graph::Initial initial = {};
  };

  /// From now on the zeros of weights are not looked for: all stay dense, and only their sizes are known.
  void leave_out_zeros() { looks_for_zeros_ = false; }

  /// A name for a constant in all graphs: the given name, unless another constant has it. Functions, branches
  /// and computations from shapes may have different constants under one name.
  std::string name_of(const std::string& name, const Constant& constant);

  /// A name for a parameter after operations that follow its product were folded into it; these may differ
  /// between graphs.
  std::string name_of_folded(const std::string& name, const std::vector<float>& values);

  /// Notes that embeddings take rows of a layer's weight, which a product of `rows` rows also reads
  /// unchanged, so that both use one form in all graphs. rows_of_table() returns the rows, if that was noted.
  void note_table(const std::string& layer, uint32_t rows);
  std::optional<uint32_t> rows_of_table(const std::string& layer);

  /// The form of a layer's weight, named by name_of(), for products of `rows` rows; `transposed`: the
  /// constant is [inputs, outputs]; `group`: index among the layer's weights, if it has several; `of`: groups
  /// of a convolution; a sparse form has all channels.
  const Form& form_of(const std::string& layer, const Constant& weight, bool transposed, uint32_t rows,
                      const ImportOptions& options, std::optional<uint64_t> group = {},
                      const ConvolutionGroups& of = {});

 private:
  bool looks_for_zeros_ = true;
  std::mutex mutex_;
  std::map<std::string, Constant> named_;
  /// By name and checksum, the new names of constants whose own name another constant has; and by name, their
  /// number.
  std::map<std::pair<std::string, uint64_t>, std::vector<std::string>> renamed_;
  std::map<std::string, uint64_t> renamed_counts_;
  std::map<std::string, uint64_t> folded_;  ///< checksums of values, by name
  std::map<std::string, uint32_t> tables_;  ///< rows of products, by layer
  /// By layer, group, whether the constant is transposed, whether the form may be sparse, and a convolution's
  /// groups and taps.
  std::map<std::tuple<std::string, std::optional<uint64_t>, bool, bool, uint32_t, uint32_t>, Form> forms_;
};

/// The choice for a weight that has no sparse form.
LayerChoice left_dense(const std::string& name, const Constant& weight, std::string_view reason);

}  // namespace tessera::onnx
