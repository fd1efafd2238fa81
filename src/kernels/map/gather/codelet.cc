#include "kernels/map/gather/codelet.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/common/lines.h"
#include "kernels/map/gather/elements.h"

namespace tessera::kernels {
namespace {

using program::Access;
using program::FieldView;
using program::Phase;
using program::Vertex;

constexpr program::FieldSpec kGatherFields[] = {{"rows", Access::in, 2}, {"source"}, {"out", Access::out}};
constexpr program::FieldSpec kElementFields[] = {{"source"}, {"places"}, {"out", Access::out}};
constexpr program::FieldSpec kCopyFields[] = {{"in"}, {"out", Access::out}};

uint32_t row_at(const FieldView& rows, uint32_t i) { return static_cast<uint32_t>(number_at(rows, i, 0)); }

void move_element(const FieldView& from, uint32_t from_row, const FieldView& to, uint32_t to_row,
                  uint32_t col) {
  std::memcpy(address_of(to, to_row, col), address_of(from, from_row, col), size_of(to.type));
}

void gather_reference(const Vertex& v) {
  const FieldView& out = v.fields[2];
  for (uint32_t i = 0; i < out.rows; ++i)
    for (uint32_t c = 0; c < out.cols; ++c) move_element(v.fields[1], row_at(v.fields[0], i), out, i, c);
}

void gather(const Vertex& v) {
  const FieldView& source = v.fields[1];
  const FieldView& out = v.fields[2];
  const size_t element = size_of(out.type);
  const bool contiguous = source.col_stride == 1 && out.col_stride == 1;
  for (uint32_t i = 0; i < out.rows; ++i) {
    const uint32_t row = row_at(v.fields[0], i);
    assert(row < source.rows);
    if (contiguous)
      std::memcpy(address_of(out, i, 0), address_of(source, row, 0), out.cols * element);
    else
      copy_strided(element, address_of(source, row, 0), source.col_stride, address_of(out, i, 0),
                   out.col_stride, out.cols);
  }
}

void gather_elements_reference(const Vertex& v) {
  const FieldView& source = v.fields[0];
  const FieldView& out = v.fields[2];
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c) {
      const auto place = static_cast<uint32_t>(number_at(v.fields[1], r, c));
      std::memcpy(address_of(out, r, c), address_of(source, place / source.cols, place % source.cols),
                  size_of(out.type));
    }
}

bool is_contiguous(const FieldView& field) {
  return field.col_stride == 1 && (field.row_stride == field.cols || field.rows == 1);
}

void gather_elements_simd(const Vertex& v) {
  if (is_contiguous(v.fields[0]) && is_contiguous(v.fields[1]) && is_contiguous(v.fields[2]))
    gather_elements(v.fields[0], v.fields[1], v.fields[2]);
  else
    gather_elements_reference(v);
}

void copy_reference(const Vertex& v) {
  const FieldView& out = v.fields[1];
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c) move_element(v.fields[0], r, out, r, c);
}

bool is_transposition(const FieldView& in, const FieldView& out) {
  return (in.col_stride == 1) != (out.col_stride == 1) && out.rows > 1 && out.cols > 1;
}

// Square by square, so that the lines of both sides stay in the L1 cache.
void transpose(const FieldView& in, const FieldView& out) {
  constexpr uint32_t kSide = 16;
  const size_t element = size_of(out.type);
  for (uint32_t r = 0; r < out.rows; r += kSide)
    for (uint32_t c = 0; c < out.cols; c += kSide)
      for (uint32_t i = r; i < std::min(r + kSide, out.rows); ++i)
        copy_strided(element, address_of(in, i, c), in.col_stride, address_of(out, i, c), out.col_stride,
                     std::min(kSide, out.cols - c));
}

void copy(const Vertex& v) {
  const FieldView& in = v.fields[0];
  const FieldView& out = v.fields[1];
  if (is_transposition(in, out)) return transpose(in, out);
  for_each_run<2>({in, out}, [&](const std::array<std::byte*, 2>& at, size_t count) {
    std::memcpy(at[1], at[0], count * size_of(out.type));
  });
}

// Vector operations on a host per element that is not contiguous.
constexpr double kStridedOperations = 16;
// Cycles per gathered row on a host: its index, and a jump that no prefetcher anticipates.
constexpr double kHostRowCycles = 10;
// Cycles per element that a host gathers from its L2 cache, with several in flight.
constexpr double kHostElementCycles = 3;

// Cycles on a tile, W = workers: W(30 + rows(19 + 2 per vector)) for gathered rows, 8 bytes per cycle for a
// copy after about 25 (PopLibs).
constexpr double kTileGatherWorkerCycles = 30;
constexpr double kTileGatherRowCycles = 19;
constexpr double kTileGatherVectorCycles = 2;
constexpr double kTileCopyCycles = 25;

