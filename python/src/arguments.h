// Messages for arguments of the wrong kind.
#pragma once

#include "arrays.h"

namespace tessera::python {

/// Lets all functions and methods of a complete module report wrong arguments in one sentence, instead of
/// nanobind's several.
void explain_wrong_arguments(nb::module_& module);

}  // namespace tessera::python
