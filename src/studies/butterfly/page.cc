// The page of `tessera reproduce butterfly`.
#include "report/page.h"

#include <fmt/format.h>

#include "studies/butterfly/sections.h"
#include "studies/butterfly/tables.h"

namespace tessera::studies::butterfly {

using report::Html;

namespace {

std::string subtitle_of(const Study& study) {
  std::string words;
  for (const Part& part : study.parts)
    words += fmt::format("{}{}, {}", words.empty() ? "" : "; ", part.machine.name,
                         part.is_host() ? "measured" : "modelled and accounted cycle by cycle");
  return words;
}

Html html_of(const Section& section, const Study& study) {
  Html all;
  if (section.charts != nullptr) all += section.charts(study);
  if (section.figures != nullptr)
    for (const Figure& figure : section.figures(study)) all += studies::html_of(figure);
  return all;
}

}  // namespace

std::string page(const Study& study) {
  report::Page page("Butterfly factorizations on an IPU", subtitle_of(study));
  const auto add = [&](std::string heading, Html content) {
    if (!content.empty()) page.add_section(std::move(heading), std::move(content));
  };
  add("Beside the paper", studies::html_of(comparison_figure(study)));
  for (const Section& section : sections_of(study.request))
    add(std::string(section.title), html_of(section, study));
  Html about = report::paragraph(
      "Published numbers are in brackets, in charts hollow marks and dashed lines: S.-K. Shekofteh, C. "
      "Alles, H. Fröning, Reducing Memory Requirements for the IPU using Butterfly Factorizations, 2023, "
      "measured on one GC200 of an M2000 and on an A30.");
  if (const std::string notes = notes_of(study); !notes.empty()) about += report::paragraph(notes);
  page.add_section("Source", about);
  return page.html();
}

}  // namespace tessera::studies::butterfly
