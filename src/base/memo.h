// Results that a process computes once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <list>
#include <mutex>
#include <utility>

namespace tessera::base {

/// Caches the last results of a function, each with a key of everything that it depends on. Threads may share
/// it.
template <class Key, class Result>
class Memo {
 public:
  explicit Memo(size_t most) : most_(most) {}

  /// The result with an equal key, or the result of make().
  template <class Make>
  Result get(Key key, const Make& make) {
    {
      const std::lock_guard lock(mutex_);
      const auto found =
          std::ranges::find_if(results_, [&](const auto& known) { return known.first == key; });
      if (found != results_.end()) {
        results_.splice(results_.begin(), results_, found);
        return found->second;
      }
    }
    Result made = make();
    const std::lock_guard lock(mutex_);
    results_.emplace_front(std::move(key), made);
    if (results_.size() > most_) results_.pop_back();
    return made;
  }

 private:
  size_t most_;
  std::mutex mutex_;
  std::list<std::pair<Key, Result>> results_;  ///< most recently used first
};

}  // namespace tessera::base
