// Pages: well-formed for any contents.
#include "report/page.h"

#include <gtest/gtest.h>
#include <tessera/error.h>

#include "base/random.h"
#include "report/chart.h"
#include "report/strict_markup.h"

namespace tessera::report {
namespace {

using testing::MarkupReader;
using testing::Node;

constexpr const char* kHostile =
    "<script>alert('x')</script> & \"quoted\" ]]> --> µ × \x01 \xFF \xC0\x80 \xED\xA0\x80";

TEST(Html, EscapesWhatMeansSomething) {
  EXPECT_EQ(escaped("a<b>&\"c'"), "a&lt;b&gt;&amp;&quot;c&#39;");
  EXPECT_EQ(escaped("µ ×\n\t"), "µ ×\n\t");
  EXPECT_EQ(escaped(std::string_view("\0\x1F", 2)), "\uFFFD\uFFFD");
  EXPECT_EQ(escaped("\xC0\x80\xF5\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");  // not UTF-8
  EXPECT_EQ(escaped("\xF0\x9F\x98\x80\xE2\x82"), "\U0001F600\uFFFD\uFFFD");                // cut short
}

TEST(Html, RandomBytesStayWellFormed) {
  const uint64_t seed = 20261121;
  SCOPED_TRACE(seed);
  base::RandomStream random(seed, 0, 0);
  for (int i = 0; i < 300; ++i) {
    std::string bytes(1 + i % 40, '\0');
    for (size_t b = 0; b < bytes.size(); ++b)
      bytes[b] = static_cast<char>(random.word(static_cast<uint64_t>(i) * 64 + b));
    const Html html = element("p", {{"title", bytes}}, bytes);
    const Node node = MarkupReader::read(html.code);
    EXPECT_EQ(node.text, node.attribute("title"));
  }
}

TEST(Page, IsWellFormedWithHostileText) {
  Page page(kHostile, kHostile);
  page.add_section(
      kHostile, paragraph(kHostile) + folded(kHostile, key_figures({{kHostile, kHostile, kHostile, true}})));
  RichTable rich({{kHostile, RichTable::Align::left}, {kHostile}});
  RichTable::Cell shaded(kHostile);
  shaded.title = kHostile;
  shaded.shade = -0.5;
  rich.add({kHostile, shaded}, true);
  Table plain({kHostile, kHostile});
  plain.add({kHostile, kHostile});
  LineChart lines;
  lines.frame = {kHostile, kHostile};
  lines.x.label = kHostile;
  lines.series = {{kHostile, {{1, 2, kHostile}}}, {kHostile, {{3, 4}}}};
  lines.limit = Limit{3, kHostile};
  page.add_section(kHostile, rich.html() + table(plain) + chart(lines));
  const Node root = MarkupReader::read(page.html());
  EXPECT_EQ(root.name, "html");
  EXPECT_TRUE(root.all("script").empty());
  EXPECT_EQ(root.all("section").size(), 2U);
  for (const Node* link : root.all("a")) {
    const std::string target = link->attribute("href").substr(1);
    size_t found = 0;
    for (const Node* section : root.all("section")) found += section->attribute("id") == target;
    EXPECT_EQ(found, 1U) << target;
  }
}

TEST(Page, NeedsNoNetwork) {
  Page page("title", "");
  page.add_section("one", key_figures({{"a", "b", ""}}));
  const std::string html = page.html();
  for (const char* reach : {"src=", "url(", "@import", "<link", "<script"})
    EXPECT_EQ(html.find(reach), std::string::npos) << reach;
  // The names of XML namespaces are no addresses of pages.
  for (size_t at = 0; (at = html.find("http", at)) != std::string::npos; ++at)
    EXPECT_EQ(html.substr(at, 18), "http://www.w3.org/") << html.substr(at, 40);
}

TEST(Page, OneSectionNeedsNoContents) {
  Page page("title", "");
  page.add_section("one", {});
  EXPECT_TRUE(MarkupReader::read(page.html()).all("nav").empty());
}

TEST(Page, TablesKeepEveryCell) {
  Table plain({"name", "a", "b"});
  plain.add({"x", "1", "2"});
  plain.add({"y", "3", "4"});
  const Node root = MarkupReader::read(table(plain).code);
  std::vector<std::string> cells;
  for (const Node* cell : root.all("td")) cells.push_back(cell->text);
  EXPECT_EQ(cells, (std::vector<std::string>{"x", "1", "2", "y", "3", "4"}));
  EXPECT_EQ(root.all("th").size(), 3U);
  EXPECT_THROW(plain.add({"z", "5", "6", "7"}), UsageError);
}

}  // namespace
}  // namespace tessera::report
