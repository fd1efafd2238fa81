// `tessera pack` and `tessera reproduce packing`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "base/random.h"
#include "cli/tool.h"
#include "packing/npy_text.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::content_of;
using test::expect_failure;
using test::expect_refused;
using test::json_of;
using test::npy_text;
using test::npy_values;
using test::Outcome;
using test::results_of;
using test::says;

class PackCliTest : public test::ToolTest {
 protected:
  std::string histogram() const { return file("h.csv", "length,count\n3,40\n5,7\n9,20\n10,1\n"); }

  /// 1 to 100 tokens each.
  std::vector<uint16_t> random_lengths(size_t size) const {
    base::RandomSequence random{base::RandomStream(1)};
    std::vector<uint16_t> lengths(size);
    for (uint16_t& length : lengths) length = static_cast<uint16_t>(1 + random.below(100));
    return lengths;
  }
};

TEST_F(PackCliTest, JsonHasItsKeysAndItsNumbersAgree) {
  const Outcome o =
      run(fmt::format("pack --histogram '{}' --max-length 10 --ranks 2 --json "
                      "--algorithm best,spfhp,lpfhp,ffd,next-fit --max-per-pack 2,any",
                      histogram()));
  const json all = json_of(o);
  EXPECT_EQ(all["schema"], 1);
  EXPECT_EQ(all["command"], "pack");
  ASSERT_EQ(all["results"].size(), 10u);
  for (const json& r : all["results"]) {
    for (const char* key :
         {"algorithm", "packs", "sequences", "tokens", "efficiency", "packing_factor", "lower_bound", "gap",
          "optimal", "seconds", "read_seconds", "write_seconds", "overlong_sequences", "depths", "ranks"})
      EXPECT_TRUE(r.contains(key)) << key;
    EXPECT_EQ(r["sequences"], 68);
    EXPECT_EQ(r["tokens"], 345);
    uint64_t packs = 0;
    uint64_t sequences = 0;
    for (const auto& [depth, count] : r["depths"].items()) {
      packs += count.get<uint64_t>();
      sequences += count.get<uint64_t>() * std::stoull(depth);
    }
    EXPECT_EQ(r["packs"], packs);
    EXPECT_EQ(r["sequences"], sequences);
    EXPECT_EQ(r["gap"], packs - r["lower_bound"].get<uint64_t>());
    EXPECT_EQ(r["optimal"], r["gap"] == 0);
    EXPECT_DOUBLE_EQ(r["efficiency"].get<double>(), 345.0 / (10.0 * static_cast<double>(packs)));
  }
}

TEST_F(PackCliTest, CertifiesAndVerifies) {
  const std::string proof = path("proof.json");
  const Outcome o = run(fmt::format(
      "pack --histogram '{}' --max-length 10 --certify --certificate '{}' --json", histogram(), proof));
  const json result = results_of(o)[0];
  EXPECT_EQ(result["certificate"], proof);
  const Outcome verified = run(fmt::format("pack verify '{}' --json", proof));
  EXPECT_EQ(results_of(verified)[0]["lower_bound"], result["lower_bound"]);
  EXPECT_EQ(results_of(verified)[0]["verified"], true);
  EXPECT_EQ(run(fmt::format("pack verify '{}'", proof)).status, 0);

  std::string text = content_of(proof);
  json forged = json::parse(text);
  forged["lower_bound"] = forged["lower_bound"].get<uint64_t>() + 1;
  expect_failure(1, run(fmt::format("pack verify '{}'", file("forged.json", forged.dump()))), "forged.json");
  EXPECT_EQ(run(fmt::format("pack verify '{}'", file("torn.json", text.substr(0, text.size() / 2)))).status,
            1);
  EXPECT_EQ(run("pack verify nowhere.json").status, 1);
}

