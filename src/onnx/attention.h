// Attention, as files spell it out.
#pragma once

#include <optional>

#include "onnx/call.h"

namespace tessera::onnx {

/// Notes that y = a · b may be the scores of an attention.
void note_scores(Context& context, model::Value a, model::Value b, model::Value y);

/// The attention of which `probabilities` are a part, if values multiply them.
std::optional<model::Value> attention_of(Context& context, model::Value probabilities, const Known& values);

}  // namespace tessera::onnx
