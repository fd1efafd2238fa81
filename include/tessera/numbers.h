// Number formats of a training: types, rounding and loss scale, under the names of published combinations.
#pragma once

#include <tessera/gradients.h>

#include <optional>
#include <string_view>

namespace tessera::graph {

/// The types in which a training stores and multiplies values, and how it rounds.
struct Numbers {
  Type parameters = Type::f32;            ///< type in which parameters are stored and updated
  Type products = Type::f32;              ///< type of activations, and of weights as products read them
  std::optional<Type> partials = {};      ///< type of partial sums of products; see PartialSums
  Type sums = Type::f32;                  ///< type of sums of gradients; see TrainingOptions::sums
  Type state = Type::f32;                 ///< type of the optimizer's state
  Rounding rounding = Rounding::nearest;  ///< rounding of updated parameters, state and partial sums
  std::optional<LossScale> loss_scale = {};
  Roundings roundings = {};  ///< see TrainingOptions::roundings
};

/// "fp32"; "bf16": FP32 parameters, products in BF16 with FP32 partial sums; "mlperf-v1": FP16 parameters,
/// products, partial sums and sums of gradients, stochastic rounding, FP32 moments, a loss scale of 64;
/// "mlperf-v2": as "mlperf-v1", with FP16 moments and a loss scale of 10; "mlperf-slides": as "mlperf-v1",
/// with FP16 moments and FP32 sums of gradients. "mlperf-v1" and "mlperf-v2" are the combinations of
/// Graphcore's submissions of BERT to MLPerf 1.0 and 2.0, which name no type for sums of gradients, so that
/// sums have the type of the parameters; "mlperf-slides" is the combination of Graphcore's slides on the
/// submissions, which name no loss scale. Throws UsageError for another name.
Numbers numbers_named(std::string_view name);

/// Sets the options of a training to these types and roundings. The types of parameters and products are
/// properties of the graph.
void set_numbers(TrainingOptions& options, const Numbers& numbers);

}  // namespace tessera::graph
