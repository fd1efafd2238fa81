// tessera reproduce mlperf.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli/tool.h"
#include "report/strict_markup.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::content_of;
using test::expect_refused;
using test::json_of;
using test::Outcome;
using test::says;
using testing::MarkupReader;

/// Sections that take little time.
constexpr const char* kFew = "--only hardware,model,pipeline";

class MlperfTest : public test::ToolTest {
 protected:
  Outcome reproduce(const std::string& options) const {
    return run(fmt::format("reproduce mlperf --out '{}' {}", path("results"), options),
               "unset TESSERA_DATA; {}");
  }
};

TEST_F(MlperfTest, SaysOfEachRowWhereOursIsFrom) {
  const Outcome o = reproduce(fmt::format("{} --json", kFew));
  const json all = json_of(o);
  EXPECT_EQ(all["schema"], 2);
  EXPECT_EQ(all["command"], "reproduce mlperf");
  EXPECT_EQ(all["machines"], json::array({"pod16", "host"}));
  ASSERT_EQ(all["sections"].size(), 3u);
  for (const json& section : all["sections"])
    for (const json& c : section["comparisons"]) {
      EXPECT_TRUE(c["published"].is_number() || c["says"] != "") << c;
      EXPECT_TRUE(c["ours"].is_number() ? c["origin"] != "" : c["remark"] != "") << c;
    }
}

TEST_F(MlperfTest, WritesTablesAndAPage) {
  const Outcome o = reproduce(fmt::format("{} --report '{}'", kFew, path("page.html")));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_TRUE(says(o.out, "GC200: memory bandwidth"));
  EXPECT_TRUE(says(o.out, "stage 0:"));
  const std::string page = content_of(path("page.html"));
  EXPECT_EQ(MarkupReader::read(page).name, "html");
  EXPECT_TRUE(says(page, "The grouped schedule"));
  EXPECT_TRUE(says(content_of(path("results") + "/mlperf.csv"), "POD64: chips"));
}

TEST_F(MlperfTest, RefusesUnknownSections) {
  expect_refused(reproduce("--only nowhere"), "--only: invalid value 'nowhere' (choose from ");
}

}  // namespace
}  // namespace tessera
