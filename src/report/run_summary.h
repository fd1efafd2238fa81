// Summary of a run, superstep by superstep and tile by tile: small enough to keep for many runs, and
// sufficient for their pages and traces.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compiler/executable.h"
#include "engine/engine.h"
#include "machine/model/machine.h"

namespace tessera::report {

/// Seconds of one phase of a step.
using PhaseSpan = std::pair<program::Phase, double>;

/// A compute set with the exchanges around it, or a copy set.
struct StepSummary {
  std::string name;
  bool is_copy = false;
  uint64_t times = 0;             ///< number of executions
  program::PhaseTimes seconds;    ///< total over all executions, without what steps beside it hide
  compiler::Balance tiles;        ///< busy seconds of tiles (of threads, if measured) in one execution
  uint64_t exchanged_bytes = 0;   ///< bytes between tiles, in one execution
  std::vector<PhaseSpan> phases;  ///< phases of one execution with no step beside it, in order, if times are
                                  ///< predicted
  std::vector<double> sampled;    ///< compute seconds of each of RunSummary::samples, in one execution
};

/// A chip's time in one execution of a step, waiting for other chips included.
struct ChipRun {
  uint32_t chip = 0;
  engine::Busy busy;  ///< seconds since the run began
};

/// One execution of a step.
struct StepRun {
  uint32_t step = 0;  ///< index in RunSummary::steps
  double begin = 0;   ///< seconds since the run began
  std::vector<PhaseSpan> phases;
  std::vector<engine::Busy> threads;  ///< if times are measured
  std::vector<ChipRun> chips{};       ///< chips that take part, on a machine of several chips
};

/// A tile that represents others.
struct TileSample {
  program::TileId tile = 0;
  std::string name;  ///< "slowest", "median"
};

/// One of several chips.
struct ChipSummary {
  uint32_t chip = 0;
  program::PhaseTimes seconds;  ///< until the chip finishes; waiting for other chips is sync
  uint64_t bytes = 0;           ///< total over its tiles
  uint64_t fullest_tile_bytes = 0;
};

/// One direction of a link between chips.
struct LinkSummary {
  uint32_t from = 0;
  uint32_t to = 0;
  uint64_t bytes = 0;
  double seconds = 0;  ///< time in which the link carries the bytes
};

struct RunSummary {
  std::string machine;
  machine::Kind kind = machine::Kind::host;
  uint32_t tiles = 1;
  bool measured = false;  ///< whether times were measured on the host; otherwise they follow from the
                          ///< machine's costs
  double seconds = 0;
  uint64_t supersteps = 0;
  std::vector<StepSummary> steps;  ///< steps that were executed, compute sets before copy sets
  std::vector<StepRun> runs;       ///< in execution order; at most kMostRuns
  uint64_t runs_left_out = 0;
  std::vector<TileSample> samples;  ///< tiles with samples, if times are predicted
  std::vector<double> busy;         ///< compute seconds of each tile, if times are predicted
  std::vector<ChipSummary> chips;   ///< if there are several, and times are predicted
  std::vector<LinkSummary> links;   ///< links in use
  compiler::MemoryReport memory;
  std::vector<PassRecord> passes;
  std::vector<machine::Figure> figures;  ///< figures of the machine, with their sources
};

/// Maximum number of executions that are kept one by one.
inline constexpr size_t kMostRuns = 20'000;

enum class Times : uint8_t { measured, accounted };

/// The chips of a predicted run, replica by replica; and the links that it used. Empty for a machine of one
/// chip.
std::vector<ChipSummary> chips_of(const compiler::Executable& executable, const engine::Profile& profile);
std::vector<LinkSummary> links_of(const compiler::Executable& executable, const engine::Profile& profile);

/// Summarises a run by measured times, or by times predicted from the machine's costs. `profile` and `trace`
/// are empty for a program that was not run.
RunSummary summarize(const compiler::Executable& executable, const engine::Profile& profile,
                     const std::vector<engine::TraceEvent>& trace, Times times);

}  // namespace tessera::report
