// Whether storage alive at the same time shares bytes, derived from an executable and its program alone.
#pragma once

#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "compiler/control_graph.h"
#include "compiler/executable.h"

namespace tessera::compiler {

/// Storage in arenas and its users, collected in a walk over the executable, and compared afterwards.
class Overlaps {
 public:
  using StorageId = uint32_t;

  explicit Overlaps(const Executable& e);

  /// Storage of mapped box `i` of a variable.
  StorageId mapped(program::VariableId v, uint32_t i) const { return first_mapped_[v] + i; }
  /// A box that an exchange copies to or from `place` in the present compute set.
  StorageId staged(program::VariableId v, const program::Box& box, const BoxAddress& place);

  TouchLog& log() { return log_; }
  /// Ends the touches of `toucher`.
  void close(ToucherId toucher);

  /// Throws Error naming two pieces of storage that overlap while both are alive, or an argument that is
  /// touched while what calls pass for it may not be alive.
  void check();

 private:
  struct Storage {
    program::VariableId variable = 0;
    program::TileId space = program::kShared;
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t elements = 0;
    TouchChain touches = kUntouched;
    bool is_staging = false;
  };
  struct StagedKey {
    program::VariableId variable;
    program::TileId space;
    uint64_t offset;
    program::Box box;
    bool operator==(const StagedKey&) const = default;
  };
  struct StagedHash {
    size_t operator()(const StagedKey& key) const {
      uint64_t hash = key.offset;
      for (const uint64_t part :
           {uint64_t{key.variable}, uint64_t{key.space}, uint64_t{key.box.row}, uint64_t{key.box.col}})
        hash = (hash ^ part) * 0x9E3779B97F4A7C15 + (hash >> 32);
      return hash;
    }
  };

  void add(program::VariableId v, const program::Box& box, const BoxAddress& place, bool is_staging);
  const Lifetime& lifetime_of(const Storage& storage);
  void check_arguments() const;
  /// From the first to the last position at which calls touch what they pass for each argument.
  std::map<program::VariableId, Lifetime> kept_by_calls() const;
  void check_arena(std::span<StorageId> ids);
  void check_alive(std::span<const StorageId> ids);
  [[noreturn]] void fail_overlap(StorageId a, StorageId b) const;

  const program::Program& program_;
  std::vector<Storage> storage_;
  std::vector<StorageId> first_mapped_;  ///< by variable
  std::unordered_map<StagedKey, StorageId, StagedHash> staged_;
  TouchLog log_;
  TouchChains chains_;
  ControlGraph graph_;
  std::unordered_map<TouchChain, Lifetime> lifetimes_;
  Lifetime always_;
};

}  // namespace tessera::compiler