TEST_F(PackCliTest, WritesPacksOfEveryKindOfInput) {
  const std::vector<uint16_t> lengths = random_lengths(5000);
  std::vector<uint64_t> offsets = {17};
  std::string text;
  for (const uint16_t length : lengths) {
    offsets.push_back(offsets.back() + length);
    text += std::to_string(length) + "\n";
  }
  const std::string npy = file("l.npy", npy_text(lengths, "<u2"));
  const std::string options = " --max-length 128 --algorithm lpfhp --json --out '" + path("packs") + "'";
  std::string first;
  for (const std::string& input :
       {fmt::format("--lengths '{}'", npy), fmt::format("--lengths '{}'", file("l.txt", text)),
        fmt::format("--lengths - <'{}'", file("l.txt", text)),
        fmt::format("--offsets '{}'", file("o.npy", npy_text(offsets, "<i8")))}) {
    const Outcome o = run("pack " + options + " " + input);
    ASSERT_EQ(o.status, 0) << input << o.err;
    const json result = results_of(o)[0];
    const std::string sequence = content_of(path("packs") + "/sequence.npy");
    if (first.empty()) first = sequence;
    EXPECT_EQ(sequence, first) << input;
    const std::vector<uint32_t> ends = npy_values<uint32_t>(content_of(path("packs") + "/offsets.npy"));
    EXPECT_EQ(ends.size(), result["packs"].get<size_t>() + 1);
    EXPECT_EQ(ends.back(), lengths.size());
    EXPECT_EQ(json::parse(content_of(path("packs") + "/meta.json"))["packs"], result["packs"]);
  }
}

/// Names of files may have any bytes, and JSON has UTF-8.
TEST_F(PackCliTest, NamesOfFilesNeedNoUtf8) {
  const std::string lengths = file("caf\xe9.txt", "3\n4\n"), out = path("packs\xe9");
  const Outcome packed =
      run(fmt::format("pack --lengths '{}' --max-length 8 --out '{}' --json", lengths, out));
  EXPECT_EQ(results_of(packed)[0]["packs"], 1);
  EXPECT_TRUE(says(json::parse(content_of(out + "/meta.json"))["source"].get<std::string>(), "/caf"));
  const Outcome missing = run(fmt::format("pack --lengths '{}' --max-length 8 --json", path("none\xe9")));
  EXPECT_TRUE(says(json_of(missing, 1)["error"].get<std::string>(), "cannot open the file"));
}

TEST_F(PackCliTest, CountsWhatIsTooLong) {
  const std::string lengths = file("l.txt", "5\n25\n7\n10\n11\n");
  const std::string pack = fmt::format("pack --lengths '{}' --max-length 10 --json --overlong ", lengths);
  const json dropped = results_of(run(pack + "drop"))[0];
  EXPECT_EQ(dropped["overlong_sequences"], 2);
  EXPECT_EQ(dropped["lost_tokens"], 36);
  EXPECT_EQ(dropped["tokens"], 22);
  EXPECT_EQ(results_of(run(pack + "truncate"))[0]["tokens"], 42);
  const json split = results_of(run(pack + "split --out '" + path("packs") + "'"))[0];
  EXPECT_EQ(split["tokens"], 58);
  EXPECT_EQ(split["sequences"], 8);
  EXPECT_EQ(split["input_sequences"], 5);
  EXPECT_TRUE(std::filesystem::exists(path("packs") + "/begin.npy"));
  EXPECT_TRUE(std::filesystem::exists(path("packs") + "/length.npy"));
  expect_failure(1, run(pack + "error"), "line 2: a sequence of 25 tokens");
}

