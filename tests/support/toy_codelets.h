// Simple codelets with every kind of access, for tests of the program form. All work on f32 and u32; inputs
// repeat if they are smaller than the output, and count as 0 if they are empty.
#pragma once

#include "program/program.h"

namespace tessera::testing {

/// y(i, j) = value + 3 · i + j. Fields: out y. Parameter: value.
extern const program::Codelet fill_codelet;
/// y = a + b. Fields: in a, in b, out y.
extern const program::Codelet add_codelet;
/// y = a - b. Fields: in a, in b, out y, with alignments of 16, 8 and 32 bytes, 32 bytes of over-read for b,
/// and the interleaved region for y.
extern const program::Codelet subtract_codelet;
/// y *= factor. Fields: inout y. Parameter: factor. One worker.
extern const program::Codelet scale_codelet;
/// Every element of y is the sum of x in row-major order. Fields: in x, out y. One worker.
extern const program::Codelet sum_codelet;
/// y += x. Fields: optional in x, inout y.
extern const program::Codelet accumulate_codelet;
/// y(i, :) = x(rows(i) mod rows of x, :). Fields: in x, in rows (u32), out y.
extern const program::Codelet gather_codelet;
/// counter += by. Fields: inout counter (u32, costed). Parameter: by. Runs in a dry run.
extern const program::Codelet increment_codelet;
/// flag = counter < limit. Fields: in counter (u32, costed), out flag (u32). Parameter: limit. Runs in a dry
/// run.
extern const program::Codelet below_codelet;
/// flag = lowest bit of x(0, 0): control that depends on payload. Fields: in x, out flag (u32).
extern const program::Codelet odd_codelet;
/// Throws std::runtime_error("vertex failed"). Fields: in x.
extern const program::Codelet throw_codelet;

/// A variable of one piece: on one tile, or shared.
program::Variable variable(std::string name, Type type, uint32_t rows, uint32_t cols, program::Role role,
                           program::TileId tile = program::kShared);

/// A field with the same box for every vertex.
program::Field field(program::VariableId variable, program::Box box);

/// One vertex on one tile.
program::VertexGroup vertex(const program::Codelet& codelet, program::TileId tile,
                            std::vector<program::Field> fields, std::vector<program::Param> params = {});

/// A field of a vertex: a whole variable, or a box of one.
struct Taken : program::Field {
  Taken(program::VariableId whole) : Field{whole, {}}, is_whole(true) {}
  Taken(program::Field part) : Field(std::move(part)) {}

  bool is_whole = false;
};

/// A step of one vertex, with its codelet's name.
program::StepId execute(program::Program& program, const program::Codelet& codelet,
                        const std::vector<Taken>& fields, std::vector<program::Param> params = {},
                        program::TileId tile = 0);

}  // namespace tessera::testing
