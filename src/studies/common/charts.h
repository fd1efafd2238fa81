// Common parts of charts of studies.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "report/chart.h"

namespace tessera::studies {

inline report::Axis logarithmic(std::string label, report::Growth growth) {
  return {.label = std::move(label), .growth = growth};
}

/// A series of our numbers and the published series, in the same colour.
struct Pair {
  report::Series ours;
  report::Series published;

  Pair(const std::string& name, size_t colour)
      : ours{.name = name, .colour = colour},
        published{.name = name + ", published", .colour = colour, .reference = true} {}

  void add(double x, std::optional<double> mine, std::optional<double> theirs, const std::string& where) {
    if (mine) ours.points.push_back({x, *mine, fmt::format("{}, {}: {:.3g}", ours.name, where, *mine)});
    if (theirs)
      published.points.push_back({x, *theirs, fmt::format("{}, {}: {:.3g}", published.name, where, *theirs)});
  }

  void put_into(report::LineChart& chart) && {
    if (!ours.points.empty()) chart.series.push_back(std::move(ours));
    if (!published.points.empty()) chart.series.push_back(std::move(published));
  }
};

}  // namespace tessera::studies
