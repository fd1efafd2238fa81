#include "operations/constants.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "base/integer_types.h"

namespace tessera::graph {
namespace {

constexpr double kExactIntegers = 1 << 24;  // constants are FP32 numbers

}  // namespace

void require_number(const Signature& s, const TensorType& value) {
  if (value.type != Type::u32 && value.type != Type::i32) require_float(s, value);
}

Value number(Graph& graph, double number, Type type) {
  const double least = type == Type::u32 ? 0 : -kExactIntegers;
  if (is_integer(type) && !(number >= least && number <= kExactIntegers && number == std::floor(number)))
    throw UsageError(
        fmt::format("{} cannot be combined with values of {}: use a whole number from {} to 2^24", number,
                    name_of(type), type == Type::u32 ? "0" : "-2^24"));
  return graph.constant("", {}, {static_cast<float>(number)}, type);
}

Value number(Value with, double of) { return number(with.owner(), of, with.type().type); }

Value whole_number(Graph& graph, uint32_t of) {
  const uint32_t high = of >> 16, low = of & 0xFFFF;
  if (high == 0) return number(graph, low, Type::u32);
  return number(graph, high, Type::u32) * number(graph, 1 << 16, Type::u32) + number(graph, low, Type::u32);
}

Value as_indices(Value ids) { return ids.type().type == Type::i32 ? cast(ids, Type::u32) : ids; }

Value count_to(Graph& graph, uint32_t count, Type type) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  return graph.constant("", {count}, std::move(numbers), type);
}

}  // namespace tessera::graph
