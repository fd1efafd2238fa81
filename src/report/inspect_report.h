// Output of `tessera inspect`: a table of the weights of a model, JSON, or a page.
#pragma once

#include <tessera/inspect.h>

#include <span>
#include <string>

namespace tessera::report {

/// A row per weight matrix, and the sums.
std::string text_of(const InspectedModel& model);

/// {"schema": 2, "command": "inspect", "rows": …, "tensors": […], "results": […], "totals": […],
/// "unsupported": […]}: the tensors of all models, the weight matrices among them, the sums of each model,
/// and operators of ONNX models that cannot be run. All models have the same n.
std::string json(std::span<const InspectedModel> models);

/// The tensors and sums of all models as a page.
std::string page_of(std::span<const InspectedModel> models);

}  // namespace tessera::report
