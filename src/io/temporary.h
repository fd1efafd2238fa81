// What writers of temporary files and folders share.
#pragma once

#include <cstddef>
#include <string>

namespace tessera::io {

/// Notes the path of a temporary file or folder, which must live until it is forgotten; returns its
/// slot. What finds no slot free is written all the same, but not removed by a signal.
size_t note_unfinished(const char* path);
void forget_unfinished(size_t slot);

/// Makes a move within a folder durable. Some file systems do not support it, and what was moved is
/// whole either way.
void sync_folder(const std::string& folder);

}  // namespace tessera::io
