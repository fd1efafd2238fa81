#include "report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/style.h"
#include "report/table.h"

namespace tessera::report {
namespace {

constexpr double kTop = 26;  // for the names of y and of its limit
constexpr double kNameLine = 12;
constexpr double kBottom = 42;  // for ticks and label of x
constexpr double kTickGap = 6;
constexpr double kLeastScale = 0.7;  // smallest legible scale; narrower windows scroll

std::string_view name_of(Anchor anchor) {
  switch (anchor) {
    case Anchor::middle: return "middle";
    case Anchor::end: return "end";
    default: return "";
  }
}

Html title_of(std::string_view words) { return words.empty() ? Html{} : element("title", {}, words); }

}  // namespace

std::string pixels(double value) {
  std::string text = fmt::format("{:.2f}", std::isfinite(value) ? value : 0.0);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

double text_width(std::string_view text) {
  constexpr double kPerCharacter = 6.8;
  return kPerCharacter * static_cast<double>(characters_of(text));
}

std::string shortened(const std::string& text, double width) {
  if (text_width(text) <= width) return text;
  std::string cut = text;
  while (!cut.empty() && text_width(cut) + text_width("…") > width) {
    while (!cut.empty() && (cut.back() & 0xC0) == 0x80) cut.pop_back();
    if (!cut.empty()) cut.pop_back();
  }
  return cut.empty() ? "" : cut + "…";
}

void Canvas::line(std::string_view style, double x1, double y1, double x2, double y2) {
  add(element(
      "line",
      {{"class", style}, {"x1", pixels(x1)}, {"y1", pixels(y1)}, {"x2", pixels(x2)}, {"y2", pixels(y2)}}));
}

void Canvas::text(double x, double y, std::string_view words, Anchor anchor, std::string_view style) {
  add(element("text",
              {{"class", style}, {"x", pixels(x)}, {"y", pixels(y)}, {"text-anchor", name_of(anchor)}},
              words));
}

void Canvas::rectangle(double x, double y, double width, double height, size_t colour,
                       std::string_view title) {
  add(element("rect",
              {{"class", title.empty() ? "" : "mark"},
               {"x", pixels(x)},
               {"y", pixels(y)},
               {"width", pixels(std::max(width, 0.0))},
               {"height", pixels(std::max(height, 0.0))},
               {"fill", colour_of(colour)}},
              title_of(title)));
}

void Canvas::probe(double x, double y, double width, double height, std::string_view title) {
  add(element("rect",
              {{"class", "probe"},
               {"x", pixels(x)},
               {"y", pixels(y)},
               {"width", pixels(width)},
               {"height", pixels(height)}},
              title_of(title)));
}

void Canvas::path(const std::string& data, size_t colour) {
  add(element("path", {{"d", data}, {"fill", colour_of(colour)}}));
}

Html Canvas::html(std::string_view description) const {
  const std::string box = fmt::format("0 0 {} {}", pixels(width_), pixels(height_));
  return element("div", {{"class", "plot"}},
                 element("svg",
                         {{"xmlns", "http://www.w3.org/2000/svg"},
                          {"viewBox", box},
                          {"role", "img"},
                          {"style", fmt::format("min-width: {}px; max-width: {}px",
                                                pixels(kLeastScale * width_), pixels(width_))},
                          {"aria-label", description}},
                         shapes_));
}

std::string Canvas::svg_file(std::string_view description, const std::vector<Category>& categories,
                             const std::vector<bool>& used) const {
  constexpr double kMargin = 8, kSquare = 12, kBetween = 18;
  Canvas whole(width_ + 2 * kMargin, height_ + 2 * kMargin + kLineHeight);
  double x = 0;
  Canvas entries(0, 0);
  for (size_t c = 0; c < std::min(categories.size(), used.size()); ++c) {
    if (!used[c]) continue;
    entries.rectangle(x, height_, kSquare, kSquare, colour_of_category(categories, c));
    entries.text(x + kSquare + kTickGap, height_ + kSquare - 2, categories[c].name);
    x += kSquare + kTickGap + text_width(categories[c].name) + kBetween;
  }
  const std::string box = fmt::format("0 0 {} {}", pixels(whole.width()), pixels(whole.height()));
  whole.add(element("style", {}, style_of_files()));
  whole.add(element("rect", {{"width", "100%"}, {"height", "100%"}, {"fill", "var(--paper)"}}));
  whole.add(element("g", {{"transform", fmt::format("translate({0} {0})", pixels(kMargin))}},
                    shapes_ + entries.shapes_));
  const Html svg = element("svg",
                           {{"xmlns", "http://www.w3.org/2000/svg"},
                            {"viewBox", box},
                            {"width", pixels(whole.width())},
                            {"height", pixels(whole.height())},
                            {"role", "img"},
                            {"aria-label", description}},
                           whole.shapes_);
  return with_colours(svg.code) + "\n";
}

Area area_for(const Frame& frame, const Axis& x, const Axis& y, const Range& y_data, bool has_limit) {
  const Scale scale(y, y_data, frame.height - kBottom, kTop);
  double widest = 0;
  for (const Tick& tick : scale.ticks()) widest = std::max(widest, text_width(tick.label));
  const double below = x.label.empty() ? kBottom - kLineHeight : kBottom;
  return {widest + 2 * kTickGap, y.label.empty() && !has_limit ? 1.5 * kTickGap : kTop,
          frame.width - 2 * kTickGap, frame.height - below};
}

void draw_x_axis(Canvas& canvas, const Area& area, const Axis& axis, const Scale& scale) {
  double free_from = 0;
  for (const Tick& tick : scale.ticks()) {
    const double x = scale.at(tick.value);
    const double half = text_width(tick.label) / 2;
    const double middle = std::min(x, canvas.width() - half);
    canvas.line("axis", x, area.bottom, x, area.bottom + 4);
    if (middle - half < free_from) continue;
    canvas.text(middle, area.bottom + 18, tick.label, Anchor::middle);
    free_from = middle + half + kTickGap;
  }
  canvas.line("axis", area.left, area.bottom, area.right, area.bottom);
  if (!axis.label.empty()) canvas.text(area.right, area.bottom + 36, axis.label, Anchor::end);
}

void draw_y_axis(Canvas& canvas, const Area& area, const Axis& axis, const Scale& scale) {
  double free_below = canvas.height();
  for (const Tick& tick : scale.ticks()) {
    const double y = scale.at(tick.value);
    canvas.line("grid", area.left, y, area.right, y);
    if (y + kLineHeight / 2 > free_below) continue;
    canvas.text(area.left - kTickGap, y + 4, tick.label, Anchor::end);
    free_below = y - kLineHeight / 2;
  }
  if (!axis.label.empty()) canvas.text(0, kNameLine, axis.label);
}

std::string_view style_of(const Limit& limit) { return limit.warns ? "limit warning" : "limit"; }

void draw_y_limit(Canvas& canvas, const Area& area, const Scale& scale, const Limit& limit) {
  if (!scale.shows(limit.value) || limit.value > scale.most() || limit.value < scale.least()) return;
  const double y = scale.at(limit.value);
  canvas.line(style_of(limit), area.left, y, area.right, y);
  const double name_from = area.right - text_width(limit.name);
  canvas.text(area.right, kNameLine, limit.name, Anchor::end, style_of(limit));
  canvas.line(style_of(limit), name_from - 30, kNameLine - 4, name_from - 6, kNameLine - 4);
}

Html legend_entry(const Html& drawing, std::string_view name) {
  const Html picture = element(
      "svg", {{"xmlns", "http://www.w3.org/2000/svg"}, {"viewBox", "0 0 22 12"}, {"aria-hidden", "true"}},
      drawing);
  return element("li", {}, picture + text(name));
}

Html legend(const std::vector<Category>& categories, const std::vector<bool>& used) {
  Html entries;
  if (std::count(used.begin(), used.end(), true) < 2) return entries;
  for (size_t c = 0; c < std::min(categories.size(), used.size()); ++c)
    if (used[c])
      entries += legend_entry(element("rect", {{"x", "5"},
                                               {"width", "12"},
                                               {"height", "12"},
                                               {"rx", "2"},
                                               {"fill", colour_of(colour_of_category(categories, c))}}),
                              categories[c].name);
  return entries;
}

size_t colour_of_category(const std::vector<Category>& categories, size_t index) {
  return index < categories.size() ? categories[index].colour.value_or(index) : index;
}

Html figure(const Frame& frame, const Html& legend, const Html& drawing) {
  Html all;
  if (!frame.title.empty()) all += element("figcaption", {}, frame.title);
  if (!legend.empty()) all += element("ul", {{"class", "legend"}}, legend);
  all += drawing;
  if (!frame.note.empty()) all += element("p", {{"class", "note"}}, frame.note);
  return element("figure", {}, all);
}

Html nothing_to_show(const Frame& frame) {
  return figure(frame, {}, element("p", {{"class", "note"}}, "Nothing to show."));
}

}  // namespace tessera::report
