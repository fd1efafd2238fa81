#include "report/graph_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "graph/loop.h"
#include "graph/operation.h"
#include "report/page.h"
#include "report/style.h"

namespace tessera::report {
namespace {

using graph::OpenedGraph;
using graph::OpenedNode;

constexpr double kWidth = 150, kHeight = 34, kGapX = 16, kGapY = 26;

struct Placed {
  double x = 0, y = 0;
};

/// Rows of operations: each below all that it depends on.
std::vector<Placed> place(const OpenedGraph& graph, size_t count) {
  std::vector<size_t> level(graph.values.size());
  std::map<size_t, size_t> used;
  std::vector<Placed> placed;
  for (size_t n = 0; n < count; ++n) {
    const OpenedNode& node = graph.nodes[n];
    size_t row = 0;
    for (size_t input : node.inputs) row = std::max(row, level[input]);
    for (size_t output : node.outputs) level[output] = row + 1;
    placed.push_back(
        {static_cast<double>(used[row]++) * (kWidth + kGapX), static_cast<double>(row) * (kHeight + kGapY)});
  }
  return placed;
}

std::string number(double value) { return fmt::format("{:g}", value); }

Html line(const Placed& from, const Placed& to) {
  return element("line", {{"x1", number(from.x + kWidth / 2)},
                          {"y1", number(from.y + kHeight)},
                          {"x2", number(to.x + kWidth / 2)},
                          {"y2", number(to.y)},
                          {"stroke", "currentColor"},
                          {"stroke-opacity", "0.4"}});
}

Html box(const OpenedGraph& graph, const OpenedNode& node, const Placed& at) {
  const std::string colour = colour_of(node.node->backward ? 1 : 0);
  const std::string middle = number(at.x + kWidth / 2);
  const auto words = [&](double y, std::string_view size, std::string_view content) {
    return element("text",
                   {{"x", middle},
                    {"y", number(at.y + y)},
                    {"text-anchor", "middle"},
                    {"font-size", size},
                    {"fill", "currentColor"}},
                   content);
  };
  return element("rect", {{"x", number(at.x)},
                          {"y", number(at.y)},
                          {"width", number(kWidth)},
                          {"height", number(kHeight)},
                          {"rx", "5"},
                          {"fill", colour},
                          {"fill-opacity", "0.25"},
                          {"stroke", colour}}) +
         words(14, "11", node.node->operation->name) +
         words(27, "9", to_string(graph.values[node.outputs[0]].info().type));
}

constexpr double kLifetimeHeight = 9, kLifetimeWidth = 720;

/// A bar for each value that lives beyond its own operation; all bars have the same height.
Html lifetimes(const graph::RunCost& cost) {
  Html bars;
  double y = 0;
  const double step = kLifetimeWidth / static_cast<double>(std::max<size_t>(1, cost.operations.size()));
  for (const graph::Lifetime& lifetime : cost.lifetimes) {
    if (lifetime.last == lifetime.first) continue;
    const Html title = element("title", {},
                               fmt::format("{}: {} bytes, from operation {} to {}", lifetime.value,
                                           lifetime.bytes, lifetime.first, lifetime.last));
    bars += element("rect",
                    {{"x", number(step * static_cast<double>(lifetime.first))},
                     {"y", number(y)},
                     {"width", number(step * static_cast<double>(lifetime.last - lifetime.first + 1))},
                     {"height", number(kLifetimeHeight - 2)},
                     {"fill", colour_of(0)}},
                    title);
    y += kLifetimeHeight;
  }
  const std::string view = fmt::format("0 0 {:g} {:g}", kLifetimeWidth, std::max(y, 1.0));
  return element("svg", {{"viewBox", view}, {"width", number(kLifetimeWidth)}, {"role", "img"}}, bars);
}

}  // namespace

Html picture(const graph::Graph& network) {
  const OpenedGraph graph = opened(network);
  const size_t count = std::min(graph.nodes.size(), kMostDrawn);
  const std::vector<Placed> placed = place(graph, count);
  Html lines, boxes;
  double width = kWidth, height = kHeight;
  for (size_t n = 0; n < count; ++n) {
    const OpenedNode& node = graph.nodes[n];
    for (size_t input : node.inputs)
      if (const auto& producer = graph.values[input].node; producer && *producer < n)
        lines += line(placed[*producer], placed[n]);
    boxes += box(graph, node, placed[n]);
    width = std::max(width, placed[n].x + kWidth);
    height = std::max(height, placed[n].y + kHeight);
  }
  const std::string view = fmt::format("-2 -2 {:g} {:g}", width + 4, height + 4);
  const Html drawing =
      element("svg", {{"viewBox", view}, {"width", number(width)}, {"role", "img"}}, lines + boxes);
  if (count == graph.nodes.size()) return drawing;
  return drawing + paragraph(fmt::format("The first {} of {} operations.", count, graph.nodes.size()));
}

Html cost_tables(const graph::RunCost& cost) {
  using Align = RichTable::Align;
  RichTable operations({{"operation", Align::left}, {"result", Align::left}, {"µs"}, {"of the step"}});
  for (const graph::OperationCost& operation : cost.operations)
    operations.add({operation.operation, operation.value, fmt::format("{:.3g}", 1e6 * operation.seconds),
                    share_bar(operation.seconds / cost.seconds, 0)});
  RichTable bytes({{"purpose", Align::left}, {"bytes"}});
  for (const auto& [purpose, count] : cost.bytes) bytes.add({purpose, fmt::format("{}", count)});
  RichTable conversions({{"converted between layouts", Align::left}, {"bytes"}, {"µs"}});
  for (const graph::ConversionCost& conversion : cost.conversions)
    conversions.add({conversion.value, fmt::format("{}", conversion.bytes),
                     fmt::format("{:.1f}", 1e6 * conversion.seconds)});
  Html tables =
      subheading("Time by operation") + operations.html() + subheading("Data by purpose") + bytes.html();
  tables += subheading("Values alive, by operation") + lifetimes(cost);
  if (!cost.conversions.empty()) tables += conversions.html();
  return tables;
}

}  // namespace tessera::report
