#include "kernels/map/gather/codelet.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/common/lines.h"
#include "kernels/map/gather/elements.h"
#include "kernels/map/gather/transpose.h"
#include "program/missing_row.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

uint32_t row_at(const FieldView& rows, uint32_t i) { return static_cast<uint32_t>(number_at(rows, i, 0)); }

/// Numbers from 2^31 on are negative numbers in lists that were signed.
[[noreturn]] void refuse_row(uint32_t i, uint32_t row, int64_t rows, uint32_t list, uint32_t matrix) {
  throw program::MissingRow({i, static_cast<int32_t>(row), static_cast<uint64_t>(rows), list, matrix});
}

uint32_t gathered_row(const Vertex& v, uint32_t i) {
  using namespace gather_rows_field;
  const uint32_t row = row_at(v.fields[rows], i);
  const int64_t count = v.params[gather_rows_param::source_rows];
  if (row >= count) refuse_row(i, row, count, rows, source);
  return row;
}

void gather_rows_reference(const Vertex& v) {
  const auto panel = static_cast<uint32_t>(v.params[gather_rows_param::panel_rows]);
  const FieldView& source = v.fields[gather_rows_field::source];
  const FieldView& out = v.fields[gather_rows_field::out];
  for (uint32_t i = 0; i < out.rows; ++i) {
    const uint32_t row = gathered_row(v, i);
    for (uint32_t c = 0; c < out.cols; ++c)
      set_number(out, i, c, number_at(source, row / panel, int64_t{panel} * c + row % panel));
  }
}

void gather_rows_simd(const Vertex& v) {
  const auto panel = static_cast<uint32_t>(v.params[gather_rows_param::panel_rows]);
  const FieldView& source = v.fields[gather_rows_field::source];
  const FieldView& out = v.fields[gather_rows_field::out];
  const size_t element = size_of(out.type);
  const int64_t stride = source.col_stride * panel;
  for (uint32_t i = 0; i < out.rows; ++i) {
    const uint32_t row = gathered_row(v, i);
    const std::byte* const from = address_of(source, row / panel, row % panel);
    if (stride == 1 && out.col_stride == 1)
      std::memcpy(address_of(out, i, 0), from, out.cols * element);
    else
      copy_strided(element, from, stride, address_of(out, i, 0), out.col_stride, out.cols);
  }
}

/// The row to which an entry is added; none: the entry is skipped.
std::optional<uint32_t> added_row(const Vertex& v, uint32_t i) {
  using namespace add_rows_field;
  const uint32_t row = row_at(v.fields[rows], i);
  const int64_t count = v.params[add_rows_param::out_rows];
  if (row == v.params[add_rows_param::skipped]) return {};
  if (row >= count) refuse_row(i, row, count, rows, out);
  return row;
}

void add_rows_reference(const Vertex& v) {
  const auto panel = static_cast<uint32_t>(v.params[add_rows_param::panel_rows]);
  const FieldView& values = v.fields[add_rows_field::values];
  const FieldView& out = v.fields[add_rows_field::out];
  for (uint32_t i = 0; i < values.rows; ++i) {
    const std::optional<uint32_t> row = added_row(v, i);
    for (uint32_t c = 0; row && c < values.cols; ++c) {
      const int64_t at = int64_t{panel} * c + *row % panel;
      set_number(out, *row / panel, at, number_at(out, *row / panel, at) + number_at(values, i, c));
    }
  }
}

void scatter_add_rows_reference(const Vertex& v) {
  clear(v.fields[add_rows_field::out]);
  add_rows_reference(v);
}

void add_rows_simd(const Vertex& v) {
  const auto panel = static_cast<uint32_t>(v.params[add_rows_param::panel_rows]);
  const FieldView& values = v.fields[add_rows_field::values];
  const FieldView& out = v.fields[add_rows_field::out];
  const int64_t stride = out.col_stride * panel;
  for (uint32_t i = 0; i < values.rows; ++i) {
    const std::optional<uint32_t> row = added_row(v, i);
    if (!row) continue;
    auto* const to = reinterpret_cast<float*>(address_of(out, *row / panel, *row % panel));
    const auto* const from = reinterpret_cast<const float*>(address_of(values, i, 0));
    if (stride == 1 && values.col_stride == 1)
      for (uint32_t c = 0; c < values.cols; ++c) to[c] += from[c];
    else
      for (uint32_t c = 0; c < values.cols; ++c) to[c * stride] += from[c * values.col_stride];
  }
}

