// The cost of a run of a graph: time, cycles and memory.
#pragma once

#include <tessera/pass_record.h>
#include <tessera/pipeline_actions.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::graph {

/// What an operation does; seconds_by_kind() sums times over it.
enum class OperationKind : uint8_t { product, convolution, attention, elementwise, call, other };
/// "products", "convolutions", …
std::string_view name_of(OperationKind kind);

/// Cost of an operation in one run.
struct OperationCost {
  std::string operation;
  std::string value;  ///< the operation's first output
  double seconds = 0;
  double conversion_seconds = 0;         ///< part of `seconds` for conversions between layouts
  std::map<std::string, double> cycles;  ///< by phase
  OperationKind kind = OperationKind::other;
};

/// Seconds of all operations of a kind, or of all conversions between layouts.
struct KindCost {
  std::string kind;
  double seconds = 0;
};

/// A value that the program converts from one layout to another.
struct ConversionCost {
  std::string value;
  uint64_t bytes = 0;
  double seconds = 0;
};

/// Time and memory of one chip of several.
struct ChipCost {
  uint32_t chip = 0;
  std::map<std::string, double> cycles;  ///< by phase, until it finishes; waiting for other chips is "sync"
  uint64_t bytes = 0;                    ///< bytes in use of all its tiles
  uint64_t streaming_bytes = 0;          ///< bytes in use of the chip's streaming memory
};

/// One activity of a chip, with its begin and end in cycles since the run began.
struct ChipSpan {
  enum class Kind : uint8_t {
    forward,     ///< passes of a micro-batch through a stage
    recomputed,  ///< a forward pass that is computed again, before the backward pass
    backward,
    backward_input,  ///< gradients of inputs, and of weights, in passes of their own
    backward_weight,
    exchange,    ///< between stages; `stage` is the one whose result is sent
    collective,  ///< exchange between replicas, such as the sum of gradients
    other,       ///< work for all micro-batches, such as updates
    waiting,
  };
  Kind kind = Kind::other;
  uint32_t stage = 0;  ///< for passes and exchanges, like the micro-batch
  uint32_t micro_batch = 0;
  double begin = 0;
  double end = 0;

  bool operator==(const ChipSpan&) const = default;
};
std::string_view name_of(ChipSpan::Kind kind);

/// The activities of a chip from the beginning of a run to its end, without gaps.
struct ChipLane {
  uint32_t chip = 0;
  std::vector<ChipSpan> spans;
};

/// The traffic in one direction of a link between chips.
struct LinkCost {
  uint32_t from = 0;
  uint32_t to = 0;
  uint64_t bytes = 0;
  double seconds = 0;  ///< time in which the link carries the bytes
};

/// Transfers over the links between a modelled machine and its hosts in a run: all inputs at its beginning
/// and all outputs at its end, each as one transfer with which nothing overlaps. Several hosts divide the
/// bytes.
struct HostIoCost {
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  double seconds = 0;
};

/// A way to place a network on a machine of several chips.
struct PlacementCost {
  std::string placement;  ///< "1 of 4 chips", "2 stages of whole layers on as many chips", "4 chips as one"
  double seconds = 0;
  std::string overflow;  ///< empty: it fits
  bool chosen = false;
};

/// When a value is alive: from the operation that computes it to the last one that reads it, by their
/// position in RunCost::operations.
struct Lifetime {
  std::string value;
  uint64_t bytes = 0;
  size_t first = 0;
  size_t last = 0;
};

/// Time and memory of a run: predicted on a host, the model's on a tiled machine.
struct RunCost {
  double seconds = 0;
  std::map<std::string, double> cycles;  ///< by phase
  /// Transfers from and to the host, if they were asked for (SessionOptions::host_io): `seconds` includes
  /// them, and so does `cycles`, as the phase "host"; costs of operations, chips, lanes and placements do
  /// not.
  std::optional<HostIoCost> host_io = {};
  /// Cycles of the average tile as a fraction of the slowest tile's cycles, over all compute sets: 1 if all
  /// tiles are equally busy. Costs that depend on data, such as spikes, count with their expected values.
  double balance = 0;
  std::vector<OperationCost> operations;
  std::vector<OperationCost> in_functions;  ///< operations in functions, over all calls; `operations` counts
                                            ///< these costs with the first call
  std::vector<ConversionCost> conversions;
  /// Lifetimes of all results; inputs, parameters and state are always alive.
  std::vector<Lifetime> lifetimes;
  std::map<std::string, uint64_t> bytes;  ///< bytes of data, by purpose: "parameter", "stash", …; temporaries
                                          ///< at the step at which they take the most
  uint64_t total_bytes = 0;
  uint64_t fullest_tile_bytes = 0;
  uint64_t tile_bytes = 0;  ///< memory of a tile
  /// Bytes in use of the streaming memory of all chips, which total_bytes does not include.
  uint64_t streaming_bytes = 0;
  std::string overflow;  ///< what does not fit, and what to change; empty: everything fits
  /// Bytes of each tile by purpose; "other" is code, vertex state, stacks and padding. A host has one tile.
  std::vector<std::map<std::string, uint64_t>> tiles;
  // For machines of several chips; bytes and tiles are the first replica's.
  std::vector<ChipCost> chips;
  std::vector<LinkCost> links;
  /// The first replica's lanes, if micro-batches go through stages on several chips.
  std::vector<ChipLane> lanes;
  /// With lanes: the times at which data of collectives goes over links, while the lanes may show other
  /// activities.
  std::vector<ChipSpan> under_way;
  /// The actions of the chips of a replica, or of the parts of a host, in a pipeline that is not Pipeline{}:
  /// passes, exchanges between them, and sums of gradients.
  std::optional<ActionList> actions = {};
  /// The placements considered for a graph without stages and replicas.
  std::vector<PlacementCost> placements;
  std::vector<PassRecord> passes;  ///< the passes that made the program, in order
  /// Bytes that a rank sends to others, in messages as its communicator gets them: counted in a measured run,
  /// otherwise predicted from the layout of the messages. 0 unless ranks divide the replicas or their stages.
  /// With stages, the prediction holds for the next run, without messages that depend on conditions.
  uint64_t sent_bytes = 0;

  double seconds_without_host_io() const { return seconds - (host_io ? host_io->seconds : 0); }
};

/// Where the time of the operations goes, by kind, the kind that takes longest first: "products",
/// "attention", …, and "conversions of layouts", whose time the other kinds do not include. Operations in
/// functions count under their own kinds.
std::vector<KindCost> seconds_by_kind(const RunCost& cost);

}  // namespace tessera::graph
