// A study's page.
#include "report/page.h"

#include <fmt/format.h>

#include "studies/paper/tables.h"

namespace tessera::studies {

using report::Html;

namespace {

std::string subtitle_of(const Study& study) {
  std::string words;
  for (const Part& part : study.parts)
    words += fmt::format("{}{}, {}", words.empty() ? "" : "; ", part.machine.name,
                         part.is_host() ? "measured" : "modelled");
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
  report::Page page(std::string(study.paper.title), subtitle_of(study));
  const auto add = [&](std::string heading, Html content) {
    if (!content.empty()) page.add_section(std::move(heading), std::move(content));
  };
  add("Beside the paper",
      studies::html_of(comparison_figure(study)) + studies::html_of(distance_figure(study)));
  for (const Section& section : sections_of(study.paper, study.request))
    add(std::string(section.title), html_of(section, study));
  Html about = report::paragraph(fmt::format(
      "Published numbers are in brackets, in charts hollow marks and dashed lines: {}", study.paper.source));
  if (const std::string notes = notes_of(study); !notes.empty()) about += report::paragraph(notes);
  page.add_section("Source", about);
  return page.html();
}

}  // namespace tessera::studies
