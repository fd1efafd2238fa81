// The state of a session in a file.
#pragma once

#include <deque>
#include <string>

#include "engine/run_memory.h"

namespace tessera::engine {

/// Save and load the state of a session: see Session::save() and Session::load().
void save_state(const program::Program& program, const RunMemory& memory, const std::string& path);
void load_state(const program::Program& program, const std::deque<RunMemory>& memories,
                const std::string& path);

}  // namespace tessera::engine
