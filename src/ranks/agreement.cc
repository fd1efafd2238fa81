#include "ranks/agreement.h"

#include <fmt/format.h>
#include <tessera/communicator.h>

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "ranks/gather.h"

namespace tessera::ranks {
namespace {

constexpr size_t kLongestShown = 64;

/// One on each line: its name, a tab, and its value.
std::string lines_of(const Facts& facts) {
  std::string lines;
  for (const auto& [name, value] : facts) lines += fmt::format("{}\t{}\n", name, value);
  return lines;
}

std::string text_of_difference(uint32_t rank, const std::string& facts, const std::string& of_first) {
  std::istringstream own(facts), first(of_first);
  std::string line, expected;
  while (std::getline(own, line) && std::getline(first, expected) && line == expected) {
  }
  const std::string name = line.substr(0, line.find('\t')), value = line.substr(line.find('\t') + 1),
                    wanted = expected.substr(expected.find('\t') + 1);
  const bool is_shown = value.size() <= kLongestShown && wanted.size() <= kLongestShown;
  return fmt::format("rank {} has another {} than rank 0{}: start all ranks with the same", rank, name,
                     is_shown ? fmt::format(", {} and not {}", value, wanted) : "");
}

}  // namespace

void require_equal(Communicator& communicator, const Facts& facts) {
  const std::vector<std::string> all = all_gather(communicator, lines_of(facts));
  for (uint32_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0]) throw RankError(text_of_difference(rank, all[rank], all[0]));
}

}  // namespace tessera::ranks
