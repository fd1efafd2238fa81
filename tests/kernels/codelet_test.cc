// One test for every listed codelet: its samples, in every layout, on every instruction set.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/integer_types.h"
#include "kernels/common/element.h"
#include "kernels/list.h"
#include "kernels/samples/list.h"
#include "machine/model/figures.h"
#include "machine/model/machine.h"
#include "support/every_isa.h"
#include "support/number_of.h"
#include "support/toy_machine.h"

namespace tessera::kernels {
namespace {

struct Case {
  const program::Codelet* codelet;
  NamedSample sample;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.codelet->name << "/" << c.sample.name; }

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const ListedCodelet& listed : all_codelets())
    for (const NamedSample& sample : samples_of(*listed.codelet)) cases.push_back({listed.codelet, sample});
  return cases;
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  std::string name = fmt::format("{}_{}", info.param.codelet->name, info.param.sample.name);
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

constexpr SampleLayout kLayouts[] = {
    {},
    {.shift = 1},
    {.padding = 3},
    {.shift = 3, .padding = 5, .column_major = true},
};

bool is_close(double value, double expected, const Tolerance& tolerance) {
  if (std::isnan(expected) || std::isnan(value)) return std::isnan(expected) == std::isnan(value);
  if (value == expected) return true;
  return std::abs(value - expected) <= tolerance.relative * std::abs(expected) + tolerance.absolute;
}

void expect_same_fields(const Sample& sample, const SampleVertex& fast, const SampleVertex& plain) {
  for (size_t f = 0; f < sample.fields().size(); ++f) {
    if (sample.codelet().fields[f].scratch || fast.has_bits_of(plain, f)) continue;
    const Sample::Field& field = sample.fields()[f];
    for (uint32_t r = 0; r < field.rows; ++r)
      for (uint32_t c = 0; c < field.cols; ++c)
        ASSERT_TRUE(is_close(fast.at(f, r, c), plain.at(f, r, c), sample.tolerance()))
            << "field '" << sample.codelet().fields[f].name << "' (" << r << ", " << c
            << "): " << fast.at(f, r, c) << ", the reference has " << plain.at(f, r, c);
  }
}

/// The SIMD form on every instruction set against the reference.
void expect_agreement(const Case& c, uint32_t scale, const SampleLayout& layout) {
  const auto& [codelet, named] = c;
  const program::RunVertex simd = codelet->simd != nullptr ? codelet->simd : codelet->reference;
  const Sample sample = named.make(scale, scale);
  const SampleVertex plain(sample, layout);
  codelet->reference(plain.vertex());
  ASSERT_TRUE(plain.surroundings_untouched());
  test::on_every_isa([&] {
    SCOPED_TRACE(fmt::format("scale {}, seed {}, shift {}, padding {}, column-major {}", scale, scale,
                             layout.shift, layout.padding, layout.column_major));
    const SampleVertex fast(sample, layout);
    simd(fast.vertex());
    expect_same_fields(sample, fast, plain);
    ASSERT_TRUE(fast.surroundings_untouched());
  });
}

class CodeletTest : public ::testing::TestWithParam<Case> {};

/// The short run takes one layout at each scale, and the next layout for a codelet's next sample.
TEST_P(CodeletTest, SimdAgreesWithTheReference) {
  const auto& [codelet, named] = GetParam();
  const std::span<const NamedSample> samples = samples_of(*codelet);
  const auto number = std::ranges::find(samples, named.name, &NamedSample::name) - samples.begin();
  for (uint32_t scale : {0U, 1U, 2U, 5U, 11U})
    for (size_t layout = 0; layout < std::size(kLayouts); ++layout) {
      if (!test::is_full() && (static_cast<size_t>(number) + scale + layout) % 4 != 0) continue;
      expect_agreement(GetParam(), scale, kLayouts[layout]);
      if (HasFatalFailure()) return;
    }
}

TEST_P(CodeletTest, SampleMatchesItsCodelet) {
  const auto [codelet, named] = GetParam();
  const Sample sample = named.make(1, 1);
  EXPECT_EQ(&sample.codelet(), codelet);
  EXPECT_EQ(sample.fields().size(), codelet->fields.size());
  EXPECT_EQ(sample.params().size(), codelet->params.size());
}

machine::Machine with_isa(machine::Machine host, Isa isa) {
  host.name = name_of(isa);
  host.figures = machine::builtin_figures(host.facts, isa, 2);
  return host;
}

/// This host, and a host for each instruction set.
std::vector<machine::Machine> hosts() {
  std::vector<machine::Machine> hosts = {machine::host(2)};
  for (const Isa isa :
       {Isa::generic, Isa::neon, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::avx512_bf16_sparse, Isa::amx})
    hosts.push_back(with_isa(hosts.front(), isa));
  return hosts;
}

std::vector<machine::Machine> machines_for(program::RunsOn runs_on) {
  static const std::vector<machine::Machine> all_hosts = hosts();
  std::vector<machine::Machine> machines;
  if (runs_on != program::RunsOn::tiles) machines = all_hosts;
  if (runs_on != program::RunsOn::hosts) machines.push_back(tessera::testing::toy_machine(4));
  return machines;
}

TEST_P(CodeletTest, CostIsPositiveAndGrows) {
  const auto [codelet, named] = GetParam();
  const std::vector<machine::Machine> machines = machines_for(codelet->runs_on);
  std::vector<double> previous(machines.size());
  for (uint32_t scale : {1U, 4U, 16U}) {
    const Sample sample = named.make(scale, 1);
    const SampleVertex placed(sample);
    for (size_t m = 0; m < machines.size(); ++m) {
      const double cycles = codelet->cost(placed.vertex(), machines[m]).total();
      EXPECT_GT(cycles, previous[m]) << "scale " << scale << " on " << machines[m].name;
      EXPECT_TRUE(std::isfinite(cycles)) << "scale " << scale << " on " << machines[m].name;
      previous[m] = cycles;
    }
  }
}

TEST_P(CodeletTest, CostReadsNoPayload) {
  const auto [codelet, named] = GetParam();
  const Sample sample = named.make(4, 1);
  const SampleVertex placed(sample);
  std::vector<program::FieldView> blind(placed.vertex().fields.begin(), placed.vertex().fields.end());
  for (program::FieldView& field : blind)
    if (!is_integer(field.type)) field.data = nullptr;
  const program::Vertex vertex{blind, placed.vertex().params};
  for (const machine::Machine& machine : machines_for(codelet->runs_on))
    EXPECT_EQ(codelet->cost(vertex, machine).total(), codelet->cost(placed.vertex(), machine).total());
}

/// Loops whose passes differ in other integers, such as steps and keys of random numbers, are counted once.
TEST_P(CodeletTest, CostOnTilesReadsNoIntegersButThoseOfCostedFields) {
  const auto [codelet, named] = GetParam();
  if (codelet->runs_on == program::RunsOn::hosts) return;
  const Sample sample = named.make(4, 1);
  const SampleVertex placed(sample);
  std::vector<program::FieldView> blind(placed.vertex().fields.begin(), placed.vertex().fields.end());
  for (size_t f = 0; f < blind.size(); ++f)
    if (!codelet->fields[f].costed) blind[f].data = nullptr;
  const program::Vertex vertex{blind, placed.vertex().params};
  for (const machine::Machine& machine : machines_for(program::RunsOn::tiles))
    EXPECT_EQ(codelet->cost(vertex, machine).total(), codelet->cost(placed.vertex(), machine).total());
}

/// Where dot products of BF16 are slow, only products with blocks use them: all others have the cost and the
/// bits of AVX-512 without them.
TEST(Bf16Codelets, WidenDenseOperandsWhereDotProductsAreSlow) {
  const machine::Machine host = machine::host(2);
  const machine::Machine without = with_isa(host, Isa::avx512),
                         slow = with_isa(host, Isa::avx512_bf16_sparse);
  size_t differing = 0;
  bool is_slow = false;
  for (const Case& c : all_cases()) {
    const program::Codelet& codelet = *c.codelet;
    if (codelet.runs_on == program::RunsOn::tiles || codelet.name.starts_with("block_spmm") ||
        c.sample.name.find("bf16") == std::string_view::npos)
      continue;
    SCOPED_TRACE(fmt::format("{}/{}", codelet.name, c.sample.name));
    const Sample sample = c.sample.make(5, 5);
    std::map<Isa, SampleVertex> results;
    test::on_every_isa([&] {
      const SampleVertex& result = results.try_emplace(active_isa(), sample).first->second;
      (codelet.simd != nullptr ? codelet.simd : codelet.reference)(result.vertex());
    });
    const program::Vertex vertex = results.begin()->second.vertex();
    EXPECT_EQ(codelet.cost(vertex, slow).total(), codelet.cost(vertex, without).total());
    const auto widened = results.find(Isa::avx512_bf16_sparse);
    if (widened == results.end()) continue;
    is_slow = true;
    const auto has_bits_of = [&](Isa isa) {
      for (size_t f = 0; f < sample.fields().size(); ++f)
        if (!codelet.fields[f].scratch && !widened->second.has_bits_of(results.at(isa), f)) return false;
      return true;
    };
    EXPECT_TRUE(has_bits_of(Isa::avx512));
    if (!has_bits_of(Isa::avx512_bf16)) ++differing;
  }
  EXPECT_EQ(differing > 0, is_slow);
}

bool is_structured(const program::Codelet& codelet) {
  const auto begins = [&](std::string_view family) { return codelet.name.starts_with(family); };
  return codelet.runs_on == program::RunsOn::hosts &&
         (begins("butterfly_") || begins("circulant_") || begins("fastfood_"));
}

/// Their strides sweep over several chunks, once or more, or their transforms have many levels.
TEST(LargeStructuredMaps, AgreeWithTheReference) {
  size_t compared = 0;
  // The time of references grows with the square of the size, except for butterflies.
  const uint32_t large = test::is_full() ? 256 : 128;
  for (const Case& c : all_cases())
    for (uint32_t scale : {32U, 64U, 128U, 256U, 1024U}) {
      const std::string_view batch = c.sample.name.substr(0, c.sample.name.find('-'));
      const bool is_fast = scale < large || (batch == "n1" && scale == 128) || batch == "n19";
      if (!is_structured(*c.codelet) || !is_fast) continue;
      if (scale > large && !c.codelet->name.starts_with("butterfly_")) continue;
      expect_agreement(c, scale, {});
      ++compared;
    }
  EXPECT_GE(compared, test::number_of_cases(100, 200));
}

/// NaN and infinity in one sample do not change the results of the others.
TEST(StructuredMaps, KeepSamplesApart) {
  for (const Case& c : all_cases()) {
    if (!is_structured(*c.codelet) || !c.codelet->name.ends_with("_forward")) continue;
    const auto position_of = [&](std::string_view name) {
      return static_cast<size_t>(std::ranges::find(c.codelet->fields, name, &program::FieldSpec::name) -
                                 c.codelet->fields.begin());
    };
    const size_t x = position_of("x"), y = position_of("y");
    const Sample sample = c.sample.make(5, 5);
    const bool is_transposed = sample.params()[0] != 0;
    const auto samples = is_transposed ? sample.fields()[y].cols : sample.fields()[y].rows;
    const auto features = is_transposed ? sample.fields()[y].rows : sample.fields()[y].cols;
    const uint32_t spoiled = samples / 2;
    test::on_every_isa([&] {
      SCOPED_TRACE(fmt::format("{}/{}", c.codelet->name, c.sample.name));
      const SampleVertex plain(sample), other(sample);
      const auto at = [&](const SampleVertex& of, uint32_t s, uint32_t f) {
        return is_transposed ? of.at(y, f, s) : of.at(y, s, f);
      };
      set_number(other.vertex().fields[x], is_transposed ? 0 : spoiled, is_transposed ? spoiled : 0, NAN);
      c.codelet->simd(plain.vertex());
      c.codelet->simd(other.vertex());
      bool is_spoiled = false;
      for (uint32_t f = 0; f < features; ++f) {
        is_spoiled = is_spoiled || std::isnan(at(other, spoiled, f));
        for (uint32_t s = 0; s < samples; ++s) {
          if (s == spoiled) continue;
          ASSERT_EQ(at(other, s, f), at(plain, s, f)) << s << ", " << f;
        }
      }
      EXPECT_TRUE(is_spoiled);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(List, CodeletTest, ::testing::ValuesIn(all_cases()), name_of_case);

TEST(CodeletListTest, EveryCodeletHasSamples) {
  for (const ListedCodelet& listed : all_codelets())
    EXPECT_FALSE(samples_of(*listed.codelet).empty()) << listed.codelet->name;
}

TEST(CodeletListTest, EverySampleIsOfAListedCodelet) {
  for (const CodeletSamples& samples : all_samples())
    EXPECT_EQ(find_codelet(samples.codelet->name), samples.codelet);
}

TEST(CodeletListTest, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const ListedCodelet& listed : all_codelets())
    EXPECT_TRUE(names.insert(listed.codelet->name).second) << listed.codelet->name;
}

}  // namespace
}  // namespace tessera::kernels
