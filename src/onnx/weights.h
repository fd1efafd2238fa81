// The forms of weights in the graphs of a model.
#pragma once

#include <tessera/graph.h>
#include <tessera/onnx.h>

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

/// Decides for each weight of a model, once, in which form all graphs have it.
class WeightForms {
 public:
  /// A weight [outputs, inputs] as it is kept.
  struct Form {
    LayerChoice choice = {};
    std::shared_ptr<const Pattern> pattern = {};  ///< none: dense
    graph::Initial initial = {};
  };

  /// A name for a constant in all graphs: the one given, unless another constant has it. Functions, branches
  /// and what is computed of shapes have other constants under the same name.
  std::string name_of(const std::string& name, const Constant& constant);

  /// A name for a parameter that has taken over what follows it, which may differ between graphs.
  std::string name_of_folded(const std::string& name, const std::vector<float>& values);

  /// The form of a layer's weight, which has the name that name_of() gives it, for products of so many rows;
  /// `transposed`: the constant is [inputs, outputs].
  const Form& form_of(const std::string& layer, const Constant& weight, bool transposed, uint32_t rows,
                      const ImportOptions& options);

 private:
  std::mutex mutex_;
  std::map<std::string, Constant> named_;
  std::map<std::string, uint64_t> folded_;  ///< checksums
  /// By layer, whether the constant is transposed, and whether the form may be sparse.
  std::map<std::tuple<std::string, bool, bool>, Form> forms_;
};

/// Of a weight of which no sparse form is possible.
LayerChoice left_dense(const std::string& name, const Constant& weight, std::string_view reason);

}  // namespace tessera::onnx
