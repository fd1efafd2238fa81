// `tessera reproduce NAME` of a paper: a list of sections, each a table or figure, run on a modelled machine
// and measured on the host, beside the published numbers.
//
// To add a section: write its file in the paper's folder, with a function that returns the Section, and list
// it with the others. Its cells() are what is run on a machine, each with a name that is the key of its
// result, and a function that runs it; running them, keeping them between runs, progress, CSV and JSON come
// from here. figures() and charts() read the results out of the study by section and name, and must accept
// that any of them is missing (--only, another machine, a cell that does not fit). comparisons() set numbers
// of the paper beside them, with the deviation that is allowed. Published numbers are tables in published/ of
// the paper's folder, each with its source and a column `name`; cmake/studies.cmake lists them.
#pragma once

#include <tessera/images.h>
#include <tessera/packing.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "machine/model/machine.h"
#include "ops/product_modes.h"
#include "ops/product_problem.h"
#include "report/html.h"
#include "studies/common/figure.h"
#include "studies/common/published.h"

namespace tessera::studies {

/// Lists that replace the lists of a sweep of products; every combination runs.
struct ProductLists {
  std::vector<uint32_t> sizes{};
  std::vector<uint32_t> n{};
  std::vector<uint32_t> blocks{};
  std::vector<double> densities{};
  std::vector<ops::Precision> types{};
  std::vector<ops::Mode> modes{};

  bool operator==(const ProductLists&) const = default;
};

struct Request {
  std::vector<std::string> machines = {"gc200", "host"};  ///< a modelled machine, host, or both
  std::vector<std::string> only{};                        ///< names of sections; empty: all
  uint32_t threads = 0;                                   ///< 0: one per physical core
  bool full = false;                                      ///< also run the cells that take long
  bool verify = true;                                     ///< execute a sample of the modelled cells
  std::shared_ptr<const ImageSplit> images{};             ///< CIFAR-10 to train with; null: none
  std::vector<pack::Histogram> lengths{};                 ///< lengths of the sequences to pack, set by set
  double time_limit = 0;                                  ///< limit of a packing's seconds; 0: none
  ProductLists products{};
  ops::Planner planner = ops::Planner::vendor;  ///< planner of products on tiles
  bool gain = false;                            ///< also plan products freely

  std::string data{};       ///< folder of data sets
  std::string out{};        ///< folder of results; "": the paper's name
  std::string published{};  ///< folder of published tables; "": the committed tables
  std::string csv{};
  std::string html{};
  bool json = false;
};

/// The result of a cell: numbers by name, such as "seconds" and "gflops".
struct Result {
  bool fits = true;
  std::string reason{};  ///< why the program does not fit
  std::map<std::string, double> values{};
  std::optional<bool> verified{};
  std::optional<double> max_rel_error{};
  std::optional<double> tolerance{};

  std::optional<double> value(const std::string& name) const;
};

/// Where and how a cell runs. Without `verify`, a modelled machine's program is only estimated.
struct Setting {
  const machine::Machine& machine;
  bool verify = false;
  uint32_t threads = 0;
  std::shared_ptr<void>* shared = nullptr;  ///< data that the cells of a series keep for the next cell

  bool on_host() const { return machine.kind == machine::Kind::host; }
};

/// A unit of work on one machine. Its name is unique in its section, and states everything on which its
/// numbers depend: it is the key under which they are kept.
struct Cell {
  std::string name;
  double seconds = 0.1;  ///< about how long it takes: long ones start first
  std::function<Result(const Setting&)> run;
  /// Successive cells of one series run one after another on one thread; cells after one that does not fit
  /// are not tried. "": the cell is alone.
  std::string series{};
  std::string extent{};  ///< quantity in which the cells of a series grow: "n = 64"
};

/// A number of ours, and the paper's number if it has one. `least` and `most` bound ours / published where
/// the model is expected to be near; without them the ratio is only reported.
struct Comparison {
  std::string what;
  std::string unit{};
  std::optional<double> published{};
  std::optional<double> ours{};
  std::optional<double> least{};
  std::optional<double> most{};
  std::string remark{};                  ///< why the numbers differ
  std::string group{};                   ///< group of comparisons, for which tables show one distance
  bool published_as_impossible = false;  ///< whether the paper says "impossible" instead of a number
  bool is_measured = false;              ///< whether ours is measured on a host, which is not expected to be
                                         ///< near
  std::string says{};                    ///< what the paper says in words, where it has no number
  std::string origin{};                  ///< where ours is from: "measured", "modelled", "computed"
  bool is_in_table = false;              ///< whether a table of its section shows it already

