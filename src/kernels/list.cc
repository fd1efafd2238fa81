#include "kernels/list.h"

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

const program::Codelet* find_codelet(std::string_view name) {
  const auto all = all_codelets();
  const auto found =
      std::ranges::find(all, name, [](const ListedCodelet& listed) { return listed.codelet->name; });
  return found == all.end() ? nullptr : found->codelet;
}

}  // namespace tessera::kernels
