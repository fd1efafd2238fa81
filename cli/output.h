// Output of the tool: results to stdout, everything else to stderr.
#pragma once

#include <tessera/run_cost.h>

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tessera::cli {

/// Ensures that no file opened later gets the descriptor of a standard stream that the caller closed.
void reserve_standard_streams();

/// "tessera: …" on stderr. A failure to write there is ignored.
void complain(std::string_view message);

/// The text of results. Bytes that are no UTF-8, which names of files may have, are replaced.
std::string json_text(const nlohmann::ordered_json& results, int indent = 2);

/// Bytes and seconds of transfers from and to a host.
nlohmann::ordered_json host_io_json(const graph::HostIoCost& transfers);

/// Calls `write`, which writes files once the results are printed. If it throws Error, complains and returns
/// false: printed results stay as they are, one JSON object if that was asked for.
bool write_or_complain(const std::function<void()>& write);

/// Returns `status`, or a failure status, with a message, if results could not be written to stdout.
int finish(int status);

}  // namespace tessera::cli
