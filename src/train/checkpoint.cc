#include "train/checkpoint.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/checksum.h"
#include "graph/initial.h"
#include "graph/state_file.h"
#include "io/json_document.h"
#include "io/json_text.h"
#include "ranks/agreement.h"
#include "train/settings.h"

namespace tessera::train {
namespace {

using graph::Kind;
using graph::Session;
using graph::StateFile;
using graph::ValueInfo;
using nlohmann::ordered_json;

constexpr const char* kFormat = "tessera training 1";
constexpr const char* kBest = "best.";
constexpr const char* kData = "images";  // as in files written when images were all the data there was

ordered_json json_of(const Environment& place) {
  return {{"machine", place.machine}, {"tiles", place.tiles}, {"isa", place.isa}};
}

ordered_json optional_json(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

/// [[firing, listed, dropped], …]
ordered_json json_of(const std::vector<SpikingActivity>& activity) {
  ordered_json json = ordered_json::array();
  for (const SpikingActivity& layer : activity) json.push_back({layer.firing, layer.listed, layer.dropped});
  return json;
}

/// Times are omitted, so that a resumed run writes the same file as one without interruption.
ordered_json json_of(const Position& position) {
  ordered_json history = ordered_json::array();
  for (const EpochResult& e : position.epochs) {
    history.push_back({{"epoch", e.epoch},
                       {"loss", e.loss},
                       {"accuracy", optional_json(e.accuracy)},
                       {"validation_loss", e.validation_loss},
                       {"validation_accuracy", e.validation_accuracy}});
    if (!e.activity.empty()) history.back()["activity"] = json_of(e.activity);
  }
  ordered_json json = {{"step", position.step},
                       {"loss_sum", position.sums.loss},
                       {"right", position.sums.right},
                       {"best_epoch", position.best_epoch},
                       {"epochs", history}};
  if (!position.sums.activity.empty()) json["activity_sums"] = json_of(position.sums.activity);
  return json;
}

std::vector<SpikingActivity> activity_of(const ordered_json& json) {
  std::vector<SpikingActivity> activity;
  for (const ordered_json& layer : json)
    activity.push_back({layer.at(0).get<double>(), layer.at(1).get<double>(), layer.at(2).get<uint64_t>()});
  return activity;
}

Position position_of(const ordered_json& json) {
  Position position;
  position.step = json.at("step").get<uint64_t>();
  position.sums = {json.at("loss_sum").get<double>(), json.at("right").get<uint64_t>(), {}};
  if (json.contains("activity_sums")) position.sums.activity = activity_of(json.at("activity_sums"));
  position.best_epoch = json.at("best_epoch").get<uint32_t>();
  for (const ordered_json& e : json.at("epochs")) {
    EpochResult& epoch = position.epochs.emplace_back();
    epoch.epoch = e.at("epoch").get<uint32_t>();
    epoch.loss = e.at("loss").get<double>();
    if (!e.at("accuracy").is_null()) epoch.accuracy = e.at("accuracy").get<double>();
    epoch.validation_loss = e.at("validation_loss").get<double>();
    epoch.validation_accuracy = e.at("validation_accuracy").get<double>();
    if (e.contains("activity")) epoch.activity = activity_of(e.at("activity"));
  }
  return position;
}

const std::string& text(const StateFile& file, const std::string& path, const char* name) {
  const auto found = file.metadata().find(name);
  if (found == file.metadata().end())
    throw Error(fmt::format("{}: not a checkpoint of training; it lacks '{}'", path, name));
  return found->second;
}

/// The settings of a checkpoint with the names that they have now: some had others in earlier versions, which
/// also wrote those on which no result depends.
std::string with_present_names(const std::string& settings, const std::string& path) {
  const std::map<std::string, std::string> names = {
      {"rate", "lr"}, {"clip", "clip_norm"}, {"factors", "form"}};
  const ordered_json given =
      without_placement(io::parse_ordered_json(settings, io::refuse_depth<ordered_json>(path)));
  ordered_json renamed;
  for (const auto& [name, value] : given.items()) {
    if (name == "schedule" && (value == "constant" || value == "cosine")) {
      if (value == "cosine") renamed["lr_schedule"] = value;
      continue;
    }
    // Spiking neurons have a decay too.
    if (name == "decay" && !given.contains("weight_decay")) {
      renamed["weight_decay"] = value;
      continue;
    }
    const auto found = names.find(name);
    renamed[found == names.end() ? name : found->second] =
        name == "factors" && value == "published" ? ordered_json("unfused") : value;
  }
  return io::json_text(renamed);
}

/// The first setting in which a file differs, with both values.
std::string difference(const std::string& theirs, const std::string& ours, const std::string& path) {
  const ordered_json a = io::parse_ordered_json(theirs, io::refuse_depth<ordered_json>(path)),
                     b = io::parse_ordered_json(ours);
  for (const auto& [name, value] : b.items())
    if (!a.contains(name) || a.at(name) != value)
      return fmt::format("its {} is {}, now it is {}", name,
                         a.contains(name) ? io::json_text(a.at(name)) : "missing", io::json_text(value));
  return "it has further settings";
}

void check_identity(const StateFile& file, const std::string& path, const Identity& now,
                    bool allow_different_environment) {
  if (text(file, path, "format") != kFormat)
    throw Error(fmt::format("{}: a checkpoint of format '{}'; this version reads '{}'", path,
                            text(file, path, "format"), kFormat));
  const std::string settings = with_present_names(text(file, path, "settings"), path);
  if (settings != now.settings)
    throw Error(fmt::format("{}: a checkpoint of other settings: {}; give the same, or another file", path,
                            difference(settings, now.settings, path)));
  if (text(file, path, kData) != now.data)
    throw Error(fmt::format("{}: a checkpoint of other data: {}; now they are {}", path,
                            text(file, path, kData), now.data));
  const std::string place = io::json_text(json_of(now.environment));
  if (text(file, path, "place") != place && !allow_different_environment)
    throw Error(
        fmt::format("{}: a checkpoint of another place: {}; its bits would differ from a run without a "
                    "break. Use the same machine, tiles and instruction set, or --allow-different-bits",
                    path, difference(text(file, path, "place"), place, path)));
}

void check_position(const Position& position, const std::string& path, const Identity& identity) {
  const size_t epochs = position.epochs.size();
  if (position.step > identity.steps || identity.epochs_until(position.step) != epochs ||
      position.best_epoch > epochs || (epochs > 0) != (position.best_epoch > 0))
    throw Error(fmt::format("{}: a damaged checkpoint: step {} of {} with {} epochs, the best of them {}",
                            path, position.step, identity.steps, epochs, position.best_epoch));
}

/// A value's info with a prefix before its name, for parameters of the best network.
ValueInfo named(ValueInfo info, const std::string& prefix) {
  info.name = prefix + info.name;
  return info;
}

/// All values of a session's graph, or the parameters of the best network.
struct Values {
  std::vector<std::pair<std::string, std::vector<float>>> arrays;
  std::map<std::string, Pattern> patterns;
};

Values read(const StateFile& file, const graph::Graph& graph, const std::string& prefix) {
  Values values;
  for (const ValueInfo& info : graph.values()) {
    if (!is_kept(info) || (!prefix.empty() && info.kind != Kind::parameter)) continue;
    const ValueInfo& owner = info.belongs ? graph.info(*info.belongs) : info;
    std::optional<Pattern> pattern;
    if (info.type.pattern)
      pattern = file.pattern(prefix + owner.name, *info.type.pattern, info.type.capacity);
    values.arrays.emplace_back(info.name, file.values(named(info, prefix), pattern ? &*pattern : nullptr));
    if (pattern && info.kind == Kind::parameter) values.patterns[info.name] = *pattern;
  }
  return values;
}

std::string checksum_of_values(const Values& values) {
  std::vector<uint64_t> sums;
  const auto add = [&](const auto& items) {
    sums.push_back(base::checksum(std::as_bytes(std::span(items))));
  };
  for (const auto& [name, array] : values.arrays) add(array);
  for (const auto& [name, pattern] : values.patterns) {
    add(pattern.crow_indices);
    add(pattern.col_indices);
  }
  return fmt::format("{:016x}", base::checksum(std::as_bytes(std::span(sums))));
}

void set(Session& session, const std::map<std::string, Pattern>& patterns) {
  for (const auto& [name, pattern] : patterns)
    for (const ValueInfo& info : session.graph().values())
      if (info.name == name && info.type.capacity) session.set_pattern(name, pattern);
}

}  // namespace

std::string text_of(const Position& position) { return io::json_text(json_of(position)); }

std::string host_or_name(const Machine& machine) { return machine.is_host() ? "host" : machine.name(); }

Snapshot snapshot_of(const Session& session) {
  Snapshot snapshot;
  for (const ValueInfo& info : session.graph().values()) {
    if (info.kind != Kind::parameter) continue;
    snapshot.parameters[info.name] = session.get(info.name);
    if (info.type.pattern) snapshot.patterns[info.name] = session.pattern(info.name);
  }
  return snapshot;
}

Snapshot whole_of(const Session& session) {
  Snapshot whole = snapshot_of(session);
  for (const ValueInfo& info : session.graph().values())
    if (info.kind == Kind::state) whole.parameters[info.name] = session.get(info.name);
  return whole;
}

void restore(const Snapshot& snapshot, Session& session) {
  set(session, snapshot.patterns);
  session.set_state(snapshot.parameters);
}

void save_checkpoint(const std::string& path, const Identity& identity, const std::string& position,
                     const Session& session, const Snapshot* best, Communicator* communicator) {
  StateFile file;
  for (const ValueInfo& info : session.graph().values()) {
    if (!is_kept(info)) continue;
    file.add(info, session.get(info.name));
    if (info.type.pattern && info.kind == Kind::parameter)
      file.add_pattern(info.name, session.pattern(info.name));
    if (best == nullptr || info.kind != Kind::parameter) continue;
    file.add(named(info, kBest), best->parameters.at(info.name));
    if (info.type.pattern) file.add_pattern(kBest + info.name, best->patterns.at(info.name));
  }
  file.metadata() = {{"format", kFormat},
                     {"settings", identity.settings},
                     {kData, identity.data},
                     {"place", io::json_text(json_of(identity.environment))},
                     {"position", position}};
  ranks::do_once(communicator, [&] { file.write(path); });
}

void save_checkpoint(const std::string& path, const Identity& identity, const Position& position,
                     const Session& session, Communicator* communicator) {
  save_checkpoint(path, identity, text_of(position), session, position.best ? &*position.best : nullptr,
                  communicator);
}

namespace {

/// `take` receives the file and the position, and returns a checksum of everything else that it reads, or "".
void load(const std::string& path, const Identity& identity, bool allow_different_environment,
          Session& session,
          const std::function<std::string(const StateFile& file, const std::string& position)>& take,
          Communicator* communicator) {
  Values values;
  std::string position, others;
  ranks::do_on_each(communicator, [&] {
    const StateFile file(io::Source::open(path));
    try {
      check_identity(file, path, identity, allow_different_environment);
      values = read(file, session.graph(), "");
      position = text(file, path, "position");
      others = take(file, position);
    } catch (const nlohmann::json::exception& e) {
      throw Error(fmt::format("{}: a damaged checkpoint: {}", path, e.what()));
    }
  });
  if (communicator != nullptr)
    ranks::require_equal(
        *communicator,
        {{"checkpoint", position}, {"checkpoint", checksum_of_values(values)}, {"checkpoint", others}});
  set(session, values.patterns);
  for (const auto& [name, array] : values.arrays) session.set(name, array);
}

}  // namespace

void load_checkpoint(const std::string& path, const Identity& identity, bool allow_different_environment,
                     Session& session, const std::function<void(const std::string& position)>& take,
                     Communicator* communicator) {
  load(
      path, identity, allow_different_environment, session,
      [&](const StateFile& /*file*/, const std::string& position) {
        take(position);
        return std::string();
      },
      communicator);
}

Position load_checkpoint(const std::string& path, const Identity& identity, bool allow_different_environment,
                         Session& session, Communicator* communicator) {
  Position position;
  load(
      path, identity, allow_different_environment, session,
      [&](const StateFile& file, const std::string& json) {
        position = position_of(io::parse_ordered_json(json));
        check_position(position, path, identity);
        if (position.best_epoch == 0) return std::string();
        const Values best = read(file, session.graph(), kBest);
        position.best = Snapshot{{best.arrays.begin(), best.arrays.end()}, best.patterns};
        return checksum_of_values(best);
      },
      communicator);
  return position;
}

}  // namespace tessera::train
