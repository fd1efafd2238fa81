// Executables of sessions in files: a session of an equal graph need not search for its placement and compile
// it.
#pragma once

#include <tessera/graph.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/executable.h"
#include "graph/transforms/recompute.h"
#include "lower/placement.h"
#include "machine/model/machine.h"
#include "program/program.h"

namespace tessera::graph {

/// A fact for which an executable is made, named for messages: the first fact that differs says why it does
/// not fit.
struct Fact {
  std::string name;
  std::string value;

  bool operator==(const Fact&) const = default;
};
using Facts = std::vector<Fact>;

/// The facts of a session, with its graph as it is lowered. Graphs with other constants or patterns may have
/// equal facts; their programs differ.
Facts facts_of(const Graph& graph, const machine::Machine& machine, const SessionOptions& options);

/// What was chosen before a session's program was lowered.
struct SessionChoices {
  Facts made_for;
  uint32_t parts = 0;       ///< Parts::count; 0: the samples are not divided
  uint32_t last_parts = 0;  ///< Parts::last
  Recomputation recomputation;
  Placement placement;
  std::vector<PlacementCost> considered;
};

/// Writes a session's executable, completely or not at all. Throws Error on failure.
void write_session_file(const std::string& path, SessionChoices choices,
                        const compiler::Executable& executable);

class SessionFile {
 public:
  /// Reads all but the executable. Throws Error, which begins with the path, if the file is of another kind
  /// or format, or damaged.
  explicit SessionFile(const std::string& path);

  const SessionChoices& choices() const { return choices_; }
  /// Throws Error unless the executable is made for the same facts.
  void require(const Facts& facts) const;
  [[noreturn]] void refuse_other(std::string_view what) const;
  /// The graph with the recomputation chosen for its memory budget, and without the budget. Throws Error for
  /// a graph with another budget.
  Graph recomputed(const Graph& graph) const;
  /// The executable, of this program. Throws Error if it belongs to another program or machine, or is
  /// unsound.
  std::shared_ptr<const compiler::Executable> executable(std::shared_ptr<const program::Program> program,
                                                         const machine::Machine& machine) const;

 private:
  std::string path_;
  SessionChoices choices_;
  std::vector<char> content_;
  size_t executable_at_ = 0;  ///< where it begins in the content
};

}  // namespace tessera::graph