void scatter_add_rows_simd(const Vertex& v) {
  for_each_run<1>({v.fields[add_rows_field::out]}, [](const std::array<std::byte*, 1>& at, size_t count) {
    std::memset(at[0], 0, count * sizeof(float));
  });
  add_rows_simd(v);
}

void gather_elements_reference(const Vertex& v) {
  const FieldView& source = v.fields[gather_elements_field::source];
  const FieldView& out = v.fields[gather_elements_field::out];
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c) {
      const auto place = static_cast<uint32_t>(number_at(v.fields[gather_elements_field::places], r, c));
      std::memcpy(address_of(out, r, c), address_of(source, place / source.cols, place % source.cols),
                  size_of(out.type));
    }
}

bool is_contiguous(const FieldView& field) {
  return field.col_stride == 1 && (field.row_stride == field.cols || field.rows == 1);
}

void gather_elements_simd(const Vertex& v) {
  if (is_contiguous(v.fields[gather_elements_field::source]) &&
      is_contiguous(v.fields[gather_elements_field::places]) &&
      is_contiguous(v.fields[gather_elements_field::out]))
    gather_elements(v.fields[gather_elements_field::source], v.fields[gather_elements_field::places],
                    v.fields[gather_elements_field::out]);
  else
    gather_elements_reference(v);
}

void copy_elements(const FieldView& in, const FieldView& out) {
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c)
      std::memcpy(address_of(out, r, c), address_of(in, r, c), size_of(out.type));
}

void copy_reference(const Vertex& v) { copy_elements(v.fields[copy_field::in], v.fields[copy_field::out]); }

bool is_transposition(const FieldView& in, const FieldView& out) {
  return (in.col_stride == 1) != (out.col_stride == 1) && out.rows > 1 && out.cols > 1;
}

// Square by square, so that the lines of both sides stay in the L1 cache.
void transpose(const FieldView& in, const FieldView& out) {
  constexpr uint32_t kSide = 16;
  const size_t element = size_of(out.type);
  if (element == 2 || element == 4) {
    if (in.row_stride == 1 && out.col_stride == 1) return transpose_elements(in, out);
    if (in.col_stride == 1 && out.row_stride == 1) return transpose_elements(transposed(in), transposed(out));
  }
  for (uint32_t r = 0; r < out.rows; r += kSide)
    for (uint32_t c = 0; c < out.cols; c += kSide)
      for (uint32_t i = r; i < std::min(r + kSide, out.rows); ++i)
        copy_strided(element, address_of(in, i, c), in.col_stride, address_of(out, i, c), out.col_stride,
                     std::min(kSide, out.cols - c));
}

void copy(const FieldView& in, const FieldView& out) {
  if (is_transposition(in, out)) return transpose(in, out);
  for_each_run<2>({in, out}, [&](const std::array<std::byte*, 2>& at, size_t count) {
    std::memcpy(at[1], at[0], count * size_of(out.type));
  });
}

void copy_simd(const Vertex& v) { copy(v.fields[copy_field::in], v.fields[copy_field::out]); }

void transpose_reference(const Vertex& v) {
  copy_elements(transposed(v.fields[copy_field::in]), v.fields[copy_field::out]);
}

void transpose_simd(const Vertex& v) {
  copy(transposed(v.fields[copy_field::in]), v.fields[copy_field::out]);
}

// Vector operations on a host per element that is not contiguous, and per element that is transposed.
constexpr double kStridedOperations = 16;
constexpr double kTransposeOperations = 8;
// Cycles per gathered row on a host: its index, and a jump that no prefetcher anticipates.
constexpr double kHostRowCycles = 10;
// Cycles per element that a host gathers from its L2 cache, with several in flight.
constexpr double kHostElementCycles = 3;

// Cycles on a tile, W = workers: W(30 + rows(19 + 2 per vector)) for gathered rows, 3 per vector where they
// are added, 8 bytes per cycle for a copy after about 25 (PopLibs).
constexpr double kTileGatherWorkerCycles = 30;
constexpr double kTileGatherRowCycles = 19;
constexpr double kTileGatherVectorCycles = 2;
constexpr double kTileAddVectorCycles = 3;
constexpr double kTileCopyCycles = 25;
// A transpose reads and writes all elements, as where dense gradients transpose a factor.
constexpr double kTileTransposeAccesses = 2;

