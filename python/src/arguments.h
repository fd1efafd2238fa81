// Messages for arguments of the wrong kind.
#pragma once

#include "arrays.h"

namespace tessera::python {

/// All functions and methods of a module, when it is complete, say in one sentence what they take, instead of
/// nanobind's several.
void explain_wrong_arguments(nb::module_& module);

}  // namespace tessera::python
