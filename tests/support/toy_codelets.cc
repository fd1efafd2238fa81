#include "support/toy_codelets.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace tessera::testing {
namespace {

using program::Access;
using program::FieldSpec;
using program::FieldView;
using program::Phase;
using program::PhaseTimes;
using program::Vertex;
using program::Workers;

template <class T>
T repeated(const FieldView& x, uint32_t i, uint32_t j) {
  return x.empty() ? T{} : x.matrix<T>()(i % x.rows, j % x.cols);
}

/// Calls body(type's zero) for the type of a field.
template <class Body>
void with_type(const FieldView& field, const Body& body) {
  if (field.type == Type::f32) return body(float{});
  if (field.type == Type::u32) return body(uint32_t{});
  throw std::logic_error("toy codelets work on f32 and u32");
}

/// y(i, j) = value(i, j), row by row.
template <class T, class Value>
void assign(const FieldView& y, const Value& value) {
  for (uint32_t i = 0; i < y.rows; ++i)
    for (uint32_t j = 0; j < y.cols; ++j) y.matrix<T>()(i, j) = value(i, j);
}

void fill(const Vertex& v) {
  with_type(v.fields[0], [&]<class T>(T) {
    assign<T>(v.fields[0], [&](uint32_t i, uint32_t j) { return static_cast<T>(v.params[0] + 3 * i + j); });
  });
}

void add(const Vertex& v) {
  with_type(v.fields[2], [&]<class T>(T) {
    assign<T>(v.fields[2], [&](uint32_t i, uint32_t j) {
      return static_cast<T>(repeated<T>(v.fields[0], i, j) + repeated<T>(v.fields[1], i, j));
    });
  });
}

void subtract(const Vertex& v) {
  with_type(v.fields[2], [&]<class T>(T) {
    assign<T>(v.fields[2], [&](uint32_t i, uint32_t j) {
      return static_cast<T>(repeated<T>(v.fields[0], i, j) - repeated<T>(v.fields[1], i, j));
    });
  });
}

void scale(const Vertex& v) {
  with_type(v.fields[0], [&]<class T>(T) {
    const FieldView& y = v.fields[0];
    assign<T>(y, [&](uint32_t i, uint32_t j) {
      return static_cast<T>(y.matrix<T>()(i, j) * static_cast<T>(v.params[0]));
    });
  });
}

void sum(const Vertex& v) {
  with_type(v.fields[1], [&]<class T>(T) {
    const FieldView& x = v.fields[0];
    T total{};
    for (uint32_t i = 0; i < x.rows; ++i)
      for (uint32_t j = 0; j < x.cols; ++j) total = static_cast<T>(total + x.matrix<T>()(i, j));
    assign<T>(v.fields[1], [&](uint32_t, uint32_t) { return total; });
  });
}

void accumulate(const Vertex& v) {
  with_type(v.fields[1], [&]<class T>(T) {
    const FieldView& y = v.fields[1];
    assign<T>(y, [&](uint32_t i, uint32_t j) {
      return static_cast<T>(y.matrix<T>()(i, j) + repeated<T>(v.fields[0], i, j));
    });
  });
}

void gather(const Vertex& v) {
  with_type(v.fields[2], [&]<class T>(T) {
    assign<T>(v.fields[2], [&](uint32_t i, uint32_t j) {
      return repeated<T>(v.fields[0], repeated<uint32_t>(v.fields[1], 0, i), j);
    });
  });
}

void increment(const Vertex& v) { *v.fields[0].as<uint32_t>() += static_cast<uint32_t>(v.params[0]); }

void below(const Vertex& v) {
  *v.fields[1].as<uint32_t>() = *v.fields[0].as<uint32_t>() < static_cast<uint32_t>(v.params[0]);
}

void odd(const Vertex& v) { *v.fields[1].as<uint32_t>() = repeated<uint32_t>(v.fields[0], 0, 0) % 2; }

[[noreturn]] void fail(const Vertex&) { throw std::runtime_error("vertex failed"); }

/// A cycle per element of the largest field.
PhaseTimes cost(const Vertex& v, const machine::Machine&) {
  PhaseTimes cycles;
  for (const FieldView& f : v.fields)
    cycles[Phase::compute] = std::max(cycles[Phase::compute], static_cast<double>(f.elements()) + 1);
  return cycles;
}

constexpr FieldSpec kX{"x"};
constexpr FieldSpec kY{"y", Access::out};
constexpr FieldSpec kYInOut{"y", Access::inout};
constexpr FieldSpec kFlag{"flag", Access::out};
constexpr std::array kFill = {kY};
constexpr std::array kAdd = {FieldSpec{"a"}, FieldSpec{"b", Access::in, 8}, kY};
/// b is read beyond its end, and y lies where loads are fast.
constexpr std::array kSubtract = {
    FieldSpec{.name = "a", .alignment = 16}, FieldSpec{.name = "b", .alignment = 8, .over_read = 32},
    FieldSpec{.name = "y", .access = Access::out, .alignment = 32, .interleaved = true}};
constexpr std::array kScale = {kYInOut};
constexpr std::array kSum = {kX, kY};
constexpr std::array kAccumulate = {FieldSpec{"x", Access::in, 4, false, true}, kYInOut};
constexpr std::array kGather = {kX, FieldSpec{"rows"}, kY};
/// Counters are costed, so that programs have sets whose costs only a run knows.
constexpr std::array kIncrement = {FieldSpec{.name = "counter", .access = Access::inout, .costed = true}};
constexpr std::array kBelow = {FieldSpec{.name = "counter", .costed = true}, kFlag};
constexpr std::array kOdd = {kX, kFlag};
constexpr std::array kThrow = {kX};
constexpr std::array<std::string_view, 1> kValue = {"value"};
constexpr std::array<std::string_view, 1> kFactor = {"factor"};
constexpr std::array<std::string_view, 1> kBy = {"by"};
constexpr std::array<std::string_view, 1> kLimit = {"limit"};

program::Codelet codelet(std::string_view name, std::span<const FieldSpec> fields,
                         std::span<const std::string_view> params, program::RunVertex run,
                         Workers workers = Workers::whole_tile, bool integer_only = false) {
  return {.name = name,
          .workers = workers,
          .fields = fields,
          .params = params,
          .reference = run,
          .cost = cost,
          .code_bytes = 64,
          .integer_only = integer_only};
}

}  // namespace

