// What the commands of studies have in common: options, files of finished cells, progress, output.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "studies/common/figure.h"
#include "studies/paper/cells.h"

namespace tessera::cli {

/// How the help of a study's options says it.
struct StudyWords {
  std::string_view name;
  std::string_view folder;  ///< where results go unless --out says otherwise
  std::string_view no_verify = "Do not compare results with float64";
  std::string_view csv = "all numbers";
  std::string_view page = "a page with charts";
};

/// --threads, --no-verify, --out, --published, --csv, --html and --json.
void add_study_options(CLI::App& command, const StudyWords& words, studies::Request& request);

/// Makes the folder of results, `default_folder` unless the request names another, and names the files that
/// the request does not. Throws Error if one of them cannot be written.
std::filesystem::path prepare_folder(std::string_view name, const std::string& default_folder,
                                     studies::Request& request);

/// Runs the cells that a file of finished ones lacks; adds those that fail to `failed`. A file holds cells of
/// one study, version, machine and further `settings` only.
studies::Part run_cells(std::string_view name, const studies::Request& request,
                        const machine::Machine& machine, const std::vector<studies::Task>& tasks,
                        const std::filesystem::path& file, const nlohmann::ordered_json& settings,
                        size_t& failed);

/// Prints tables, remarks and where the files are.
void print(const studies::Request& request, const std::vector<studies::Figure>& figures,
           const std::string& notes);

}  // namespace tessera::cli
