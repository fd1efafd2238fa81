// The forms of weights in the graphs of a model.
#pragma once

#include <tessera/model.h>
#include <tessera/onnx.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
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
    model::Initial initial = {};
  };

  /// The form of a weight of products of so many rows; `transposed`: the constant is [inputs, outputs].
  const Form& form_of(const std::string& name, const Constant& weight, bool transposed, uint32_t rows,
                      const ImportOptions& options);

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, bool>, Form> forms_;  ///< by name, and whether it may be sparse
};

}  // namespace tessera::onnx
