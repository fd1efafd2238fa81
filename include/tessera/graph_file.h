// Graphs and their parameters in one file.
#pragma once

#include <tessera/graph.h>

#include <map>
#include <string>
#include <vector>

namespace tessera::graph {

/// Graphs that have parameters in common, such as one network for inputs of several shapes.
struct GraphFile {
  std::vector<Graph> graphs;                 ///< parameters with the same name are one parameter
  std::map<std::string, std::string> texts;  ///< texts that the caller keeps beside the graphs, by name
};

/// Writes graphs in a `.safetensors` file: each parameter once, with its name, as Session::save does.
/// `values` are the present contents of parameters, by name; for parameters that are not in it the initial
/// contents are written. Throws UsageError for a graph with an optimizer's state or updates, and for
/// parameters of the same name that differ; Error if writing fails, which leaves no partial file.
void save_graphs(const std::string& path, const GraphFile& file, const Arrays& values = {});

/// Reads such a file; the graphs share the parameters' initial values. Throws Error, naming the file, if it
/// is malformed, incomplete, without its checksum or of a later version.
GraphFile load_graphs(const std::string& path);

}  // namespace tessera::graph
