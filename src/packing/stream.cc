#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/packing.h>

#include <vector>

#include "base/memory.h"
#include "packing/counter.h"
#include "packing/greedy.h"
#include "packing/length_set.h"

namespace tessera::pack {
namespace {

constexpr uint32_t kMostPieces = uint32_t{1} << 28;
constexpr uint32_t kNone = UINT32_MAX;
constexpr int kPairsTried = 8;  // more would fill this pack better, but use up pieces that fill later packs

}  // namespace

class StreamPacker::Window {
 public:
  explicit Window(const StreamOptions& options)
      : options_(options),
        counter_(options.max_length, options.overlong),
        by_room_(options.max_length),
        queues_(uint64_t{options.max_length} + 1),
        most_(depth_limit(options.max_per_pack)) {
    if (options.window == 0 || options.window > kMostPieces) {
      throw UsageError(
          fmt::format("a window of {} sequences; it holds 1 to {}", options.window, kMostPieces));
    }
    base::require_memory(uint64_t{options.window} * sizeof(Piece), "a window of sequences");
  }

  void push(uint64_t length) {
    if (whole_left_ > 0 || held_ >= options_.window) {
      throw UsageError("the window is full; take the closed packs before pushing the next sequence");
    }
    const uint64_t sequence = sequences_++;
    if (length == 0) throw Error(fmt::format("sequence {}: a sequence has 1 token at least", sequence));
    if (!counter_.add(length, 1))
      throw Error(fmt::format("sequence {}: {}", sequence, overlong_text(length, options_.max_length)));
    if (length <= options_.max_length) {
      insert(sequence, 0, static_cast<uint32_t>(length));
    } else if (options_.overlong == Overlong::truncate) {
      insert(sequence, 0, options_.max_length);
    } else if (options_.overlong == Overlong::split) {
      whole_left_ = length / options_.max_length;
      whole_ = {sequence, 0, options_.max_length, 0};
      if (const uint64_t rest = length % options_.max_length; rest != 0)
        insert(sequence, length - rest, static_cast<uint32_t>(rest));
    }
    if (held_ == options_.window) closing_ = true;
  }

  std::span<const Entry> next() {
    pack_.clear();
    if (whole_left_ > 0) {
      pack_.push_back(whole_);
      whole_.begin += options_.max_length;
      --whole_left_;
      return pack_;
    }
    if (held_ <= (finished_ ? 0 : options_.window / 4)) closing_ = false;
    if (closing_) close();
    return pack_;
  }

  void finish() { finished_ = closing_ = true; }

  const Input& seen() const { return counter_.so_far(); }

 private:
  struct Piece {
    uint64_t sequence;
    uint64_t begin;
    uint32_t after;  // the next one of this length to have arrived, or the next free one
  };

  /// Pieces of one length in order of arrival.
  struct Queue {
    uint32_t first = kNone;
    uint32_t last = kNone;
  };

  void insert(uint64_t sequence, uint64_t begin, uint32_t length) {
    uint32_t at = free_;
    if (at == kNone) {
      at = static_cast<uint32_t>(pieces_.size());
      pieces_.emplace_back();
    } else {
      free_ = pieces_[at].after;
    }
    pieces_[at] = {sequence, begin, kNone};
    Queue& queue = queues_[length];
    if (queue.first == kNone) {
      queue.first = at;
      by_room_.insert(options_.max_length - length);
    } else {
      pieces_[queue.last].after = at;
    }
    queue.last = at;
    ++held_;
  }

  void take(uint32_t length, uint32_t& room) {
    Queue& queue = queues_[length];
    const uint32_t at = queue.first;
    Piece& piece = pieces_[at];
    pack_.push_back({piece.sequence, piece.begin, length, options_.max_length - room});
    room -= length;
    queue.first = piece.after;
    if (queue.first == kNone) by_room_.erase(options_.max_length - length);
    piece.after = free_;
    free_ = at;
    --held_;
  }

  /// The longest length in the window that is at most `room`; 0: none.
  uint32_t longest(uint32_t room) const {
    const auto found = by_room_.at_least(options_.max_length - room);
    return found ? options_.max_length - *found : 0;
  }

  bool is_single(uint32_t length) const { return queues_[length].first == queues_[length].last; }

  /// The longest that could follow one of `length`.
  uint32_t longest_beside(uint32_t length, uint32_t room) const {
    const uint32_t other = longest(room);
    return other == length && is_single(length) ? longest(length - 1) : other;
  }

  /// The length, starting from the longest that fits, that leaves least room together with another.
  uint32_t best_of_pairs(uint32_t first, uint32_t room) const {
    uint32_t best = first;
    uint32_t least = UINT32_MAX;
    for (int tried = 0; first != 0 && tried < kPairsTried; ++tried) {
      const uint32_t left = room - first - longest_beside(first, room - first);
      if (left < least) {
        least = left;
        best = first;
      }
      if (least == 0 || 2 * uint64_t{first} < room) break;
      first = longest(first - 1);
    }
    return best;
  }

  void close() {
    uint32_t room = options_.max_length;
    take(longest(room), room);
    while (room > 0 && pack_.size() < most_) {
      uint32_t length = longest(room);
      if (length == 0) break;
      if (length < room && pack_.size() + 1 < most_) length = best_of_pairs(length, room);
      take(length, room);
    }
  }

  StreamOptions options_;
  Counter counter_;
  LengthSet by_room_;  // maximum minus length, for lengths in the window
  std::vector<Queue> queues_;
  std::vector<Piece> pieces_;
  uint32_t free_ = kNone;
  uint32_t most_;
  uint64_t sequences_ = 0;
  uint64_t held_ = 0;
  bool closing_ = false;
  bool finished_ = false;
  Entry whole_;              // the next piece of a split sequence
  uint64_t whole_left_ = 0;  // pieces of maximum length that it still has
  std::vector<Entry> pack_;
};

StreamPacker::StreamPacker(const StreamOptions& options) : window_(std::make_unique<Window>(options)) {}
StreamPacker::~StreamPacker() = default;
StreamPacker::StreamPacker(StreamPacker&&) noexcept = default;
StreamPacker& StreamPacker::operator=(StreamPacker&&) noexcept = default;

void StreamPacker::push(uint64_t length) { window_->push(length); }
std::span<const Entry> StreamPacker::next() { return window_->next(); }
void StreamPacker::finish() { window_->finish(); }
const Input& StreamPacker::seen() const { return window_->seen(); }

}  // namespace tessera::pack
