#include "kernels/map/elementwise/exact.h"

#include <array>
#include <cstddef>

#include "kernels/common/lines.h"
#include "program/overflow.h"

namespace tessera::kernels {
namespace {

constexpr int64_t exact_result(Exact op, int64_t a, int64_t b) {
  switch (op) {
    case Exact::add: return a + b;
    case Exact::sub: return a - b;
    case Exact::mul: return a * b;
  }
  return a;
}

/// Whether 32 bits hold all results: their upper halves repeat the sign. A loop that the compiler turns into
/// vectors.
template <Exact op>
bool exact_run(const int32_t* a, const int32_t* b, size_t count, int32_t* out) {
  uint32_t lost = 0;
  for (size_t i = 0; i < count; ++i) {
    const int64_t result = exact_result(op, a[i], b[i]);
    const auto kept = static_cast<int32_t>(result);
    lost |= static_cast<uint32_t>(result >> 32) ^ static_cast<uint32_t>(kept >> 31);
    out[i] = kept;
  }
  return lost == 0;
}

template <Exact op>
void exact_runs(const program::FieldView& a, const program::FieldView& b, const program::FieldView& out) {
  bool holds_all = true;
  const std::array fields = {broadcast_to(a, out), broadcast_to(b, out), out};
  for_each_run<3>(fields, [&](const std::array<std::byte*, 3>& at, size_t count) {
    const auto integers = [&](size_t f) { return reinterpret_cast<int32_t*>(at[f]); };
    if (!exact_run<op>(integers(0), integers(1), count, integers(2))) holds_all = false;
  });
  if (!holds_all) throw program::Overflow();
}

}  // namespace

void apply_exact(Exact op, const program::FieldView& a, const program::FieldView& b,
                 const program::FieldView& out) {
  switch (op) {
    case Exact::add: return exact_runs<Exact::add>(a, b, out);
    case Exact::sub: return exact_runs<Exact::sub>(a, b, out);
    case Exact::mul: return exact_runs<Exact::mul>(a, b, out);
  }
}

}  // namespace tessera::kernels