TEST_F(PackCliTest, StreamsPacksAsTheyClose) {
  const std::vector<uint16_t> lengths = random_lengths(5000);
  std::string text;
  for (const uint16_t length : lengths) text += std::to_string(length) + "\n";
  const std::string input = file("l.txt", text);
  const Outcome o = run(fmt::format("pack --lengths - --max-length 100 --window 64 <'{}'", input));
  ASSERT_EQ(o.status, 0) << o.err;
  std::set<size_t> seen;
  size_t packs = 0;
  std::istringstream lines(o.out);
  for (std::string line; std::getline(lines, line); ++packs) {
    std::istringstream ids(line);
    size_t tokens = 0;
    for (size_t id = 0; ids >> id;) {
      ASSERT_LT(id, lengths.size());
      tokens += lengths[id];
      ASSERT_TRUE(seen.insert(id).second) << id;
    }
    ASSERT_LE(tokens, 100u);
  }
  EXPECT_EQ(seen.size(), lengths.size());
  EXPECT_TRUE(says(o.err, "window 64"));

  const std::string npy = file("l.npy", npy_text(lengths, "<u2"));
  const Outcome counted = run(fmt::format("pack --lengths '{}' --max-length 100 --window 64 --json", npy));
  EXPECT_EQ(results_of(counted)[0]["packs"], packs);
  const Outcome split = run(fmt::format(
      "pack --lengths '{}' --max-length 40 --overlong split --window 64 --json --emit jsonl", npy));
  ASSERT_EQ(split.status, 0) << split.err;
  std::istringstream objects(split.out);
  size_t tokens = 0;
  json last;
  for (std::string line; std::getline(objects, line);) {
    last = json::parse(line);
    if (last.contains("sequence"))
      for (size_t i = 0; i < last["sequence"].size(); ++i) tokens += last["length"][i].get<size_t>();
  }
  EXPECT_EQ(last["results"][0]["tokens"], tokens);
  EXPECT_EQ(last["results"][0]["input_tokens"], tokens);
}

TEST_F(PackCliTest, PacksComeOutWhileTheInputIsOpen) {
  // The producer of the input ends it only after the first pack has come out, or gives up.
  const std::string feed =
      "(echo 7; echo 9; for i in $(seq 100); do [ -s first ] && touch seen && break; sleep 0.1; done)";
  const Outcome o =
      run("pack --lengths - --max-length 10 --window 1",
          "cd '" + folder_.string() + "'; " + feed + " | {} | (head -n 1 >first; cat >/dev/null)");
  EXPECT_EQ(content_of(path("first")), "0\n");
  EXPECT_TRUE(std::filesystem::exists(path("seen"))) << o.err;
}

TEST_F(PackCliTest, OfAHistogramWritesStrategies) {
  const Outcome o =
      run(fmt::format("pack --histogram '{}' --max-length 10 --out '{}'", histogram(), path("packs")));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_TRUE(content_of(path("packs") + "/strategies.csv").starts_with("packs,lengths\n"));
}

TEST_F(PackCliTest, MisuseEndsWithStatus2AndOneMessage) {
  const std::string h = "--histogram h.csv --max-length 10";
  for (const auto& [arguments, message] : std::initializer_list<std::pair<std::string, std::string>>{
           {"", "pass the input once"},
           {"--lengths a --histogram b --max-length 10", "pass the input once"},
           {"--histogram h.csv", "--max-length is missing"},
           {"--histogram h.csv --max-length 0",
            "--max-length: invalid value '0' (expected a whole number from 1 to 268435456)"},
           {h + " --algorithm magic", "magic"},
           {h + " --overlong cut", "unknown policy 'cut' for overlong sequences"},
           {h + " --max-per-pack 0", "--max-per-pack: invalid value '0'"},
           {h + " --time-limit -1", "--time-limit: invalid value '-1' (expected seconds"},
           {h + " --time-limit nan", "--time-limit: invalid value 'nan' (expected seconds"},
           {h + " --shuffle 1", "--shuffle does not go with --histogram"},
           {h + " --window 5", "--window does not go with --histogram"},
           {h + " --certificate c.json", "add --certify"},
           {h + " --algorithm best,ffd --certify", "one --algorithm"},
           {h + " --emit none", "--emit is for --window"},
           {"--lengths a --max-length 10 --shuffle 1", "--shuffle orders the packs of --out"},
           {"--lengths a --max-length 10 --window 0", "--window: invalid value '0'"},
           {"--lengths a --max-length 10 --window 5 --out p", "--out does not go with --window"},
           {"--lengths a --max-length 10 --window 5 --emit x",
            "--emit: invalid value 'x' (choose from ids, jsonl, none)"},
           {h + " --seed x", "--seed: invalid value 'x'"},
           {"--max-length 10 verify c.json", "--max-length is for packing"},
           {h + " --ranks 0", "--ranks: invalid value '0'"}}) {
    SCOPED_TRACE(arguments);
    expect_refused(run("pack " + arguments), message);
  }
  expect_failure(2, run("reproduce packing", "unset TESSERA_DATA; {}"), "--data FOLDER");
  for (const std::string option : {"--machine gc200", "--no-verify", "--threads 1"}) {
    SCOPED_TRACE(option);
    expect_refused(run("reproduce packing " + option), option.substr(0, option.find(' ')));
  }
}

