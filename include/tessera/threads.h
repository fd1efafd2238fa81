// The threads that compute, in a process where another library has threads too.
#pragma once

namespace tessera {

/// Functions of an OpenMP runtime with GNU's interface.
struct OpenMpRuntime {
  using Body = void (*)(void* argument);
  void (*parallel)(Body body, void* argument, unsigned threads, unsigned flags) = nullptr;  ///< GOMP_parallel
  int (*thread_number)() = nullptr;  ///< omp_get_thread_num
  int (*team_size)() = nullptr;      ///< omp_get_num_threads
};

/// Computes on the threads of a runtime that another library of this process uses, such as PyTorch, instead
/// of on own ones: idle threads of either spin for a while, on the cores that the other needs. Where the
/// runtime grants fewer threads than asked for (within a parallel region), and in a forked child, own threads
/// compute. Without functions: own threads again. Must not be called while products run.
void use_openmp(const OpenMpRuntime& runtime);

}  // namespace tessera
