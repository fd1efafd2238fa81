// Tables of a study, for the terminal and its page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/html.h"

namespace tessera::studies {

/// A table with cells "ours (published)".
struct Figure {
  struct Entry {
    std::string words{};
    std::string title{};            ///< tooltip
    std::optional<double> shade{};  ///< −1 … 1: from bad to good
  };
  std::string title{};
  std::string note{};
  std::vector<std::string> head{};
  std::vector<std::vector<Entry>> rows{};
};

std::string text(const Figure& figure);
/// The figure as HTML; empty if it has no rows.
report::Html html_of(const Figure& figure);

}  // namespace tessera::studies
