// The threads of a superstep. Those that are done with their own vertices help the others.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "engine/thread_clock.h"
#include "program/program.h"

namespace tessera::engine {

/// One of them: what it offers while a vertex of its own shares work, and how it joins what others
/// offer. Who computes a part does not change its bits.
class SharingThread final : public program::Helpers {
 public:
  ThreadClock clock;  ///< does not run where nobody asks for times

  /// The vertex about to run: its group and its scratch, which is free again once it has run. Vertices
  /// of one group lend each other threads, for their scratch is equally large.
  void take(const program::VertexGroup& group, std::byte* scratch) {
    group_ = &group;
    scratch_ = scratch;
  }

  /// Before its part of a superstep.
  void reset(bool is_timed) {
    group_ = nullptr;
    is_timed_ = is_timed;
  }

  void share(uint32_t count, Job job, const void* context) override;

  /// Takes part in what `owner` shares at the moment, until it is all taken; tells whether it did.
  bool help(SharingThread& owner);

  void enter(program::Phase phase) {
    if (is_timed_) clock.enter(phase);
  }

 private:
  void work_on(SharingThread& owner);

  const program::VertexGroup* group_ = nullptr;
  std::byte* scratch_ = nullptr;
  bool is_timed_ = true;
  // What it shares: constant while it is open or somebody helps.
  Job job_ = nullptr;
  const void* context_ = nullptr;
  uint32_t count_ = 0;
  program::Phase phase_ = program::Phase::compute;
  alignas(64) std::atomic<bool> open_{false};  // looked at by all who are idle
  alignas(64) std::atomic<uint32_t> next_{0};
  std::atomic<uint32_t> helpers_{0};
};

/// The threads of one run, superstep by superstep.
class WorkSharing {
 public:
  /// Room for so many threads; between supersteps only.
  void reserve(uint32_t threads);

  SharingThread& operator[](uint32_t thread) { return members_[thread]; }

  /// Before a superstep of so many threads, whose clocks run where it is timed.
  void start(uint32_t threads, bool is_timed = true);

  /// One thread's part of it: its own vertices, and those of others until all are done. With
  /// `helps` false it leaves after its own.
  template <class Vertices>
  void run(uint32_t thread, bool helps, const Vertices& vertices) {
    members_[thread].reset(is_timed_);
    {
      const Working working{working_};
      vertices(members_[thread]);
    }
    if (helps) help_others(thread);
  }

 private:
  /// Counts a thread out when its own vertices are done, or one of them threw.
  struct Working {
    std::atomic<uint32_t>& count;
    ~Working() { count.fetch_sub(1, std::memory_order_release); }
  };

  void help_others(uint32_t thread);

  std::unique_ptr<SharingThread[]> members_;
  uint32_t room_ = 0;
  uint32_t threads_ = 0;
  bool is_timed_ = true;
  alignas(64) std::atomic<uint32_t> working_{0};
};

}  // namespace tessera::engine
