// Optimizers, rounding, loss scaling, and learning-rate schedules.
#pragma once

#include <tessera/types.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera::graph {

/// Stochastic gradient descent, as PyTorch's SGD.
struct Sgd {
  double momentum = 0;
  double weight_decay = 0;  ///< L2 penalty, added to the gradient
  bool nesterov = false;
};

/// Adam (Kingma & Ba 2015), or AdamW (Loshchilov & Hutter 2019) with `decoupled` decay, as in PyTorch.
struct Adam {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;
  bool bias_correction = true;
};

/// LAMB (You et al. 2020): weight −= lr · r · u. The direction u is Adam's plus weight_decay · weight, and
/// the trust ratio r of each parameter is ‖weight‖ / ‖u‖, or 1 if either norm is 0. Without a trust ratio a
/// parameter is trained by AdamW.
struct Lamb {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0;
  bool bias_correction = true;
};

/// LARS (You et al. 2017): velocity = momentum · velocity + lr · r · (gradient + weight_decay · weight), and
/// weight −= velocity. The trust ratio r of each parameter is
/// trust_coefficient · ‖weight‖ / (‖gradient‖ + weight_decay · ‖weight‖), or 1 if either norm is 0. Without a
/// trust ratio r is 1.
struct Lars {
  double momentum = 0.9;
  double weight_decay = 0;
  double trust_coefficient = 0.001;
};

using Optimizer = std::variant<Sgd, Adam, Lamb, Lars>;

/// How a number is rounded to a 16-bit type: to the nearest number of the type, or to one of the two
/// neighbouring ones at random, so that the expected result is the number itself.
enum class Rounding : uint8_t { nearest, stochastic };

/// Roundings of values stored in 16 bits; each one set here replaces the general rounding.
struct Roundings {
  std::optional<Rounding> parameters = {};
  std::optional<Rounding> state = {};     ///< the optimizer's state, such as moments
  std::optional<Rounding> partials = {};  ///< sums of products; see PartialSums

  bool operator==(const Roundings&) const = default;
};

/// How tiles store the partial sums of a product that they compute and send to each other. Hosts, and tiles
/// that compute a sum alone, add in FP32 and round once.
struct PartialSums {
  /// f16 or bf16: the type of partial sums of products of this type, while other products have f32; none: the
  /// type of the product.
  std::optional<Type> type = {};
  /// Rounding to 16-bit types. Random numbers follow from the seed and the sums of a tile, so that they
  /// differ from step to step as the sums do, and equal sums are rounded alike.
  Rounding rounding = Rounding::nearest;
  uint64_t seed = 0;

  bool operator==(const PartialSums&) const = default;
};

/// Multiplies the loss by a scale before gradients are computed, so that 16-bit gradients do not vanish, and
/// divides gradients by it in FP32. With `grow_after`, a step with a gradient that is not finite changes no
/// parameter and no optimizer's state, and halves the scale; after `grow_after` good steps the scale doubles,
/// up to 2^24. An infinite sum of all gradients' squares counts as an infinite gradient.
struct LossScale {
  double initial = 65536;
  uint32_t grow_after = 2000;  ///< at most 2^24; 0: the scale is fixed
};

struct Betas {
  double beta1 = 0.9;
  double beta2 = 0.999;
};
/// Betas for batches of packs. A batch with as many packs as it had sequences before holds p times as many
/// sequences, where p is the packing factor: with β₁ᵖ and β₂ᵖ, moments decay per sequence as without packing
/// (Krell et al. 2021). Throws UsageError for a factor below 1, and for betas outside [0, 1).
Betas betas_of_packs(Betas unpacked, double packing_factor);
/// The number of packs that hold as many sequences as a batch of `sequences` without packing; at least 1. An
/// alternative to betas_of_packs().
uint32_t packs_per_batch(uint32_t sequences, double packing_factor);

enum class ScheduleKind : uint8_t { constant, linear, polynomial, cosine, step };
std::string_view name_of(ScheduleKind kind);
/// Throws UsageError, listing the kinds, for any other name.
ScheduleKind schedule_named(std::string_view name);

/// The learning rate of each step as a fraction of the base rate. It depends only on the number of the step,
/// so that resumed training has the same rates as uninterrupted training.
struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;
  uint64_t steps = 0;   ///< total, warm-up included; afterwards the rate stays at `end`. Unused by `constant`
  uint64_t warmup = 0;  ///< first steps, in which the rate rises linearly from 0
  double power = 1;     ///< exponent of `polynomial`
  double end = 0;       ///< fraction to which the rate falls; not for `step`
  /// For `step`: the fractions of all steps after which the rate is multiplied by `decay`, once for each
  /// fraction. The default is the schedule of He et al. 2016.
  std::vector<double> decay_at = {0.5, 0.75};
  double decay = 0.1;

  /// The fraction after `finished` steps, as PyTorch's schedulers count them (0 before the first step).
  double factor(uint64_t finished) const;
};
/// Throws UsageError for settings that are out of range or contradict each other.
void check(const Schedule& schedule);

}  // namespace tessera::graph
