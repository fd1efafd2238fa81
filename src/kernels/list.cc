#include "kernels/list.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <vector>

namespace tessera::kernels {
namespace {

using Family = std::span<const ListedCodelet> (*)();

constexpr Family kFamilies[] = {
#define TESSERA_FAMILY(family) family##_codelets,
    TESSERA_CODELET_FAMILIES(TESSERA_FAMILY)
#undef TESSERA_FAMILY
};

std::vector<ListedCodelet> gather_families() {
  std::vector<ListedCodelet> all;
  for (Family family : kFamilies) all.insert(all.end(), family().begin(), family().end());
  return all;
}

}  // namespace

std::span<const ListedCodelet> all_codelets() {
  static const std::vector<ListedCodelet> all = gather_families();
  return all;
}

const ListedCodelet& find_codelet(std::string_view name) {
  const std::span<const ListedCodelet> all = all_codelets();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const ListedCodelet& listed) { return listed.codelet->name == name; });
  if (found == all.end()) throw UsageError(fmt::format("there is no codelet '{}'", name));
  return *found;
}

}  // namespace tessera::kernels
