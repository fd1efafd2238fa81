// Comparisons, and selections by them. Truth values are f32 0 and 1.
#include <limits>

#include "onnx/call.h"
#include "onnx/values.h"

namespace tessera::onnx {
namespace {

using graph::Value;

Results truths(Value holds) { return {known(truth(holds), DataType::boolean)}; }

template <Value (*function)(Value, Value)>
Results combine_truths(Call& call) {
  for (const size_t input : {0, 1}) call.require_truth(input);
  return truths(function(call.value(0), call.value(1)));
}

template <Value (*function)(Value, Value), bool swapped = false>
Results compare_values(Call& call) {
  call.require_one_kind(0, 1);
  const Value a = call.value(swapped ? 1 : 0), b = call.value(swapped ? 0 : 1);
  return truths(function(a, b));
}

Value both_values(Value a, Value b) { return a * b; }

Results negate_values(Call& call) {
  call.require_truth(0);
  const Value x = call.value(0);
  return truths(-x + 1.0);
}

Results is_nan(Call& call) {
  const Value x = call.value(0), holds = truth(not_equal(x, x));
  if (call.context.probabilities.contains(x.id)) call.context.guards[holds.id] = x.id;
  return {known(holds, DataType::boolean)};
}

Results is_infinite(Call& call) {
  const Value x = call.value(0);
  const bool below = call.integer("detect_negative", 1) != 0, above = call.integer("detect_positive", 1) != 0;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (below && above) return truths(equal(abs(x), number_like(x, kInfinity)));
  if (below || above) return truths(equal(x, number_like(x, above ? kInfinity : -kInfinity)));
  return truths(less(x, x));
}

/// Whether a constant condition holds, or does not hold, somewhere in each row.
bool is_in_each_row(const Known& condition, uint32_t keys, bool holds) {
  if (!condition.constant || condition.dims.empty() || condition.dims.back() != keys) return false;
  const Constant& values = *condition.constant;
  for (uint64_t row = 0; row < values.size(); row += keys) {
    bool is_there = false;
    for (uint64_t i = row; i < row + keys && !is_there; ++i) is_there = (values.number(i) != 0) == holds;
    if (!is_there) return false;
  }
  return true;
}

/// Notes that scores hidden by a condition are scores plus a bias: unless all of a row may be hidden, by a
/// number so small in magnitude that its sums with the scores would still differ.
void note_hidden(Call& call, Value condition, Value y) {
  for (const size_t kept : {1, 2}) {
    const Known &scores = call[kept], &hidden = call[3 - kept];
    if (!scores.value || !hidden.constant || hidden.constant->size() != 1) continue;
    const auto found = call.context.scores.find(scores.value->id);
    constexpr double kHides = -1e4, kAbsorbs = -1e30;
    const double number = hidden.constant->number(0);
    if (found == call.context.scores.end() || found->second.bias || number > kHides ||
        y.shape() != scores.value->shape())
      continue;
    if (number > kAbsorbs && !is_in_each_row(call[0], y.shape().back(), kept == 1)) continue;
    Scores with = found->second;
    const Value zero = number_like(y, 0), low = number_like(y, number);
    with.bias = known(kept == 1 ? where(condition, zero, low) : where(condition, low, zero), scores.type);
    call.context.scores.insert({y.id, with});
  }
}

/// Notes that softmax(x), with 0 where it is NaN, is what an attention returns for hidden rows.
void note_guarded(Call& call, Value y) {
  const Known &condition = call[0], &zero = call[1], &softmax = call[2];
  if (!condition.value || !softmax.value || !zero.constant || zero.constant->size() != 1) return;
  const auto guard = call.context.guards.find(condition.value->id);
  if (guard == call.context.guards.end() || guard->second != softmax.value->id ||
      zero.constant->number(0) != 0)
    return;
  const Scores scores = call.context.probabilities.at(softmax.value->id);
  call.context.probabilities.insert({y.id, scores});
}

Results choose_values(Call& call) {
  call.require_truth(0);
  call.require_one_kind(1, 2);
  const DataType type = call[1].type;
  const Value a = call.value(1), b = call.value(2);
  // Each type represents 0 and 1 exactly.
  const Value condition = cast(call.value(0), a.type().type);
  // The condition may have more dimensions than both values.
  const Dims dims = common_dims(call[0].dims, common_dims(call[1].dims, call[2].dims));
  Value y = where(condition, a, b);
  if (y.shape() != as_shape(dims)) y = where(condition, expand(a, as_shape(dims)), b);
  note_hidden(call, condition, y);
  note_guarded(call, y);
  return {known(y, type)};
}

constexpr Operator kComparisonsOperators[] = {{"And", combine_truths<both_values>, 2},
                                              {"Equal", compare_values<graph::equal>, 2},
                                              {"Greater", compare_values<graph::less, true>, 2},
                                              {"GreaterOrEqual", compare_values<graph::less_equal, true>, 2},
                                              {"IsInf", is_infinite},
                                              {"IsNaN", is_nan},
                                              {"Less", compare_values<graph::less>, 2},
                                              {"LessOrEqual", compare_values<graph::less_equal>, 2},
                                              {"Not", negate_values},
                                              {"Or", combine_truths<graph::maximum>, 2},
                                              {"Where", choose_values, 3},
                                              {"Xor", combine_truths<graph::not_equal>, 2}};

}  // namespace

std::span<const Operator> comparison_operators() { return kComparisonsOperators; }

}  // namespace tessera::onnx
