// Layouts in which calls pass and take the values of their functions.
#pragma once

namespace tessera::graph {

class Lowering;

/// Chooses the layouts of all functions that a graph calls, each once for all of its calls. On tiles, what
/// they take and give lies as they compute it or want it, rows or parts, where that takes the least time over
/// all of them: values that calls pass on to each other are not converted between them.
void choose_boundaries(Lowering& around);

}  // namespace tessera::graph