program::PhaseTimes gather_rows_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& out = v.fields[gather_rows_field::out];
  const double rows = out.rows;
  if (m.kind == machine::Kind::host) {
    const bool is_strided = out.col_stride != 1 || v.params[gather_rows_param::panel_rows] != 1;
    const double strided = is_strided ? kStridedOperations : 0;
    const HostWork work{bytes_of(out) + bytes_of(v.fields[gather_rows_field::rows]), bytes_of(out),
                        strided * static_cast<double>(out.elements())};
    return in_phase(Phase::rearrange, host_cycles(m, work) + rows * kHostRowCycles);
  }
  const double vectors = std::ceil(out.cols / tile_vector_width(out.type));
  const double worker = kTileGatherWorkerCycles +
                        worker_slice(m, rows) * (kTileGatherRowCycles + kTileGatherVectorCycles * vectors);
  return in_phase(Phase::rearrange, m.workers_per_tile * worker);
}

/// On a tile each worker has some of the columns. `cleared`: bytes that are cleared before.
program::PhaseTimes cost_of_added_rows(const Vertex& v, const machine::Machine& m, double cleared) {
  const FieldView& values = v.fields[add_rows_field::values];
  const FieldView& out = v.fields[add_rows_field::out];
  const double rows = values.rows;
  if (m.kind == machine::Kind::host) {
    const bool is_strided = out.col_stride != 1 || v.params[add_rows_param::panel_rows] != 1;
    const HostWork work{2 * bytes_of(values), bytes_of(values) + cleared,
                        (is_strided ? kStridedOperations : 1) * static_cast<double>(values.elements())};
    return in_phase(Phase::rearrange, host_cycles(m, work) + rows * kHostRowCycles);
  }
  const double vectors = std::ceil(worker_slice(m, values.cols) / tile_vector_width(out.type));
  const double worker =
      kTileGatherWorkerCycles + rows * (kTileGatherRowCycles + kTileAddVectorCycles * vectors);
  return in_phase(Phase::rearrange,
                  std::ceil(cleared / m.load_bytes_per_cycle) + m.workers_per_tile * worker);
}

program::PhaseTimes scatter_add_rows_cost(const Vertex& v, const machine::Machine& m) {
  return cost_of_added_rows(v, m, bytes_of(v.fields[add_rows_field::out]));
}

program::PhaseTimes add_rows_cost(const Vertex& v, const machine::Machine& m) {
  return cost_of_added_rows(v, m, 0);
}

program::PhaseTimes gather_elements_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& out = v.fields[gather_elements_field::out];
  const auto elements = static_cast<double>(out.elements());
  const HostWork streams{bytes_of(v.fields[gather_elements_field::places]), bytes_of(out), 0};
  return in_phase(Phase::rearrange, host_cycles(m, streams) + kHostElementCycles * elements);
}

program::PhaseTimes cost_of_copy(const FieldView& in, const FieldView& out, double tile_accesses,
                                 double strided_operations, const machine::Machine& m) {
  if (m.kind != machine::Kind::host)
    return in_phase(Phase::rearrange,
                    kTileCopyCycles + std::ceil(tile_accesses * bytes_of(out) / m.load_bytes_per_cycle));
  const bool strided = in.col_stride != 1 || out.col_stride != 1;
  const HostWork work{bytes_of(out), bytes_of(out),
                      strided ? strided_operations * static_cast<double>(out.elements()) : 0};
  return in_phase(Phase::rearrange, host_cycles(m, work));
}

program::PhaseTimes copy_cost(const Vertex& v, const machine::Machine& m) {
  return cost_of_copy(v.fields[copy_field::in], v.fields[copy_field::out], 1, kStridedOperations, m);
}

program::PhaseTimes transpose_cost(const Vertex& v, const machine::Machine& m) {
  return cost_of_copy(transposed(v.fields[copy_field::in]), v.fields[copy_field::out], kTileTransposeAccesses,
                      kTransposeOperations, m);
}

}  // namespace

TESSERA_DEFINE_FAMILY(gather, TESSERA_GATHER_CODELETS, TESSERA_CODELET)

}  // namespace tessera::kernels