const program::Codelet fill_codelet = codelet("fill", kFill, kValue, fill);
const program::Codelet add_codelet = codelet("add", kAdd, {}, add);
const program::Codelet subtract_codelet = codelet("subtract", kSubtract, {}, subtract);
const program::Codelet scale_codelet = codelet("scale", kScale, kFactor, scale, Workers::single_worker);
const program::Codelet sum_codelet = codelet("sum", kSum, {}, sum, Workers::single_worker);
const program::Codelet accumulate_codelet = codelet("accumulate", kAccumulate, {}, accumulate);
const program::Codelet gather_codelet = codelet("gather", kGather, {}, gather);
const program::Codelet increment_codelet =
    codelet("increment", kIncrement, kBy, increment, Workers::whole_tile, true);
const program::Codelet below_codelet = codelet("below", kBelow, kLimit, below, Workers::whole_tile, true);
const program::Codelet odd_codelet = codelet("odd", kOdd, {}, odd);
const program::Codelet throw_codelet = codelet("throw", kThrow, {}, fail);

program::Variable variable(std::string name, Type type, uint32_t rows, uint32_t cols, program::Role role,
                           program::TileId tile) {
  return {std::move(name), type, rows, cols, role, program::map_to_tile(rows, cols, tile), nullptr};
}

program::Field field(program::VariableId variable, program::Box box) {
  return {variable, program::BoxSeries::same(box)};
}

program::VertexGroup vertex(const program::Codelet& codelet, program::TileId tile,
                            std::vector<program::Field> fields, std::vector<program::Param> params) {
  return {&codelet, tile, 1, 1, std::move(fields), std::move(params)};
}

program::StepId execute(program::Program& program, const program::Codelet& codelet,
                        const std::vector<Taken>& fields, std::vector<program::Param> params,
                        program::TileId tile) {
  std::vector<program::Field> taken;
  for (const Taken& f : fields)
    taken.push_back(f.is_whole ? field(f.variable, program.variable(f.variable).whole())
                               : static_cast<const program::Field&>(f));
  return program.execute({std::string(codelet.name),
                          program::Phase::compute,
                          {vertex(codelet, tile, std::move(taken), std::move(params))}});
}

}  // namespace tessera::testing
