// Serialisation of structures: one description of each structure serves both directions.
#pragma once

#include <fmt/format.h>
#include <tessera/error.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "program/codelet.h"

namespace tessera::compiler {

/// The last enumerator of an enumeration in files.
template <class Enum>
inline constexpr Enum kLast{};

/// Writes the members of a structure that describe(archive, x) lists, in the host's byte order.
class Writer {
 public:
  static constexpr bool kReads = false;

  template <class... Parts>
  void operator()(Parts&... parts) {
    (one(parts), ...);
  }

  void raw(const void* from, size_t bytes) {
    const size_t at = bytes_.size();
    bytes_.resize(at + bytes);
    if (bytes != 0) std::memcpy(&bytes_[at], from, bytes);
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> release() && { return std::move(bytes_); }

  /// Row lists shared by several copies are written once.
  std::map<const void*, uint32_t> shared_lists;

 private:
  template <class T>
  void one(T& x) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>)
      raw(&x, sizeof(x));
    else
      describe(*this, x);
  }

  std::vector<std::byte> bytes_;
};

/// Reads the output of a Writer, which may be damaged. Throws Error if the data ends early or a number is
/// invalid for its type.
class Reader {
 public:
  static constexpr bool kReads = true;
  using FindCodelet = const program::Codelet* (*)(std::string_view name);

  Reader(std::span<const std::byte> bytes, FindCodelet find) : find_codelet(find), bytes_(bytes) {}

  template <class... Parts>
  void operator()(Parts&... parts) {
    (one(parts), ...);
  }

  void raw(void* to, size_t bytes) {
    require(bytes);
    if (bytes != 0) std::memcpy(to, &bytes_[at_], bytes);
    at_ += bytes;
  }
  void require(uint64_t bytes) const {
    if (bytes > bytes_.size() - at_)
      throw Error(fmt::format("it ends early: {} bytes of {} are left", bytes_.size() - at_, bytes));
  }
  bool at_end() const { return at_ == bytes_.size(); }
  /// The bytes that are left.
  std::span<const std::byte> rest() const { return bytes_.subspan(at_); }
  /// Whether these bytes come next; skips them if so.
  bool skip(std::span<const std::byte> expected) {
    if (expected.size() > rest().size()) return false;
    if (!expected.empty() && std::memcmp(rest().data(), expected.data(), expected.size()) != 0) return false;
    at_ += expected.size();
    return true;
  }

  const FindCodelet find_codelet;
  std::vector<std::shared_ptr<const std::vector<uint32_t>>> shared_lists;

 private:
  template <class T>
  void one(T& x) {
    if constexpr (std::is_same_v<T, bool>) {
      uint8_t byte = 0;
      raw(&byte, 1);
      x = byte != 0;
    } else if constexpr (std::is_enum_v<T>) {
      raw(&x, sizeof(x));
      if (x > kLast<T>)
        throw Error(fmt::format("it has a number {} that means nothing", static_cast<uint64_t>(x)));
    } else if constexpr (std::is_arithmetic_v<T>) {
      raw(&x, sizeof(x));
    } else {
      describe(*this, x);
    }
  }

  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

template <class Archive, class T>
void describe(Archive& a, std::vector<T>& list) {
  uint64_t count = list.size();
  a(count);
  if constexpr (std::is_arithmetic_v<T>) {
    if constexpr (Archive::kReads) {
      if (count > SIZE_MAX / sizeof(T)) throw Error("it has a list longer than memory");
      a.require(count * sizeof(T));
      list.resize(count);
    }
    a.raw(list.data(), count * sizeof(T));
  } else if constexpr (Archive::kReads) {
    a.require(count);  // an element takes at least a byte, so a false count cannot allocate memory
    list.clear();
    for (uint64_t i = 0; i < count; ++i) a(list.emplace_back());
  } else {
    for (T& x : list) a(x);
  }
}

template <class Archive>
void describe(Archive& a, std::string& text) {
  uint64_t size = text.size();
  a(size);
  if constexpr (Archive::kReads) {
    a.require(size);
    text.resize(size);
  }
  a.raw(text.data(), size);
}

template <class Archive, class T, size_t N>
void describe(Archive& a, std::array<T, N>& list) {
  for (T& x : list) a(x);
}

template <class Archive, class T>
void describe(Archive& a, std::optional<T>& maybe) {
  bool has = maybe.has_value();
  a(has);
  if constexpr (Archive::kReads) {
    maybe.reset();
    if (has) maybe = T{};  // emplace() asks what clang knows only once the class around T ends
  }
  if (has) a(*maybe);
}

template <class Archive, class K, class V>
void describe(Archive& a, std::map<K, V>& map) {
  uint64_t count = map.size();
  a(count);
  if constexpr (Archive::kReads) {
    a.require(count);
    map.clear();
    for (uint64_t i = 0; i < count; ++i) {
      std::pair<K, V> entry;
      a(entry.first, entry.second);
      map.insert(std::move(entry));
    }
  } else {
    for (auto& [key, value] : map) {
      K copy = key;
      a(copy, value);
    }
  }
}

/// A list of rows, or a reference to a list that was written before.
template <class Archive>
void describe(Archive& a, std::shared_ptr<const std::vector<uint32_t>>& x) {
  uint32_t id = 0;  // 0: none
  if constexpr (Archive::kReads) {
    a(id);
    if (id > a.shared_lists.size() + 1) throw Error(fmt::format("it has no list of rows {}", id));
    if (id == a.shared_lists.size() + 1) {
      auto list = std::make_shared<std::vector<uint32_t>>();
      a(*list);
      a.shared_lists.push_back(std::move(list));
    }
    x = id == 0 ? nullptr : a.shared_lists[id - 1];
  } else {
    const auto next = static_cast<uint32_t>(a.shared_lists.size() + 1);
    if (x != nullptr) id = a.shared_lists.try_emplace(x.get(), next).first->second;
    a(id);
    if (id == next) a(const_cast<std::vector<uint32_t>&>(*x));
  }
}
/// The alternative's position, then the alternative.
template <class Archive, class... Alternatives>
void describe(Archive& a, std::variant<Alternatives...>& x) {
  auto index = static_cast<uint8_t>(x.index());
  a(index);
  if constexpr (Archive::kReads) {
    uint8_t i = 0;
    if (!((i++ == index ? (x.template emplace<Alternatives>(), true) : false) || ...))
      throw Error(fmt::format("it has a step of kind {}", index));
  }
  std::visit([&](auto& alternative) { a(alternative); }, x);
}

}  // namespace tessera::compiler
