// Accesses to storage, from which lifetimes follow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "compiler/function_steps.h"
#include "program/program.h"

namespace tessera::compiler {

/// Something that accesses storage: a compute set, a copy set, a collective, or a step of control flow that
/// reads, writes or passes a variable.
using ToucherId = uint32_t;

/// Numbers the touchers of a program.
class Touchers {
 public:
  explicit Touchers(const program::Program& program);

  ToucherId of_set(program::ComputeSetId id) const { return id; }
  ToucherId of_copy(program::CopySetId id) const { return first_copy_ + id; }
  ToucherId of_collective(program::CollectiveId id) const { return first_collective_ + id; }
  ToucherId of_control(program::StepId id) const { return first_of_step_[id]; }
  /// The toucher of a step's end: a collective and a copy, beside which something runs, touch what they fill
  /// when they begin and when they end, so that it is alive in between.
  ToucherId of_end(program::StepId step) const { return of_control(step) + 1; }
  /// A call at a bound of its function's steps, where it touches operands.
  ToucherId of_bound(program::StepId call, uint32_t bound) const { return of_control(call) + bound; }
  const FunctionSteps& function(program::FunctionId id) const { return functions_[id]; }
  size_t count() const { return first_of_step_.back(); }

 private:
  const ToucherId first_copy_;
  const ToucherId first_collective_;
  const std::vector<FunctionSteps> functions_;
  std::vector<ToucherId> first_of_step_;  ///< by step; then the number of all touchers
};

/// How a toucher uses a piece of storage. With neither flag, the piece has no contents before and after.
struct Touch {
  bool reads = false;   ///< reads the previous contents
  bool writes = false;  ///< leaves contents
  bool whole = false;   ///< overwrites all contents
  bool operator==(const Touch&) const = default;
};

/// The touches of one piece of storage: a chain, last one first. Storage that the same touchers use in the
/// same way shares a chain, and thus a lifetime; there are few chains, however many pieces.
using TouchChain = uint32_t;
inline constexpr TouchChain kUntouched = 0;

class TouchChains {
 public:
  struct Link {
    TouchChain before = kUntouched;
    ToucherId toucher = 0;
    Touch touch;
  };

  /// `chain` extended by one touch. Each toucher adds at most one to a chain.
  TouchChain extended(TouchChain chain, ToucherId toucher, Touch touch) {
    const uint64_t how = touch.reads | touch.writes << 1 | touch.whole << 2;
    const auto [it, is_new] =
        known_.try_emplace(Key{uint64_t{chain} << 32 | toucher, how}, static_cast<TouchChain>(links_.size()));
    if (is_new) links_.push_back({chain, toucher, touch});
    return it->second;
  }
  const Link& operator[](TouchChain chain) const { return links_[chain]; }
  size_t size() const { return links_.size(); }

 private:
  struct Key {
    uint64_t where;
    uint64_t how;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      const uint64_t mixed = (key.where ^ key.how << 61) * 0x9E3779B97F4A7C15;
      return mixed ^ mixed >> 32;
    }
  };

  std::vector<Link> links_ = std::vector<Link>(1);
  std::unordered_map<Key, TouchChain, Hash> known_;
};

/// Collects the accesses of one toucher to many pieces of storage, then adds a touch to each piece's chain.
class TouchLog {
 public:
  void read(uint32_t storage) { entry(storage).reads = true; }
  /// Writes `elements` elements that no other write of this toucher covers.
  void write(uint32_t storage, uint64_t elements) {
    Entry& e = entry(storage);
    e.writes = true;
    e.written += elements;
  }
  /// Uses storage privately, without contents before and after.
  void use(uint32_t storage) { entry(storage); }

  /// Calls add(storage, touch) for all touched storage, and clears the log. elements_of(storage) is its size.
  template <class ElementsOf, class Add>
  void close(const ElementsOf& elements_of, const Add& add) {
    for (const uint32_t storage : touched_) {
      Entry& e = entries_[storage];
      add(storage, Touch{e.reads, e.writes, e.writes && e.written >= elements_of(storage)});
      e = {};
    }
    touched_.clear();
  }

 private:
  struct Entry {
    uint64_t written = 0;
    bool is_touched = false;
    bool reads = false;
    bool writes = false;
  };

  Entry& entry(uint32_t storage) {
    if (storage >= entries_.size()) entries_.resize(std::max<size_t>(storage + 1, entries_.size() * 2));
    Entry& e = entries_[storage];
    if (!e.is_touched) {
      e.is_touched = true;
      touched_.push_back(storage);
    }
    return e;
  }

  std::vector<Entry> entries_;
  std::vector<uint32_t> touched_;
};

}  // namespace tessera::compiler
