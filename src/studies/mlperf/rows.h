// Rows of the slides: each number, table and figure, beside our number or the reason why there is none.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "studies/paper/study.h"

namespace tessera::studies::mlperf {

inline constexpr const char* kSlidesTable = "slides.csv";
inline constexpr const char* kLogsTable = "logs.csv";
inline constexpr const char* kStepsTable = "steps.csv";

/// The source of one of our numbers.
enum class Origin : uint8_t {
  none,
  measured,  ///< on this host
  modelled,  ///< from the cost report of a program, or the figures of a modelled machine
  computed,  ///< by arithmetic, as for a packing: the same on every machine
};
std::string_view name_of(Origin origin);

/// Our result beside a number of the slides.
struct Ours {
  std::optional<double> value{};
  Origin origin = Origin::none;
  std::string remark{};  ///< describes our number, or says why there is none
};

inline Ours measured(double value, std::string remark = {}) {
  return {value, Origin::measured, std::move(remark)};
}
inline Ours modelled(double value, std::string remark = {}) {
  return {value, Origin::modelled, std::move(remark)};
}
inline Ours computed(double value, std::string remark = {}) {
  return {value, Origin::computed, std::move(remark)};
}
/// A result beside published words.
inline Ours in_words(Origin origin, std::string remark) { return {{}, origin, std::move(remark)}; }
inline Ours none_because(std::string why) { return {{}, Origin::none, std::move(why)}; }
/// The number if it is there; otherwise it was not run.
Ours if_run(std::optional<double> value, Origin origin, std::string remark);

/// The function that computes our result for the row of that name.
struct Beside {
  std::string_view name;
  Ours (*ours)(const Study& study);
};

struct Row {
  std::string name;
  std::string where{};  ///< "line 37" of the slides, or another source
  std::string unit{};
  std::optional<double> published{};
  std::string words{};  ///< what is published beside the number, or instead of it
  Ours ours{};
};

/// The published rows of a section of slides.csv, in their order. Rows that `beside` lacks say so.
std::vector<Row> rows_of(const Study& study, std::string_view section, std::span<const Beside> beside);

/// The minutes of the published logs of a model, in their order, beside our minutes for a round and number of
/// chips.
std::vector<Row> rows_of_logs(const Study& study, std::string_view model,
                              Ours (*minutes)(const Study& study, const std::string& round, uint32_t chips));

/// A table of rows; the title describes them.
Figure figure_of(const std::string& title, const std::string& note, const std::vector<Row>& rows);

/// All rows, also those without numbers, for files. Tables show modelled numbers together under the group.
std::vector<Comparison> comparisons_of(const std::vector<Row>& rows, const std::string& group);

/// "3.14", or "" if there is none.
std::string figure_text(std::optional<double> value, const char* format = "{:.4g}");

}  // namespace tessera::studies::mlperf
