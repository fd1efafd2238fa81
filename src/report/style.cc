#include "report/style.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace tessera::report {

std::string colour_of(size_t index) { return "var(--c" + std::to_string(index % kColours) + ")"; }

// Colours differ in lightness as well as in hue, neighbours most, for readers with colour blindness.
const std::string_view kStyle = R"css(
:root {
  --paper: #ffffff; --panel: #f6f7f9; --ink: #1a2029; --soft: #5b6675; --line: #dfe3e8; --grid: #e8ebef;
  --good: #1f9d62; --bad: #d33d3d; --accent: #2f5fd0;
  --c0: #3566d6; --c1: #f09a2a; --c2: #1d9a73; --c3: #c9486b; --c4: #8a63d2;
  --c5: #3fb6d0; --c6: #96701f; --c7: #ee8fb5; --c8: #6f8f1f; --c9: #5a6b82; --c10: #e8c52e; --c11: #12606f; --c12: #b3bac4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #12161c; --panel: #1a2028; --ink: #e8ecf2; --soft: #9aa6b5; --line: #2d3541; --grid: #262d37;
    --good: #4cc38a; --bad: #ff6b6b; --accent: #86a9ff;
    --c0: #6e97ff; --c1: #ffb454; --c2: #3fc79a; --c3: #ef6f8f; --c4: #b091f5;
    --c5: #67d3ea; --c6: #c79f4b; --c7: #ffb3d1; --c8: #a8c64e; --c9: #8fa3bd; --c10: #f5dd6b; --c11: #4a9fb0; --c12: #5f6a79;
  }
}
* { box-sizing: border-box; }
html { background: var(--paper); }
body { margin: 0; color: var(--ink); background: var(--paper); line-height: 1.5; font-size: 15px;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 40px 24px 80px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 21px; margin: 56px 0 16px; padding-top: 20px; border-top: 1px solid var(--line); }
h3 { font-size: 16px; margin: 32px 0 8px; }
p { margin: 8px 0; max-width: 75ch; }
p.subtitle { color: var(--soft); font-size: 16px; }
a { color: var(--accent); }
nav ol { margin: 24px 0 0; padding: 0; list-style: none; display: flex; flex-wrap: wrap; gap: 6px 20px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); gap: 12px; margin: 16px 0; }
.card { max-width: 360px; background: var(--panel); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px; }
.card .name { color: var(--soft); font-size: 13px; }
.card .value { font-size: 21px; white-space: nowrap; font-weight: 600; letter-spacing: -0.01em; font-variant-numeric: tabular-nums; }
.card .note { color: var(--soft); font-size: 13px; }
.card.bad { border-color: var(--bad); }
.card.bad .value { color: var(--bad); }
.row { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(460px, 100%), 1fr)); gap: 0 32px; }
.row > div { min-width: 0; }
.scroll { overflow-x: auto; margin: 12px 0; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; min-width: 50%; }
th, td { text-align: right; padding: 5px 14px 5px 0; border-bottom: 1px solid var(--grid); white-space: nowrap; }
th { color: var(--soft); font-weight: 500; border-bottom-color: var(--line); vertical-align: bottom; }
th.left, td.left { text-align: left; }
th:last-child, td:last-child { padding-right: 4px; }
td.left { white-space: normal; min-width: 8ch; }
tr.highlighted td { font-weight: 600; background: var(--panel); }
tbody tr:hover td { background: var(--panel); }
.share { display: inline-block; width: 120px; height: 10px; background: var(--grid); border-radius: 3px;
  overflow: hidden; vertical-align: middle; }
.share span { display: block; height: 100%; }
details { margin: 16px 0; }
summary { cursor: pointer; color: var(--accent); }
figure { margin: 20px 0; }
figcaption { font-weight: 600; margin-bottom: 2px; }
figure .note { color: var(--soft); font-size: 13px; margin: 4px 0 0; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 4px 0 8px; padding: 0; list-style: none;
  color: var(--soft); font-size: 13px; }
.legend svg { width: 22px; height: 12px; margin-right: 6px; vertical-align: -1px; overflow: visible; }
.plot { overflow-x: auto; }
.plot > svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--soft); font-size: 12px; }
svg text.strong { fill: var(--ink); font-weight: 600; }
svg text.inside { fill: var(--paper); font-size: 11px; pointer-events: none; }
svg text.inside.on-light { fill: #12161c; }
svg .grid { stroke: var(--grid); }
svg .axis { stroke: var(--soft); }
svg .limit { stroke: var(--ink); stroke-dasharray: 6 4; stroke-width: 1.5; }
svg .limit.warning { stroke: var(--bad); }
svg text.limit { fill: var(--ink); }
svg text.limit.warning { fill: var(--bad); }
svg text.limit, svg text.limit.warning { stroke: none; }
svg .mark:hover { opacity: 0.75; }
svg .probe { fill: transparent; }
svg .probe:hover { fill: var(--ink); fill-opacity: 0.12; }
@media print { h2 { break-after: avoid; } figure, .cards { break-inside: avoid; } }
)css";

namespace {

constexpr std::string_view kDarkMode = "@media (prefers-color-scheme: dark)";

/// A text with the colours that the style sheet has from a place on instead of their names.
std::string with_colours_from(size_t place, std::string text) {
  constexpr std::string_view kBegin = "var(";
  for (size_t at; (at = text.find(kBegin)) != std::string::npos;) {
    const size_t end = text.find(')', at);
    const std::string name = text.substr(at + kBegin.size(), end - at - kBegin.size()) + ": ";
    const size_t colour = kStyle.find(name, place);
    assert(colour != std::string_view::npos);
    const size_t from = colour + name.size();
    text.replace(at, end + 1 - at, kStyle.substr(from, kStyle.find(';', from) - from));
  }
  return text;
}

/// Fills stand at the shapes, in the colours of light mode.
std::string dark_fill(const std::string& colour) {
  return "[fill=\"" + with_colours(colour) + "\"] { fill: " + colour + "; }\n";
}

}  // namespace

std::string style_of_files() {
  std::string rules =
      "svg { font-family: system-ui, -apple-system, \"Segoe UI\", Roboto, \"DejaVu Sans\", sans-serif; }\n";
  std::string dark;
  for (size_t begin = 0, end; begin < kStyle.size(); begin = end + 1) {
    end = std::min(kStyle.find('\n', begin), kStyle.size());
    const std::string_view rule = kStyle.substr(begin, end - begin);
    if (!rule.starts_with("svg ") || rule.find(":hover") != std::string_view::npos) continue;
    rules += std::string(rule) + "\n";
    if (rule.find("var(") != std::string_view::npos) dark += std::string(rule) + "\n";
  }
  dark += dark_fill("var(--paper)");
  for (size_t c = 0; c < kColours; ++c) dark += dark_fill(colour_of(c));
  return rules + std::string(kDarkMode) + " {\n" + with_colours_from(kStyle.find(kDarkMode), dark) + "}\n";
}

std::string with_colours(std::string text) { return with_colours_from(0, std::move(text)); }

}  // namespace tessera::report
