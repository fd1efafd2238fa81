// What a run did, superstep by superstep and tile by tile: small enough to be kept for each of many
// runs, and all that their pages and traces need.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compiler/executable.h"
#include "engine/engine.h"
#include "machine/model/machine.h"

namespace tessera::report {

/// What one phase of a step takes, in seconds.
using PhaseSpan = std::pair<program::Phase, double>;

/// A compute set with the exchanges around it, or a copy set.
struct StepSummary {
  std::string name;
  bool is_copy = false;
  uint64_t times = 0;             ///< that it ran
  program::PhaseTimes seconds;    ///< of all times together
  compiler::Balance tiles;        ///< seconds that a tile (a thread, where measured) is busy, one time
  uint64_t exchanged_bytes = 0;   ///< from tile to tile, one time
  std::vector<PhaseSpan> phases;  ///< of one time in their order, where times are accounted
  std::vector<double> sampled;    ///< seconds that each of RunSummary::samples computes, one time
};

/// A step as it ran.
struct StepRun {
  uint32_t step = 0;  ///< position in RunSummary::steps
  double begin = 0;   ///< seconds since the run began
  std::vector<PhaseSpan> phases;
  std::vector<engine::Busy> threads;  ///< where times are measured
};

/// A tile that stands for others.
struct TileSample {
  program::TileId tile = 0;
  std::string name;  ///< "slowest", "median"
};

struct RunSummary {
  std::string machine;
  machine::Kind kind = machine::Kind::host;
  uint32_t tiles = 1;
  bool measured = false;  ///< on this computer; else from the costs of the machine
  double seconds = 0;
  uint64_t supersteps = 0;
  std::vector<StepSummary> steps;  ///< that ran, compute sets before copy sets
  std::vector<StepRun> runs;       ///< in their order; the first ones, where there are too many
  uint64_t runs_left_out = 0;
  std::vector<TileSample> samples;  ///< where times are accounted
  std::vector<double> busy;         ///< seconds that each tile computes, where times are accounted
  compiler::MemoryReport memory;
  std::vector<compiler::PassRecord> passes;
  std::vector<machine::Figure> figures;  ///< of the machine, with their sources
};

/// The most steps whose runs are kept one by one.
inline constexpr size_t kMostRuns = 20'000;

enum class Times : uint8_t { measured, accounted };

/// Sums up a run, by the times that were measured or by those that the machine's costs account for.
/// Of a program that did not run, `profile` and `trace` are empty.
RunSummary summarize(const compiler::Executable& executable, const engine::Profile& profile,
                     const std::vector<engine::TraceEvent>& trace, Times times);

}  // namespace tessera::report
