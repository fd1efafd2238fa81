// The schedule of a program with calls expanded: a position for each access to storage.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/touches.h"

namespace tessera::compiler {

/// Maximum number of steps: nested calls could expand without end.
inline constexpr uint32_t kMostSteps = 1 << 20;
[[noreturn]] void refuse_schedule();

/// A tree of control flow. Positions ascend in program order: the passes of a loop share them, and the
/// branches of an If come one after another.
class Schedule {
 public:
  enum class Kind : uint8_t {
    position,  ///< an access to storage
    sequence,  ///< children one after another
    repeat,    ///< a sequence, repeated
    loop,      ///< test, condition, body
    branch,    ///< condition, then, otherwise
  };
  struct Node {
    Kind kind = Kind::sequence;
    bool always = true;  ///< for a repeat: whether it runs at least once
    bool again = false;  ///< for a repeat: whether it may run more than once
    uint32_t begin = 0;  ///< first position
    uint32_t end = 0;    ///< end of the positions
    uint32_t first_child = 0;
    uint32_t children = 0;
  };

  explicit Schedule(const program::Program& program);

  uint32_t root() const { return root_; }
  const Node& node(uint32_t id) const { return nodes_[id]; }
  uint32_t child(const Node& node, uint32_t i) const { return children_[node.first_child + i]; }
  uint32_t positions() const { return position_; }
  uint32_t supersteps() const { return supersteps_; }
  /// Positions of a toucher, ascending.
  const std::vector<uint32_t>& positions_of(ToucherId toucher) const { return positions_of_[toucher]; }

 private:
  uint32_t expand(program::StepId id);
  uint32_t position(ToucherId toucher);
  uint32_t add(Node node, const std::vector<uint32_t>& children);

  const program::Program& program_;
  Touchers touchers_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> children_;
  std::vector<std::vector<uint32_t>> positions_of_;
  uint32_t position_ = 0;
  uint32_t steps_ = 0;
  uint32_t supersteps_ = 0;
  uint32_t root_ = 0;
};

}  // namespace tessera::compiler
