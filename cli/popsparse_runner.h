// The cells of `tessera reproduce popsparse`, run as `tessera spmm` runs its cases.
#pragma once

#include "studies/popsparse/run.h"

namespace tessera::cli {

/// Makes runners for a request, which must outlive them.
studies::popsparse::MakeRunner popsparse_runners(const studies::popsparse::Request& request);

}  // namespace tessera::cli
