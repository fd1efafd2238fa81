#include "kernels/map/fill/codelet.h"

#include <cmath>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/common/lines.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

double value_of(const Vertex& v) { return static_cast<double>(float_of(v.params[fill_param::value])); }

void fill_reference(const Vertex& v) {
  const FieldView& out = v.fields[fill_field::out];
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c) set_number(out, r, c, value_of(v));
}

/// Repeats the first element of the array, for the compiler to vectorise.
template <class T>
void repeat_first(std::byte* to, size_t count) {
  const T element = load<T>(to);
  for (size_t i = 1; i < count; ++i) store(to + i * sizeof(T), element);
}

void fill_run(Type type, double value, std::byte* to, size_t count) {
  store_number(type, to, value);
  switch (size_of(type)) {
    case 1: return repeat_first<uint8_t>(to, count);
    case 2: return repeat_first<uint16_t>(to, count);
    case 4: return repeat_first<uint32_t>(to, count);
    default: return repeat_first<uint64_t>(to, count);
  }
}

void fill_simd(const Vertex& v) {
  const FieldView& out = v.fields[fill_field::out];
  for_each_run<1>({out}, [&](const std::array<std::byte*, 1>& at, size_t count) {
    fill_run(out.type, value_of(v), at[0], count);
  });
}

// Cycles on a tile, W = workers: an estimate, the fixed part of a copy and a store of 8 bytes each cycle.
constexpr double kTileFixedCycles = 25;
constexpr double kTileBytesPerCycle = 8;

program::PhaseTimes fill_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& out = v.fields[fill_field::out];
  if (m.kind == machine::Kind::host) return in_phase(Phase::compute, host_cycles(m, {0, bytes_of(out), 0}));
  return in_phase(Phase::compute, kTileFixedCycles + std::ceil(bytes_of(out) / kTileBytesPerCycle));
}

}  // namespace

TESSERA_DEFINE_FAMILY(fill, TESSERA_FILL_CODELETS, TESSERA_CODELET)

}  // namespace tessera::kernels
