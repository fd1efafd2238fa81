#include "kernels/tile_product/tile_product.h"

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/element.h"
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

void run(const Vertex& v) {
  using namespace tile_field;
  const auto b = static_cast<uint32_t>(v.params[0]);
  const FieldView& out = v.fields[y];
  std::vector<float> sums(out.elements());
  std::vector<float> row(out.cols);
  for (uint32_t i = 0; i < v.fields[blocks].rows; ++i) {
    const uint32_t first_row = static_cast<uint32_t>(number_at(v.fields[blocks], i, 0)) * b;
    const uint32_t first_col = static_cast<uint32_t>(number_at(v.fields[blocks], i, 1)) * b;
    for (uint32_t c = 0; c < b && first_col + c < v.fields[x].rows; ++c) {
      for (uint32_t j = 0; j < out.cols; ++j) row[j] = static_cast<float>(number_at(v.fields[x], first_col + c, j));
      for (uint32_t r = 0; r < b && first_row + r < out.rows; ++r) {
        const auto w = static_cast<float>(number_at(v.fields[values], i, r * b + c));
        float* sum = &sums[uint64_t{first_row + r} * out.cols];
        for (uint32_t j = 0; j < out.cols; ++j) sum[j] += w * row[j];
      }
    }
  }
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t j = 0; j < out.cols; ++j) set_number(out, r, j, sums[uint64_t{r} * out.cols + j]);
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

/// Every third block of a square of blocks.
template <Type type, uint32_t block_size>
Sample sample(uint32_t scale, uint64_t seed) {
  constexpr uint32_t kCols = 9;
  const uint32_t side = 2 * scale;
  const uint32_t count = (side * side + 2) / 3;
  Sample s(tile_product_codelet);
  s.random(type, count, block_size * block_size, seed);
  s.values(Type::u16, count, 2, [&](uint64_t i) {
    const uint64_t block = i / 2 * 3;
    return static_cast<double>(i % 2 == 0 ? block / side : block % side);
  });
  s.random(type, side * block_size, kCols, seed + 1).unset(type, side * block_size, kCols);
  return s.param(block_size).flops(2.0 * count * block_size * block_size * kCols);
}

constexpr NamedSample kSamples[] = {
    {"b1-f32", sample<Type::f32, 1>}, {"b4-f16", sample<Type::f16, 4>}, {"b16-f32", sample<Type::f32, 16>}};

}  // namespace

constexpr program::Codelet tile_product_codelet = {
    .name = "tile_product",
    .workers = program::Workers::whole_tile,
    .fields = kFields,
    .params = kParams,
    .reference = run,
    .simd = nullptr,
    .cost = cost,
    .code_bytes = 600,
    .runs_on = program::RunsOn::tiles,
};

std::span<const ListedCodelet> tile_product_codelets() {
  static constexpr ListedCodelet kListed[] = {{tile_product_codelet, kSamples}};
  return kListed;
}

}  // namespace tessera::kernels