TEST_F(PackCliTest, AFullDiskLeavesNothing) {
  const std::string lengths = file("l.npy", npy_text(random_lengths(100'000), "<u2"));
  expect_failure(1,
                 run(fmt::format("pack --lengths '{}' --max-length 100 --algorithm lpfhp --out '{}'", lengths,
                                 path("packs")),
                     "(ulimit -f 64; {})"),
                 "cannot write");
  EXPECT_EQ(left_behind(), 1u);  // the input
}

TEST_F(PackCliTest, AnInterruptedRunLeavesNothing) {
  const std::string lengths = file("l.npy", npy_text(random_lengths(20'000'000), "<u2"));
  for (const char* patience : {"0.2", "0.4"}) {
    const Outcome o =
        run(fmt::format("pack --lengths '{}' --max-length 100 --algorithm lpfhp --shuffle 1 --out '{}'",
                        lengths, path("packs")),
            std::string("timeout --preserve-status --signal=INT ") + patience + " {}");
    EXPECT_EQ(o.status, 130) << patience;
    EXPECT_EQ(o.err, "interrupted\n") << patience;
    EXPECT_EQ(left_behind(), 1u) << patience;
  }
}

TEST_F(PackCliTest, AnInputThatBecomesShorterIsAnError) {
  const std::string lengths = file("l.npy", npy_text(random_lengths(4'000'000), "<u2"));
  std::filesystem::resize_file(lengths, std::filesystem::file_size(lengths) - 1);
  expect_failure(1, run(fmt::format("pack --lengths '{}' --max-length 100", lengths)), "may be truncated");
}

TEST_F(PackCliTest, PackingsRepeat) {
  const std::string lengths = file("l.npy", npy_text(random_lengths(20'000), "<u2"));
  const auto packs = [&](const std::string& options) {
    const Outcome o = run(
        fmt::format("pack --lengths '{}' --max-length 128 --out '{}' {}", lengths, path("packs"), options));
    EXPECT_EQ(o.status, 0) << o.err;
    return content_of(path("packs") + "/sequence.npy");
  };
  EXPECT_EQ(packs("--shuffle 1"), packs("--shuffle 1"));
  EXPECT_NE(packs("--shuffle 1"), packs("--shuffle 2"));
  EXPECT_EQ(packs("--ranks 4"), packs("--ranks 4"));
}

TEST_F(PackCliTest, ReproducesThePublishedTables) {
  const char* data = std::getenv("TESSERA_DATA");
  if (data == nullptr) GTEST_SKIP() << "TESSERA_DATA names no folder with data sets";
  const Outcome o = run(fmt::format(
      "reproduce packing --only wikipedia,squad-1.1 --json --out '{0}' --csv '{0}.csv' --html '{0}.html'",
      path("packing")));
  ASSERT_EQ(o.status, 0) << o.err;
  size_t compared = 0;
  const json all = json_of(o);
  for (const json& section : all["sections"])
    for (const json& c : section["comparisons"]) {
      const std::string what = c["what"];
      if (c["published"].is_null() || !what.ends_with(": packs")) continue;
      ++compared;
      const double published = c["published"], packs = c["ours"];
      // Numbers for Wikipedia are published in thousands, and the number for "16/max" is off by more. Our
      // NNLSHP needs fewer.
      const double tolerance = published > 1e6 ? 1500 : 0;
      EXPECT_LE(packs, published + tolerance) << c;
      EXPECT_GE(packs, says(what, "nnlshp") ? 0 : published - tolerance) << c;
    }
  EXPECT_EQ(compared, 11u);
  EXPECT_TRUE(says(content_of(path("packing.csv")), "depth 3 best: packs,40195,"));
  EXPECT_TRUE(says(content_of(path("packing.html")), "<svg"));
}

}  // namespace
}  // namespace tessera
