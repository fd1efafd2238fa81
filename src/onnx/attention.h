// Recognition of attention that files express by several operators.
#pragma once

#include <optional>

#include "onnx/call.h"

namespace tessera::onnx {

/// Records that y = a · b may be the scores of an attention.
void note_scores(Context& context, graph::Value a, graph::Value b, graph::Value y);

/// The attention of which `probabilities` are a part, if they are multiplied by `values`.
std::optional<graph::Value> attention_of(Context& context, graph::Value probabilities, const Known& values);

}  // namespace tessera::onnx
