// The numbers of a training: types, rounding and loss scale, by the names of published combinations.
#pragma once

#include <tessera/gradients.h>

#include <optional>
#include <string_view>

namespace tessera::graph {

/// In which types a training stores and multiplies, and how it rounds.
struct Numbers {
  Type parameters = Type::f32;            ///< as they are stored and updated
  Type products = Type::f32;              ///< of activations, and of weights as products read them
  std::optional<Type> partials = {};      ///< of partial sums of products; see PartialSums
  Type sums = Type::f32;                  ///< of gradients; see TrainingOptions::sums
  Type state = Type::f32;                 ///< of what an optimizer keeps
  Rounding rounding = Rounding::nearest;  ///< of updated parameters and state, and of partial sums
  std::optional<LossScale> loss_scale = {};
  Roundings roundings = {};  ///< see TrainingOptions::roundings
};

/// "fp32"; "bf16": FP32 parameters, products in BF16 with FP32 partial sums; "mlperf-v1": FP16 parameters,
/// products, partial sums and sums of gradients, stochastic rounding, FP32 moments, a loss scale of 64;
/// "mlperf-v2": the same with FP16 moments and a loss scale of 10; "mlperf-slides": as "mlperf-v1", with FP16
/// moments and FP32 sums of gradients. The two before the last are those of Graphcore's submissions of BERT
/// to MLPerf 1.0 and 2.0, which name no type of sums of gradients, so that these have that of the parameters;
/// the last is that of its slides on the submissions, which name no loss scale. Throws UsageError for another
/// name.
Numbers numbers_named(std::string_view name);

/// Has a training store and round so. Parameters and products are the graph's.
void set_numbers(TrainingOptions& options, const Numbers& numbers);

}  // namespace tessera::graph
