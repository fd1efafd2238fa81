#include "studies/butterfly/study.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace tessera::studies::butterfly {
namespace {

/// Whether a request has the trainings of tables 4 and 5, on a host.
bool has_trainings(const Request& request, std::span<const machine::Machine> machines) {
  const auto asks = [&](const char* section) {
    return request.only.empty() || std::ranges::find(request.only, section) != request.only.end();
  };
  return std::ranges::any_of(machines, [](const auto& m) { return m.kind == machine::Kind::host; }) &&
         (asks("table-4") || asks("table-5"));
}

void load(const std::string& folder, Request& request) {
  request.images = std::make_shared<const ImageSplit>(load_images(folder, "cifar-10"));
}

}  // namespace

const Paper& paper() {
  static const std::vector<Section> sections = {table_1(),  figure_3(), table_2(), figure_4(),
                                                figure_5(), figure_6(), table_4(), table_5()};
  static const Paper paper{
      .name = "butterfly",
      .title = "Butterfly factorizations on an IPU",
      .about = "Characterise a GC200, and compare structured with dense layers on it, as published",
      .source =
          "S.-K. Shekofteh, C. Alles, H. Fröning, Reducing Memory Requirements for the IPU using Butterfly "
          "Factorizations, 2023, measured on one GC200 of an M2000 and on an A30.",
      .sections = sections,
      .published = kPublishedTables,
      .data = PaperData{"accuracies of tables 4 and 5", "CIFAR-10", has_trainings, load},
      .full = "Also run what takes long: larger sizes, longer sweeps, trainings of 15 epochs",
      .examples =
          "  tessera reproduce butterfly\n"
          "  tessera reproduce butterfly --machine gc200 --only table-2 --json\n"
          "  tessera reproduce butterfly --machine bow,host --out here"};
  return paper;
}

}  // namespace tessera::studies::butterfly
