// State that persists from run to run.
#pragma once

#include <tessera/communicator.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/executable.h"
#include "engine/run.h"

namespace tessera::engine {

class RunMemory;
class Runner;
struct RunState;

/// An executable with its state. Each replica has its own state: writes go to all replicas, reads come from
/// the first. Each session has its own memory, so several sessions of one executable may run at once. All
/// functions are thread-safe; calls to one session take turns.
///
/// Ranks can divide the replicas of an executable among them, equally: with a communicator, a session has
/// the replicas of its rank alone, and numbers them from 0. Bound arrays belong to these replicas. All
/// ranks have to make the same calls of run() and read_all(). If one fails in them, the others do too, and
/// the communicator is of no further use. On a host, more ranks than replicas divide the parts of each. Those
/// of a replica bind equal arrays, and all have the outputs. They have to make all calls that read or write
/// state together; each stores what its parts touch.
class Session {
 public:
  /// Begins with the initial contents of state. Throws Error if there is not enough memory, and UsageError if
  /// ranks cannot divide the replicas equally.
  explicit Session(std::shared_ptr<const compiler::Executable> executable,
                   std::shared_ptr<Communicator> communicator = {});
  ~Session();

  const compiler::Executable& executable() const;

  /// The replicas of the executable that this session has.
  uint32_t first_replica() const;
  uint32_t own_replicas() const;

  /// Notes something that all ranks must have alike: run() and read_all() refuse a rank that noted something
  /// else.
  void note(uint64_t what);

  /// Runs the program once, like Engine::run(), on the state left by the last run. After a run that throws,
  /// state may be half written. A dry run starts from the integers of the state and changes nothing.
  Profile run(std::span<const Binding> bindings, const RunOptions& options = {});

  /// The state that the last run may have half written; none if it ended well, or threw before it came to a
  /// step that writes any.
  std::vector<program::VariableId> half_written() const;

  /// Bytes that this rank has sent to others in all runs that have ended well (Profile::sent_bytes).
  uint64_t sent_bytes() const;

  /// Runs the program once with each of several sets of arrays, on up to `threads` threads side by side. The
  /// executable must be for a host with one thread, and leave state unchanged. Throws Error if there is not
  /// enough memory.
  void run_side_by_side(std::span<const std::vector<Binding>> runs, uint32_t threads);

  /// Copies a state variable of one replica to, or of all replicas from, the caller's array, which must have
  /// its type and shape. Throws UsageError if there is no state of that name or the array has another type or
  /// shape.
  void read(std::string_view name, const program::FieldView& to, uint32_t replica = 0) const;
  void write(std::string_view name, const program::FieldView& from);
  /// The same for one replica, whose state may differ from the others'.
  void write(std::string_view name, const program::FieldView& from, uint32_t replica);

  /// Whether ranks have parts of a replica.
  bool is_divided() const;

  /// Brings a state variable to all ranks that have parts of a replica, in memory_of(), until a run changes
  /// it.
  void share(std::string_view name);

  /// Copies a state variable of all replicas, of other ranks too, to an array: row by row, replica by
  /// replica. Throws UsageError if there is no state of that name, or the array has another size.
  void read_all(std::string_view name, std::span<std::byte> to) const;

  /// The memory of a state variable on a host, row by row, which other programs may take as an array while
  /// this session does not run. Throws UsageError as read() does, and on machines with tiles.
  program::FieldView memory_of(std::string_view name) const;

  /// Resets state to its initial contents.
  void reset();

  /// Saves all state in a .safetensors file: one two-dimensional tensor per variable, under its name. An
  /// existing file is only replaced by a complete one.
  void save(const std::string& path) const;

  /// Loads state from such a file, bit by bit. Throws Error, and leaves the state unchanged, if the file does
  /// not have exactly this program's state variables with their types and shapes.
  void load(const std::string& path);

 private:
  /// The memories of the replicas. Throws Error if the program does not fit its machine, and thus has no
  /// memory.
  const std::deque<RunMemory>& memories() const;
  const RunMemory& memory() const;  ///< the first replica's memory
  program::VariableId find(std::string_view name) const;
  program::VariableId find(std::string_view name, const program::FieldView& array) const;
  /// Reads from one of the rank's own replicas.
  void read(program::VariableId id, const program::FieldView& to, uint32_t replica) const;
  /// Whether this rank has to store new contents of a state variable.
  bool takes(program::VariableId id);
  /// Calls work(exchange, state variable) for each, if ranks have parts of a replica.
  template <class Work>
  void each_divided(const Work& work) const;

  std::unique_ptr<const Runner> runner_;
  std::unique_ptr<RunState> state_;
  uint64_t sent_bytes_ = 0;
  bool has_failed_ = false;      ///< whether the last run threw
  std::deque<RunState> beside_;  ///< states of further threads that run side by side
  mutable std::mutex mutex_;
};

}  // namespace tessera::engine
