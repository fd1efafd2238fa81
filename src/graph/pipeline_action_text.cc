// Lists of actions of pipelines as text.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/names.h"
#include "graph/pipeline_actions.h"

namespace tessera::graph {
namespace {

constexpr base::Names<ActionKind, 10> kActionKinds{
    "action", {"F", "R", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "REDUCE_GRAD"}};
/// What precedes the number of a line's part of the chips and a colon.
constexpr std::string_view kChipsOfLine = "chips ";

/// The stage at the other end of an exchange between neighbours: results go up, gradients down. There may be
/// none.
uint32_t neighbour_of(const PipelineAction& action) {
  const bool is_above =
      action.kind == ActionKind::send_forward || action.kind == ActionKind::receive_backward;
  return is_above ? action.stage + 1 : action.stage - 1;
}

/// The number with which a text begins, which is removed from it.
std::optional<uint32_t> take_number(std::string_view& text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return {};
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

/// What follows a mark at the end of an action: a peer or a bucket.
std::optional<uint32_t> take_marked(std::string_view& text, char mark) {
  if (!text.starts_with(mark)) return {};
  std::string_view number = text.substr(1);
  const std::optional<uint32_t> marked = take_number(number);
  if (marked) text = number;
  return marked;
}

PipelineAction action_named(std::string_view text) {
  constexpr size_t kMostBytes = 64;  // of a name and three numbers
  std::string_view rest = text;
  const std::optional<uint32_t> stage = take_number(rest);
  const std::string_view name = rest.substr(0, rest.find_first_of("0123456789<>:"));
  rest.remove_prefix(name.size());
  const std::optional<uint32_t> micro_batch = take_number(rest);
  const auto require = [&](bool is_well) {
    if (!is_well)
      throw UsageError(
          fmt::format("'{:.{}}' is no action; actions are such as 0F3, the forward pass of micro-batch 3 "
                      "through stage 0, 0SEND_F3, 1RECV_F3 and 0REDUCE_GRAD:0",
                      text, kMostBytes));
  };
  require(stage && !name.empty() && text.size() <= kMostBytes);
  PipelineAction action{kActionKinds.named(name), *stage, micro_batch.value_or(0)};
  if (action.kind == ActionKind::reduce_gradients) {
    if (!micro_batch) action.bucket = take_marked(rest, ':').value_or(*stage);
  } else {
    require(micro_batch.has_value());
    if (is_sending(action.kind)) action.peer = take_marked(rest, '>').value_or(neighbour_of(action));
    if (is_receiving(action.kind)) action.peer = take_marked(rest, '<').value_or(neighbour_of(action));
  }
  require(rest.empty());
  return action;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t length = std::min(text.find_first_of(separators), text.size());
    if (length > 0) pieces.push_back(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return pieces;
}

/// Reads a list in which each part of the chips has a line.
class ActionReader {
 public:
  explicit ActionReader(std::string_view text) {
    for (std::string_view line : split_at(text, "\r\n")) {
      const bool has_name = take_name(line);
      std::vector<PipelineAction> actions;
      for (const std::string_view action : split_at(line, ", \t")) actions.push_back(action_named(action));
      count_ += actions.size();
      if (has_name || !actions.empty()) lines_.push_back(std::move(actions));
    }
    if (count_ == 0) throw UsageError("a list of actions is empty: it has a line for each part of the chips");
    next_.resize(lines_.size());
  }

  ActionList read() {
    place_stages();
    find_links();
    find_sums();
    take_all();
    require_end();
    check(list_);
    return std::move(list_);
  }

 private:
  /// Removes the name with which a line may begin.
  bool take_name(std::string_view& line) const {
    if (!line.starts_with(kChipsOfLine)) return false;
    std::string_view rest = line.substr(kChipsOfLine.size());
    if (take_number(rest) != lines_.size() || !rest.starts_with(':'))
      throw UsageError(fmt::format(
          "a line of a list of actions begins '{:.20}', and lists the actions of part {} of the chips: begin "
          "it with '{}{}:', or with an action",
          line, lines_.size(), kChipsOfLine, lines_.size()));
    line = rest.substr(1);
    return true;
  }

  void place_stages() {
    std::map<uint32_t, uint32_t> places;
    uint32_t last = 0;  // micro-batch
    for (uint32_t place = 0; place < lines_.size(); ++place)
      for (const PipelineAction& action : lines_[place]) {
        const uint32_t known = places.try_emplace(action.stage, place).first->second;
        if (known != place)
          throw UsageError(
              fmt::format("stage {} has actions on chips {} and {}: put all of them into one line",
                          action.stage, known, place));
        last = std::max(last, action.micro_batch);
      }
    for (const auto& [stage, place] : places) {
      if (stage != list_.links.places.size())
        throw UsageError(fmt::format("stage {} has actions, and stage {} has none: number stages from 0",
                                     stage, list_.links.places.size()));
      list_.links.places.push_back(place);
    }
    if (last >= count_)
      throw UsageError(
          fmt::format("a list of {} actions names micro-batch {}: micro-batches count from 0, "
                      "and all of them have actions",
                      count_, last));
    list_.stages = static_cast<uint32_t>(places.size());
    list_.micro_batches = last + 1;
  }

  /// Finds routes from the actions. Both ends are passes of the action's direction, except that what a
  /// forward pass sends to an earlier stage is taken by a backward pass.
  void find_links() {
    std::map<uint32_t, std::set<uint32_t>> buckets;
    for (const std::vector<PipelineAction>& line : lines_)
      for (const PipelineAction& action : line) {
        if (action.kind == ActionKind::reduce_gradients) {
          if (action.bucket)
            buckets[*action.bucket].insert(action.stage);
          else
            list_.links.summed_in_passes.insert(action.stage);
        } else if (is_sending(action.kind) || is_receiving(action.kind)) {
          add_route(action);
        }
      }
    for (const auto& [bucket, stages] : buckets) {
      if (bucket >= count_)
        throw UsageError(
            fmt::format("a list of {} actions names bucket {}: number buckets from 0", count_, bucket));
      list_.links.buckets.resize(bucket + 1);
      list_.links.buckets.back().stages.assign(stages.begin(), stages.end());
    }
  }

  void add_route(const PipelineAction& action) {
    if (action.peer >= list_.stages)
      throw UsageError(
          fmt::format("'{}' has no stage at its other end: there are {}", to_string(action), list_.stages));
    if (list_.links.places[action.stage] == list_.links.places[action.peer])
      throw UsageError(
          fmt::format("'{}' is between stages on the same chips: leave it out", to_string(action)));
    std::vector<StageRoute>& routes = list_.links.routes;
    if (routes_.of(action) < routes.size()) return;
    const PipelineAction sent = is_sending(action.kind) ? action : other_end(action);
    const bool goes_back = sent.kind == ActionKind::send_backward;
    routes.push_back({sent.stage, sent.peer, goes_back, goes_back || sent.peer < sent.stage});
    routes_.add(routes.back());
  }

  /// Finds which backward passes the sums of buckets wait for.
  void find_sums() {
    backward_left_.resize(list_.stages);
    buckets_of_.resize(list_.stages);
    for (const std::vector<PipelineAction>& line : lines_)
      for (const PipelineAction& action : line)
        if (is_backward(action.kind)) ++backward_left_[action.stage];
    for (const GradientBucket& bucket : list_.links.buckets) {
      const auto number = static_cast<uint32_t>(stages_left_.size());
      size_t& left = stages_left_.emplace_back(0);
      for (const uint32_t stage : bucket.stages) {
        if (backward_left_[stage] == 0) continue;
        ++left;
        buckets_of_[stage].push_back(number);
      }
    }
  }

  const PipelineAction* next_of(uint32_t place) const {
    return next_[place] < lines_[place].size() ? &lines_[place][next_[place]] : nullptr;
  }

  /// Puts actions into the list as soon as they can run. Chips that wait are looked at again when others have
  /// done what they may have waited for.
  void take_all() {
    for (uint32_t place = 0; place < lines_.size(); ++place) ready_.push_back(place);
    while (!ready_.empty()) {
      const uint32_t place = ready_.front();
      ready_.pop_front();
      while (take_next(place)) {
      }
    }
  }

  bool take_next(uint32_t place) {
    const PipelineAction* action = next_of(place);
    if (action == nullptr) return false;
    if (is_sending(action->kind) || is_receiving(action->kind)) return take_exchange(place, *action);
    if (action->bucket && stages_left_[*action->bucket] > 0) return false;
    list_.actions.push_back(*action);
    ++next_[place];
    if (is_backward(action->kind)) note_backward(action->stage);
    return true;
  }

  /// Both ends run together.
  bool take_exchange(uint32_t place, const PipelineAction& action) {
    const uint32_t peer = list_.links.places[action.peer];
    const PipelineAction* other = next_of(peer);
    if (other == nullptr || *other != other_end(action)) return false;
    const bool sends = is_sending(action.kind);
    list_.actions.push_back(sends ? action : *other);
    list_.actions.push_back(sends ? *other : action);
    ++next_[place];
    ++next_[peer];
    ready_.push_back(peer);
    return true;
  }

  /// After the last backward pass of a bucket's stages, all of them can sum it.
  void note_backward(uint32_t stage) {
    if (--backward_left_[stage] > 0) return;
    for (const uint32_t bucket : buckets_of_[stage]) {
      if (--stages_left_[bucket] > 0) continue;
      for (const uint32_t of_bucket : list_.links.buckets[bucket].stages)
        ready_.push_back(list_.links.places[of_bucket]);
    }
  }

  void require_end() const {
    std::vector<std::string> waiting;
    const PipelineAction* sum = nullptr;
    for (uint32_t place = 0; place < lines_.size(); ++place) {
      const PipelineAction* action = next_of(place);
      if (action == nullptr) continue;
      if (action->bucket)
        sum = action;
      else
        waiting.push_back(fmt::format("chips {} before {}", place, to_string(*action)));
    }
    if (waiting.empty() && sum != nullptr) refuse_early(*sum);
    if (!waiting.empty())
      throw UsageError(
          fmt::format("a list of actions never ends: {} wait for the other end. Put each RECV behind its "
                      "SEND, and the exchanges of two parts of the chips into the same order on both",
                      fmt::join(waiting, ", ")));
  }

  /// Names a sum that comes before backward passes of its own chips, if there is one, not a sum that waits
  /// for them.
  [[noreturn]] void refuse_early(const PipelineAction& waiting) const {
    const PipelineAction* sum = &waiting;
    const auto has_passes = [&](uint32_t stage) { return backward_left_[stage] > 0; };
    uint32_t before = *std::ranges::find_if(list_.links.buckets[*sum->bucket].stages, has_passes);
    for (uint32_t bucket = 0; bucket < stages_left_.size(); ++bucket)
      for (const uint32_t stage : list_.links.buckets[bucket].stages)
        if (const PipelineAction* own = next_of(list_.links.places[stage]);
            has_passes(stage) && own != nullptr && own->bucket == bucket) {
          sum = own;
          before = stage;
        }
    throw UsageError(
        fmt::format("a list of actions has {} before the last backward pass of stage {}: move it behind that",
                    to_string(*sum), before));
  }

  std::vector<std::vector<PipelineAction>> lines_;
  size_t count_ = 0;            ///< number of actions in all lines
  std::vector<size_t> next_;    ///< by line: its first action that is not in the list yet
  std::deque<uint32_t> ready_;  ///< lines whose next action may be able to run
  RouteIndex routes_;
  std::vector<size_t> backward_left_;              ///< by stage: passes that are not in the list yet
  std::vector<std::vector<uint32_t>> buckets_of_;  ///< by stage
  std::vector<size_t> stages_left_;  ///< by bucket: number of stages that have backward passes left
  ActionList list_;
};

}  // namespace

std::string_view name_of(ActionKind kind) { return kActionKinds.of(kind); }

std::string to_string(const PipelineAction& action) {
  const std::string name = fmt::format("{}{}", action.stage, name_of(action.kind));
  if (action.bucket) return fmt::format("{}:{}", name, *action.bucket);
  const std::string text = fmt::format("{}{}", name, action.micro_batch);
  const bool is_sent = is_sending(action.kind);
  if ((!is_sent && !is_receiving(action.kind)) || action.peer == neighbour_of(action)) return text;
  return fmt::format("{}{}{}", text, is_sent ? '>' : '<', action.peer);
}

std::string to_string(const ActionList& list) {
  std::vector<std::string> lines;
  const uint32_t places = list.places();
  for (uint32_t place = 0; place < places; ++place)
    lines.push_back(fmt::format("{}{}:", kChipsOfLine, place));
  for (const PipelineAction& action : list.actions)
    lines.at(list.links.places.at(action.stage)) += ' ' + to_string(action);
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

ActionList read_actions(std::string_view text) { return ActionReader(text).read(); }

}  // namespace tessera::graph