  std::optional<double> ratio() const {
    return ours && published ? std::optional(*ours / *published) : std::nullopt;
  }
  /// Whether ours is within the bounds; none if there is no bound, or no number of ours.
  std::optional<bool> is_near() const;
  /// `fraction` 0.15: within 15 %.
  Comparison within(double fraction) && {
    least = 1 - fraction, most = 1 + fraction;
    return std::move(*this);
  }
  Comparison within_factor(double factor) && {
    least = 1 / factor, most = factor;
    return std::move(*this);
  }
};

/// The finished cells of one machine, by section and name.
struct Part {
  machine::Machine machine;
  std::map<std::pair<std::string, std::string>, Result> results;

  bool is_host() const { return machine.kind == machine::Kind::host; }
  const Result* find(std::string_view section, std::string_view cell) const;
  std::optional<double> value(std::string_view section, std::string_view cell, const std::string& name) const;
};

struct Paper;

/// The data from which sections make their tables.
struct Study {
  const Paper& paper;
  Request request;
  Published published;
  std::vector<Part> parts;  ///< in the order of the request

  /// A study without parts. Throws as Published() does.
  Study(const Paper& of, Request requested);

  /// The part of the modelled machine, and the host's part; null if it was not requested.
  const Part* modelled() const;
  const Part* host() const;
};

/// A table or figure of a paper. Functions may be null.
struct Section {
  std::string_view name;   ///< "table-2", as --only takes it
  std::string_view title;  ///< "Dense and sparse products (table 2)"
  std::vector<Cell> (*cells)(const machine::Machine& machine, const Request& request) = nullptr;
  std::vector<Figure> (*figures)(const Study& study) = nullptr;
  report::Html (*charts)(const Study& study) = nullptr;
  std::vector<Comparison> (*comparisons)(const Study& study) = nullptr;
  std::string_view reads{};  ///< another section whose cells it needs
};

/// A data set that some cells need.
struct PaperData {
  std::string_view what;      ///< "accuracies of tables 4 and 5"
  std::string_view contents;  ///< contents of its folder: "CIFAR-10"
  bool (*is_needed)(const Request& request, std::span<const machine::Machine> machines) = nullptr;
  /// Throws Error if the folder lacks it.
  void (*load)(const std::string& folder, Request& request) = nullptr;
  bool is_all = false;  ///< whether nothing runs without it
};

struct Paper {
  std::string_view name;    ///< name of its command
  std::string_view title;   ///< title of its page
  std::string_view about;   ///< what the command does
  std::string_view source;  ///< source of the published numbers
  std::span<const Section> sections;
  std::span<const base::EmbeddedFile> published;
  std::optional<PaperData> data{};
  std::string_view machines = "gc200,host";  ///< where cells run by default
  bool has_machines = true;                  ///< whether cells may run on other machines, or with other
                                             ///< numbers of threads
  bool has_verification = true;              ///< whether cells compare results with float64
  std::string_view full{};                   ///< what --full adds; "": nothing
  /// Whether sections use a row of a published table; null: they use the rows of the committed tables.
  bool (*has_row)(std::string_view table, const std::string& name) = nullptr;
  std::string_view examples;
};

/// The sections that a request asks for. Throws UsageError for an unknown name.
std::vector<Section> sections_of(const Paper& paper, const Request& request);

}  // namespace tessera::studies
