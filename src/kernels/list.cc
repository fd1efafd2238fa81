#include "kernels/list.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <vector>

#include "kernels/host/block_sparse/codelet.h"
#include "kernels/host/element_sparse/codelet.h"
#include "kernels/host/sddmm/codelet.h"
#include "kernels/map/cast/codelet.h"
#include "kernels/map/elementwise/codelet.h"
#include "kernels/map/gather/codelet.h"
#include "kernels/map/reduce/codelet.h"
#include "kernels/tile/bucket/codelet.h"
#include "kernels/tile/row_epilogue/codelet.h"
#include "kernels/tile/tile_product/codelet.h"

namespace tessera::kernels {
namespace {

using Family = std::span<const ListedCodelet> (*)();

constexpr Family kFamilies[] = {
    block_sparse_codelets, bucket_codelets,       cast_codelets,   element_sparse_codelets,
    elementwise_codelets,  gather_codelets,       reduce_codelets, row_epilogue_codelets,
    sddmm_codelets,        tile_product_codelets,
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
