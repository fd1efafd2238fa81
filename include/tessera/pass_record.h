// The passes by which a program was made.
#pragma once

#include <string>

namespace tessera {

/// A pass on the way from a graph to an executable program: a transform of the graph, the choice of forms of
/// weights or of layouts, lowering, or a pass of the compiler.
struct PassRecord {
  std::string name;
  std::string did;  ///< "12 operations"
  double seconds = 0;
};

}  // namespace tessera
