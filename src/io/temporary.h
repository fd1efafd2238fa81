// Support for writers of temporary files and folders.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tessera::io {

/// Registers the path of a temporary file or folder, which must live until it is unregistered; returns its
/// slot. If no slot is free, the file is written all the same, but not removed by a signal.
size_t note_unfinished(const char* path);
void forget_unfinished(size_t slot);

/// Writes all bytes to an open file. Throws Error, naming the file as `path`, if that fails.
void write_all(int descriptor, std::span<const std::byte> bytes, const std::string& path);

/// Makes a rename within a folder durable. Some file systems do not support this; the renamed file is
/// complete either way.
void sync_folder(const std::string& folder);

}  // namespace tessera::io
