// Values that are made when they are first asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

namespace tessera::base {

/// A few values by number. Several threads may ask at once: values that exist already are found without a
/// lock.
template <class Made>
class OnDemand {
 public:
  OnDemand() = default;
  OnDemand(const OnDemand&) = delete;
  OnDemand& operator=(const OnDemand&) = delete;
  ~OnDemand() {
    for (Entry* entry = latest_; entry != nullptr;) delete std::exchange(entry, entry->before);
  }

  /// The value of `key`, which make() returns the first time.
  template <class Make>
  const Made& at(uint64_t key, const Make& make) const {
    if (const Made* made = find(key)) return *made;
    const std::lock_guard lock(mutex_);
    if (const Made* made = find(key)) return *made;
    auto* entry = new Entry{key, latest_.load(std::memory_order_relaxed), make()};
    latest_.store(entry, std::memory_order_release);
    return entry->made;
  }

  /// The value of `key`; null if it was never asked for.
  const Made* find(uint64_t key) const {
    for (const Entry* entry = latest_.load(std::memory_order_acquire); entry != nullptr;
         entry = entry->before)
      if (entry->key == key) return &entry->made;
    return nullptr;
  }

 private:
  struct Entry {
    uint64_t key;
    Entry* before;
    Made made;
  };

  mutable std::mutex mutex_;
  mutable std::atomic<Entry*> latest_{nullptr};
};

}  // namespace tessera::base
