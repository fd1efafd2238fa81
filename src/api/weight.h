// What a public Weight holds.
#pragma once

#include <tessera/spmm.h>

#include "ops/spmm.h"

namespace tessera {

struct Weight::Storage {
  std::shared_ptr<ops::PackedWeight> packed;
};

}  // namespace tessera
