// Codelets: the code of vertices. A family in kernels/ lists its codelets; programs refer to them.
#pragma once

#include <tessera/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera::machine {
struct Machine;
}

namespace tessera::program {

enum class Access : uint8_t { in, out, inout };

/// The activity of a tile. Profiles and cost reports split time by phase.
enum class Phase : uint8_t { rearrange, compute, reduce, exchange, sync, control };
inline constexpr size_t kPhases = 6;
std::string_view name_of(Phase phase);

/// Cycles (or seconds) by phase.
struct PhaseTimes {
  std::array<double, kPhases> at{};

  double& operator[](Phase phase) { return at[static_cast<size_t>(phase)]; }
  double operator[](Phase phase) const { return at[static_cast<size_t>(phase)]; }
  double total() const {
    double sum = 0;
    for (double x : at) sum += x;
    return sum;
  }
  PhaseTimes& operator+=(const PhaseTimes& other) {
    for (size_t i = 0; i < kPhases; ++i) at[i] += other.at[i];
    return *this;
  }
  PhaseTimes scaled(double factor) const {
    PhaseTimes out = *this;
    for (double& x : out.at) x *= factor;
    return out;
  }
};

/// The requirements of a codelet on one of its fields.
struct FieldSpec {
  std::string_view name;
  Access access = Access::in;
  uint8_t alignment = 4;  ///< in bytes, where the compiler chooses the address; a box at another address on
                          ///< its tile is copied if this is more than 4
  bool interleaved = false;  ///< must be in the tile memory's interleaved region
  bool optional = false;     ///< may be empty
  bool scratch = false;      ///< has no contents before and after the vertex
  bool scattered = false;    ///< vertices of a group that have the same box write it together, each only the
                             ///< elements that its index assigns to it; the codelet guarantees this
  uint8_t over_read = 0;     ///< bytes after its end that the codelet may read on a tile
  bool costed = false;       ///< integers that the cost of a vertex on a tile reads; of others it knows only
                             ///< the shape
};

/// One field of one vertex, in place. data is null in a dry run unless the variable is integer
/// metadata that is known by then.
struct FieldView {
  std::byte* data = nullptr;
  Type type = Type::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  int64_t row_stride = 0;  ///< elements
  int64_t col_stride = 1;  ///< elements

  bool empty() const { return rows == 0 || cols == 0; }
  uint64_t elements() const { return uint64_t{rows} * cols; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
  template <class T>
  MatrixView<T> matrix() const {
    return {as<T>(), row_stride, col_stride};
  }
};

/// Splits the time of a running vertex over phases. A vertex that does not call it spends all its
/// time in the phase of its compute set.
class PhaseClock {
 public:
  virtual ~PhaseClock() = default;
  virtual void enter(Phase phase) = 0;
};

/// Enters a phase, if there is a clock.
inline void enter(PhaseClock* clock, Phase phase) {
  if (clock != nullptr) clock->enter(phase);
}

/// Threads of a host that have finished their own vertices of a superstep and help other threads with theirs:
/// cores of the same clock rate are rarely equally fast, because of what else runs on them.
class Helpers {
 public:
  using Job = void (*)(const void* context, uint32_t i, std::byte* scratch);

  virtual ~Helpers() = default;
  /// Calls job(context, i, scratch) once for each i < count, on any helping thread, and returns when all are
  /// done. `scratch` belongs to that thread: the vertex's own field, or one of the same size.
  virtual void share(uint32_t count, Job job, const void* context) = 0;
};

/// Calls job(i, scratch) once for each i < count: on all helpers, or without helpers with `scratch`.
template <class Work>
void share_work(Helpers* helpers, uint32_t count, void* scratch, const Work& work) {
  if (helpers != nullptr && count > 1)
    return helpers->share(
        count,
        [](const void* context, uint32_t i, std::byte* of_thread) {
          (*static_cast<const Work*>(context))(i, of_thread);
        },
        &work);
  for (uint32_t i = 0; i < count; ++i) work(i, static_cast<std::byte*>(scratch));
}

/// A vertex as its codelet sees it.
struct Vertex {
  std::span<const FieldView> fields;  ///< in the order of the codelet's specifications
  std::span<const int64_t> params;    ///< in the order of the codelet's parameter names
  PhaseClock* clock = nullptr;        ///< null outside a run
  Helpers* helpers = nullptr;         ///< null: no thread can help

  void enter(Phase phase) const { program::enter(clock, phase); }
};

/// How a codelet uses the workers of its tile.
enum class Workers : uint8_t {
  whole_tile,     ///< splits itself over them; vertices of a tile run one after another
  single_worker,  ///< vertices are dealt to workers round-robin; a tile takes workers × its longest worker
};

/// Machines that a codelet is written for. On hosts a vertex may access whole arrays of the shared space; on
/// tiles only data on its own tile.
enum class RunsOn : uint8_t { any, hosts, tiles };

using RunVertex = void (*)(const Vertex&);

/// Cycles of one vertex: of the tile for a whole-tile codelet, of its worker for a single-worker
/// one. May read sizes, parameters and integer metadata, never floating-point payload; on tiles only the
/// integers of costed fields.
using VertexCost = PhaseTimes (*)(const Vertex&, const machine::Machine&);

/// Maximum numbers of fields and parameters of a codelet.
inline constexpr size_t kMaxFields = 16;
inline constexpr size_t kMaxParams = 16;

/// The code of vertices. Every codelet has a reference implementation and a cost.
struct Codelet {
  std::string_view name;
  Workers workers = Workers::whole_tile;
  std::span<const FieldSpec> fields;
  std::span<const std::string_view> params;
  RunVertex reference = nullptr;  ///< straightforward and readable implementation
  RunVertex simd = nullptr;       ///< fast implementation, dispatched to the active instruction set; null:
                                  ///< the reference
  VertexCost cost = nullptr;
  uint32_t code_bytes = 0;   ///< code size on a tile that runs it
  uint32_t stack_bytes = 0;  ///< of the arrays of a tile's workers, beside the stacks that all tiles have
  RunsOn runs_on = RunsOn::any;
  bool integer_only = false;  ///< touches no floating-point payload, so that dry runs execute it
};

}  // namespace tessera::program
