// Where the tool writes: results to stdout, everything else to stderr.
#pragma once

#include <string_view>

namespace tessera::cli {

/// Makes sure that no file that is opened later takes the place of a standard stream that the
/// caller closed.
void reserve_standard_streams();

/// "tessera: …" on stderr. A stderr that takes nothing is no error.
void complain(std::string_view message);

/// `status`, or that of a failure, with a message, where stdout did not take all results.
int finish(int status);

}  // namespace tessera::cli
