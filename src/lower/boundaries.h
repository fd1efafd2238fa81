// Layouts in which calls pass and take the values of their functions.
#pragma once

namespace tessera::graph {

class Lowering;

/// Chooses the layouts of all functions that a graph calls, each once for all of its calls. On tiles, values
/// that functions take and give have the layout in which they are computed or wanted, rows or parts,
/// whichever takes the least time over all functions: values that calls pass on to each other are not
/// converted in between.
void choose_boundaries(Lowering& around);

}  // namespace tessera::graph
