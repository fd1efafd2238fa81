// Checkpoints of training: one .safetensors file with parameters, optimizer's state, patterns, the best
// network so far, and as metadata the environment on which bits depend, the position in training, and its
// history.
#pragma once

#include <tessera/communicator.h>
#include <tessera/training.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::train {

/// Parameters and patterns of a network, or its whole state.
struct Snapshot {
  graph::Arrays parameters;
  std::map<std::string, Pattern> patterns;  ///< patterns of sparse parameters
};

/// Takes a snapshot of a session's parameters.
Snapshot snapshot_of(const graph::Session& session);
/// The same with the optimizer's state.
Snapshot whole_of(const graph::Session& session);
/// Restores a snapshot to a session with the same parameters.
void restore(const Snapshot& snapshot, graph::Session& session);

/// The environment on which the bits of a run depend, besides settings and images.
struct Environment {
  std::string machine;
  uint32_t tiles = 0;
  std::string isa;

  bool operator==(const Environment&) const = default;
};

/// "host", or the name of a modelled machine.
std::string host_or_name(const Machine& machine);

/// Sums over the current epoch.
struct Sums {
  double loss = 0;     ///< sum of the steps' losses
  uint64_t right = 0;  ///< number of images classified correctly
  std::vector<SpikingActivity> activity = {};
};

/// The position in training, besides the session's state.
struct Position {
  uint64_t step = 0;  ///< finished steps, over all epochs
  Sums sums;
  std::vector<EpochResult> epochs;
  uint32_t best_epoch = 0;
  std::optional<Snapshot> best;
};

/// As JSON, without times and the best network.
std::string text_of(const Position& position);

/// The identity of a training, against which a checkpoint is checked.
struct Identity {
  std::string settings;  ///< JSON
  std::string data;      ///< name, counts and checksum
  Environment environment;
  uint64_t steps_per_epoch = 1;
  uint64_t steps = 0;

  /// Epochs that end within the first steps; the last epoch may have fewer steps.
  uint64_t epochs_until(uint64_t step) const {
    return step / steps_per_epoch + (step == steps && step % steps_per_epoch != 0 ? 1 : 0);
  }
};

/// Writes a checkpoint, with the position in training as JSON. An existing file is only replaced by a
/// complete one. All ranks of a session have to call it; the first one writes.
void save_checkpoint(const std::string& path, const Identity& identity, const std::string& position,
                     const graph::Session& session, const Snapshot* best = nullptr,
                     Communicator* communicator = nullptr);
void save_checkpoint(const std::string& path, const Identity& identity, const Position& position,
                     const graph::Session& session, Communicator* communicator = nullptr);

/// Sets the session's state; `take` is given the position before, and may refuse it by Error or an exception
/// of JSON. Throws Error, and changes nothing, for a damaged file and for another identity; another
/// environment may be allowed. All ranks of a session have to call it, with equal files.
void load_checkpoint(const std::string& path, const Identity& identity, bool allow_different_environment,
                     graph::Session& session, const std::function<void(const std::string& position)>& take,
                     Communicator* communicator = nullptr);

/// The same for a position with the best network; returns it.
Position load_checkpoint(const std::string& path, const Identity& identity, bool allow_different_environment,
                         graph::Session& session, Communicator* communicator = nullptr);

}  // namespace tessera::train
