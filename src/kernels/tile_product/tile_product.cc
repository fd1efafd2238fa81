#include "kernels/tile_product/tile_product.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/half.h"
#include "machine/machine.h"

namespace tessera::kernels {
namespace {

using program::Access;
using program::FieldSpec;
using program::FieldView;
using program::Vertex;

constexpr std::array<FieldSpec, tile_field::count> kFields = {{
    {"values", Access::in, 8},
    {"blocks", Access::in, 4},
    {"x", Access::in, 8},
    {"y", Access::out, 16},
}};
constexpr std::array<std::string_view, 1> kParams = {"block_size"};

float load(const FieldView& f, int64_t i, int64_t j) {
  switch (f.type) {
    case Type::f16: return base::to_float(f.matrix<const base::Half>()(i, j));
    case Type::bf16: return base::to_float(f.matrix<const base::Bfloat16>()(i, j));
    default: return f.matrix<const float>()(i, j);
  }
}

void store(const FieldView& f, int64_t i, int64_t j, float value) {
  if (f.type == Type::f16)
    f.matrix<base::Half>()(i, j) = base::to_half(value);
  else
    f.matrix<float>()(i, j) = value;
}

uint32_t index(const FieldView& f, int64_t i, int64_t j) {
  return f.type == Type::u16 ? f.matrix<const uint16_t>()(i, j) : f.matrix<const uint32_t>()(i, j);
}

void run(const Vertex& v) {
  using namespace tile_field;
  const auto b = static_cast<uint32_t>(v.params[0]);
  const FieldView& out = v.fields[y];
  std::vector<float> sums(out.elements());
  std::vector<float> row(out.cols);
  for (uint32_t i = 0; i < v.fields[blocks].rows; ++i) {
    const uint32_t first_row = index(v.fields[blocks], i, 0) * b;
    const uint32_t first_col = index(v.fields[blocks], i, 1) * b;
    for (uint32_t c = 0; c < b && first_col + c < v.fields[x].rows; ++c) {
      for (uint32_t j = 0; j < out.cols; ++j) row[j] = load(v.fields[x], first_col + c, j);
      for (uint32_t r = 0; r < b && first_row + r < out.rows; ++r) {
        const float w = load(v.fields[values], i, r * b + c);
        float* sum = &sums[uint64_t{first_row + r} * out.cols];
        for (uint32_t j = 0; j < out.cols; ++j) sum[j] += w * row[j];
      }
    }
  }
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t j = 0; j < out.cols; ++j) store(out, r, j, sums[uint64_t{r} * out.cols + j]);
}

/// Derived from the rates of PopLibs' sparse vertices: blocks of 16 keep the multipliers busy,
/// smaller ones in proportion, single elements one in 24 (8 of 64 every 3 cycles).
program::PhaseTimes cost(const Vertex& v, const machine::Machine& m) {
  using namespace tile_field;
  constexpr double kStart = 50;    // of the vertex: starting the workers and waiting for them
  constexpr double kPerBlock = 16; // decoding a block's place
  const double b = static_cast<double>(v.params[0]);
  const double peak = v.fields[x].type == Type::f16 ? m.macs_per_cycle_f16 : m.macs_per_cycle_f32;
  const double rate = b == 1 ? peak / 24 : peak * std::min(1.0, b / 16);
  const double columns = v.fields[y].cols;
  const double size = static_cast<double>(size_of(v.fields[values].type));
  program::PhaseTimes cycles;
  cycles[program::Phase::compute] =
      kStart + static_cast<double>(v.fields[y].elements()) *
                   static_cast<double>(size_of(v.fields[y].type)) / m.load_bytes_per_cycle +
      v.fields[blocks].rows * (kPerBlock + b * b * size / m.load_bytes_per_cycle + b * b * columns / rate);
  return cycles;
}

}  // namespace

const program::Codelet tile_product_codelet = {
    .name = "tile_product",
    .workers = program::Workers::whole_tile,
    .fields = kFields,
    .params = kParams,
    .reference = run,
    .simd = nullptr,
    .cost = cost,
    .code_bytes = 600,
};

}  // namespace tessera::kernels
