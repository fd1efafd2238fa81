// Checkpoints of training: one .safetensors file with parameters, optimizer's state, patterns, the best
// network so far, and as metadata what the bits depend on, where training is, and its history.
#pragma once

#include <tessera/training.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::train {

/// Parameters and patterns of a network.
struct Snapshot {
  graph::Arrays parameters;
  std::map<std::string, Pattern> patterns;  ///< of sparse ones
};

/// Of a session's parameters.
Snapshot snapshot_of(const graph::Session& session);
/// Into a session with the same parameters.
void restore(const Snapshot& snapshot, graph::Session& session);

/// What the bits of a run depend on besides settings and images.
struct Environment {
  std::string machine;
  uint32_t tiles = 0;
  std::string isa;

  bool operator==(const Environment&) const = default;
};

/// Of the epoch that is not finished.
struct Sums {
  double loss = 0;     ///< of the steps
  uint64_t right = 0;  ///< images
  std::vector<SpikingActivity> activity = {};
};

/// Where training is, besides the session's state.
struct Position {
  uint64_t step = 0;  ///< steps that are finished, in all epochs together
  Sums sums;
  std::vector<EpochResult> epochs;
  uint32_t best_epoch = 0;
  std::optional<Snapshot> best;
};

/// What a checkpoint is checked against.
struct Identity {
  std::string settings;  ///< JSON
  std::string images;    ///< name, counts and checksum
  Environment environment;
  uint64_t steps_per_epoch = 1;
  uint64_t steps = 0;
};

/// An existing file is only replaced by a complete one.
void save_checkpoint(const std::string& path, const Identity& identity, const Position& position,
                     const graph::Session& session);

/// Sets the session's state and returns the position. Throws Error, and changes nothing, for a damaged file
/// and one of another identity; another place may be allowed.
Position load_checkpoint(const std::string& path, const Identity& identity, bool allow_different_environment,
                         graph::Session& session);

}  // namespace tessera::train