program::PhaseTimes gather_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& out = v.fields[2];
  const double rows = out.rows;
  if (m.kind == machine::Kind::host) {
    const double strided = out.col_stride == 1 ? 0 : kStridedOperations;
    const HostWork work{bytes_of(out) + bytes_of(v.fields[0]), bytes_of(out),
                        strided * static_cast<double>(out.elements())};
    return in_phase(Phase::rearrange, host_cycles(m, work) + rows * kHostRowCycles);
  }
  const double vectors = std::ceil(out.cols / tile_vector_width(out.type));
  const double worker = kTileGatherWorkerCycles +
                        worker_slice(m, rows) * (kTileGatherRowCycles + kTileGatherVectorCycles * vectors);
  return in_phase(Phase::rearrange, m.workers_per_tile * worker);
}

program::PhaseTimes gather_elements_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& out = v.fields[2];
  const auto elements = static_cast<double>(out.elements());
  const HostWork streams{bytes_of(v.fields[1]), bytes_of(out), 0};
  return in_phase(Phase::rearrange, host_cycles(m, streams) + kHostElementCycles * elements);
}

program::PhaseTimes copy_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& out = v.fields[1];
  if (m.kind != machine::Kind::host)
    return in_phase(Phase::rearrange, kTileCopyCycles + std::ceil(bytes_of(out) / m.load_bytes_per_cycle));
  const bool strided = v.fields[0].col_stride != 1 || out.col_stride != 1;
  const HostWork work{bytes_of(out), bytes_of(out),
                      strided ? kStridedOperations * static_cast<double>(out.elements()) : 0};
  return in_phase(Phase::rearrange, host_cycles(m, work));
}

template <Type type, Type index>
Sample gather_sample(uint32_t scale, uint64_t seed) {
  const uint32_t source_rows = 7 * scale;
  const uint32_t rows = 5 * scale;
  const uint32_t cols = 19 * scale;
  Sample sample(gather_rows_codelet);
  sample.values(index, rows, 1,
                [&](uint64_t i) { return static_cast<double>((i * 11 + seed) % source_rows); });
  return sample.random(type, source_rows, cols, seed, 1, true).unset(type, rows, cols);
}

template <Type type>
Sample copy_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = 3 * scale;
  const uint32_t cols = 37 * scale;
  Sample sample(copy_codelet);
  return sample.random(type, rows, cols, seed, 1, true).unset(type, rows, cols);
}

template <Type type>
Sample gather_elements_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = 7 * scale;
  const uint32_t cols = 13 * scale;
  Sample sample(gather_elements_codelet);
  sample.random(type, 5 * scale, 10 * scale, seed, 1, true);
  sample.values(Type::u32, rows, cols, [&](uint64_t i) {
    return static_cast<double>((i * 7919 + seed) % (uint64_t{50} * scale * scale));
  });
  return sample.unset(type, rows, cols);
}

constexpr NamedSample kGatherSamples[] = {
    {"f32-u32", gather_sample<Type::f32, Type::u32>},
    {"f16-u16", gather_sample<Type::f16, Type::u16>},
    {"bf16-u32", gather_sample<Type::bf16, Type::u32>},
};
constexpr NamedSample kElementSamples[] = {{"f32", gather_elements_sample<Type::f32>},
                                           {"f16", gather_elements_sample<Type::f16>},
                                           {"bf16", gather_elements_sample<Type::bf16>}};
constexpr NamedSample kCopySamples[] = {
    {"f32", copy_sample<Type::f32>}, {"f16", copy_sample<Type::f16>}, {"bf16", copy_sample<Type::bf16>}};

}  // namespace

constexpr program::Codelet gather_rows_codelet = {
    .name = "gather_rows",
    .fields = kGatherFields,
    .params = {},
    .reference = gather_reference,
    .simd = gather,
    .cost = gather_cost,
    .code_bytes = 256,
};

constexpr program::Codelet gather_elements_codelet = {
    .name = "gather_elements",
    .fields = kElementFields,
    .params = {},
    .reference = gather_elements_reference,
    .simd = gather_elements_simd,
    .cost = gather_elements_cost,
    .code_bytes = 512,
    .runs_on = program::RunsOn::hosts,
};

constexpr program::Codelet copy_codelet = {
    .name = "copy",
    .fields = kCopyFields,
    .params = {},
    .reference = copy_reference,
    .simd = copy,
    .cost = copy_cost,
    .code_bytes = 128,
};

std::span<const ListedCodelet> gather_codelets() {
  static constexpr ListedCodelet kListed[] = {{gather_rows_codelet, kGatherSamples},
                                              {gather_elements_codelet, kElementSamples},
                                              {copy_codelet, kCopySamples}};
  return kListed;
}

}  // namespace tessera::kernels
