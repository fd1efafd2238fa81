// Output of the tool: results to stdout, everything else to stderr.
#pragma once

#include <string_view>

namespace tessera::cli {

/// Ensures that no file opened later gets the descriptor of a standard stream that the caller closed.
void reserve_standard_streams();

/// "tessera: …" on stderr. A failure to write there is ignored.
void complain(std::string_view message);

/// Returns `status`, or a failure status, with a message, if results could not be written to stdout.
int finish(int status);

}  // namespace tessera::cli
