// Lookup of transfers.
#pragma once

#include <algorithm>
#include <span>
#include <tuple>
#include <vector>

#include "compiler/executable.h"

namespace tessera::compiler {

/// Finds transfers. Most are requested in their order; the list is sorted only if they are not.
class TransferList {
  static auto key_of(const Transfer& t) {
    return std::tuple(t.to.space, t.to.offset, t.from.space, t.from.offset, t.rows, t.cols);
  }

 public:
  void reset(const std::vector<Transfer>& transfers) {
    transfers_ = transfers;
    next_ = 0;
    sorted_.clear();
  }

  bool has(const BoxAddress& from, const BoxAddress& to, const program::Box& shape) {
    const Transfer wanted{from, to, shape.rows, shape.cols, {}, kNoRuntimeRow};
    if (next_ < transfers_.size() && same(transfers_[next_], wanted)) {
      ++next_;
      return true;
    }
    if (sorted_.empty()) sort();
    const auto it =
        std::lower_bound(sorted_.begin(), sorted_.end(), wanted,
                         [](const Transfer* a, const Transfer& b) { return key_of(*a) < key_of(b); });
    if (it == sorted_.end() || !same(**it, wanted)) return false;
    next_ = static_cast<size_t>(*it - transfers_.data()) + 1;
    return true;
  }

 private:
  static bool same(const Transfer& a, const Transfer& b) {
    return a.from == b.from && a.to == b.to && a.rows == b.rows && a.cols == b.cols;
  }
  void sort() {
    sorted_.reserve(transfers_.size());
    for (const Transfer& t : transfers_) sorted_.push_back(&t);
    std::sort(sorted_.begin(), sorted_.end(),
              [](const Transfer* a, const Transfer* b) { return key_of(*a) < key_of(*b); });
  }

  std::span<const Transfer> transfers_;
  size_t next_ = 0;
  std::vector<const Transfer*> sorted_;  ///< by target, once needed
};

}  // namespace tessera::compiler
