// Packing a stream of sequences as they come, in bounded memory.
#pragma once

#include <tessera/pack_index.h>

#include <cstdint>
#include <memory>
#include <span>

namespace tessera::pack {

/// Some tokens of a sequence in a pack.
struct Entry {
  uint64_t sequence = 0;  ///< its number in the stream
  uint64_t begin = 0;     ///< first of its tokens; 0 unless it is split
  uint32_t length = 0;    ///< tokens
  uint32_t start = 0;     ///< where they begin in the pack
  bool operator==(const Entry&) const = default;
};

struct StreamOptions {
  uint32_t max_length = 0;    ///< L, tokens of a pack
  uint32_t window = 1000;     ///< W, pieces that wait for others at most
  uint32_t max_per_pack = 0;  ///< D; 0: any number
  TooLong policy = TooLong::error;
};

/// Holds a window of pieces. When it is full, packs close until a quarter is left: each begins with
/// the longest piece, then takes what fills it best, looking two pieces ahead (of equally long ones
/// the first that came). Every sequence is in exactly one pack; the same stream gives the same
/// packs. Memory: a few words for each piece of the window and each length up to the maximum.
class StreamPacker {
 public:
  /// Throws UsageError for a maximum of 0 or above 2^28, or a window of 0 or above 2^28.
  explicit StreamPacker(const StreamOptions& options);
  ~StreamPacker();
  StreamPacker(StreamPacker&&) noexcept;
  StreamPacker& operator=(StreamPacker&&) noexcept;

  /// Takes the next sequence, number 0, 1, … Packs that close are then to be had from next(). Throws
  /// Error for a length of 0, or one above the maximum where the policy is error.
  void push(uint64_t length);

  /// The next pack that is closed, in descending order of lengths; empty where there is none. It is
  /// good until the next call.
  std::span<const Entry> next();

  /// Closes all packs: the stream is at its end.
  void finish();

  /// What was pushed so far: sequences, tokens, those too long. Its histogram is not kept.
  const Input& seen() const;

 private:
  class Window;
  std::unique_ptr<Window> window_;
};

}  // namespace tessera::pack
