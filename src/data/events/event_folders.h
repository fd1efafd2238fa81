// Folders of recordings in `.npy` files, one folder for each class.
#pragma once

#include <tessera/recordings.h>

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::train {

/// The files of a folder whose names end in `extension`, in alphabetical order. Throws Error if there are
/// none.
std::vector<std::string> files_of(const std::filesystem::path& folder, const std::string& extension);

/// The lines of a text that are not blank.
std::vector<std::string> lines_of(const std::string& file);

/// Loads CLASS/….npy, divided at random, or train/CLASS/….npy and test/CLASS/….npy. Classes are numbered in
/// alphabetical order; the sensor is as large as the events need.
RecordingSplit load_event_folders(const std::filesystem::path& folder, const RecordingSettings& settings);

}  // namespace tessera::train
