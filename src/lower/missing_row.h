// What a run says about ids that name no row, and about integers that 32 bits do not hold.
#pragma once

#include <string>

#include "lower/lowering.h"
#include "lower/parts.h"
#include "program/missing_row.h"
#include "program/overflow.h"

namespace tessera::graph {

/// The error in terms of the graph: its operation, its inputs that ids come from, and the parameter. `parts`:
/// the parts of which the graph is one; null: it is the whole.
std::string text_of(const program::MissingRow& error, const Graph& graph, const Lowered& lowered,
                    const Parts* parts);

/// The error in terms of the graph's inputs.
std::string text_of(const program::Overflow& error, const Graph& graph, const Lowered& lowered);

}  // namespace tessera::graph
