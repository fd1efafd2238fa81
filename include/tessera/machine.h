// Machines for which programs are planned: the host, which is the CPU that this process runs on, or a
// modelled tiled machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera {

namespace machine {
struct Machine;
}

/// The number of threads for products and conversions that are given no number: the number set by
/// set_default_threads(), or TESSERA_THREADS, or one thread per physical core available to this process.
uint32_t default_threads();

/// Sets default_threads(), at most 4096; 0 restores the initial number. Products that are planned already
/// keep their threads. Throws UsageError for more than 4096.
void set_default_threads(uint32_t threads);

/// Functions of an OpenMP runtime with GNU's interface.
struct OpenMpRuntime {
  using Body = void (*)(void* argument);
  void (*parallel)(Body body, void* argument, unsigned threads, unsigned flags) = nullptr;  ///< GOMP_parallel
  int (*thread_number)() = nullptr;  ///< omp_get_thread_num
  int (*team_size)() = nullptr;      ///< omp_get_num_threads
};

/// Computes on the threads of a runtime that another library of this process uses, such as PyTorch, instead
/// of on the library's own threads: idle threads of either library spin for a while, on cores that the other
/// library needs. Where the runtime grants fewer threads than asked for (within a parallel region), and in a
/// forked child, the library's own threads compute. A runtime without functions restores the library's own
/// threads. Must not be called while products run.
void use_openmp(const OpenMpRuntime& runtime);

/// A machine: tiles, their memory, and the cost of their work.
class Machine {
 public:
  /// The host, with one tile per physical core, or with `threads` tiles.
  static Machine host(uint32_t threads = 0);

  /// "host", the name of a built-in machine, or a TOML file (docs/machines.md). Throws UsageError for any
  /// other name; Error, naming file, key and value, for an invalid file.
  static Machine find(const std::string& name, uint32_t threads = 0);

  /// The built-in machines, oldest first.
  static std::vector<std::string> builtin_names();

  /// A copy of the machine with one figure changed. The key may be abbreviated if it stays unambiguous.
  /// Throws UsageError for an unknown key, a value out of range, and for the host, whose figures are facts.
  Machine with(const std::string& key, double value) const;

  std::string name() const;
  bool is_host() const;
  uint32_t tiles() const;       ///< total over all chips
  uint32_t chips() const;       ///< chips of a modelled machine; 1 for a host
  uint64_t tile_bytes() const;  ///< size of one tile's memory; 0 on a host
  double clock_hz() const;

  /// The library's internal form of the machine, and a machine made from it.
  const machine::Machine& model() const { return *model_; }
  explicit Machine(machine::Machine model);

 private:
  std::shared_ptr<const machine::Machine> model_;
};

}  // namespace tessera
