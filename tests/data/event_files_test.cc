// Files of events: official formats, damaged ones.
#include "support/event_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "data/events/aedat.h"
#include "data/events/event_array.h"
#include "data/events/n_mnist.h"
#include "io/files.h"
#include "io/npy_integers.h"
#include "support/error_of.h"

namespace tessera::train {
namespace {

using test::aedat_event;
using test::aedat_header;
using test::aedat_packet;
using test::error_of;
using test::in_memory;
using test::little_endian;
using test::n_mnist_event;
using test::npy_file;
using test::says;
using ::testing::ElementsAre;

template <class Read>
std::string error_in(const std::string& content, Read read) {
  return error_of([&] { read(in_memory(content)); });
}

TEST(NMnist, EventsHavePixelPolarityAndTime) {
  const std::string file = n_mnist_event(7, 15, 1, 654) + n_mnist_event(33, 0, 0, 0x7FFFFF);
  EXPECT_THAT(read_n_mnist(in_memory(file)),
              ElementsAre(PixelEvent{654, 7, 15, 1}, PixelEvent{0x7FFFFF, 33, 0, 0}));
}

TEST(NMnist, Row240MovesTimesOn) {
  const std::string overflow = n_mnist_event(0, 240, 0, 0);
  const std::string file = n_mnist_event(1, 1, 0, 8000) + overflow + n_mnist_event(1, 1, 0, 10) + overflow +
                           n_mnist_event(1, 1, 0, 20);
  EXPECT_THAT(read_n_mnist(in_memory(file)), ElementsAre(PixelEvent{8000, 1, 1}, PixelEvent{8192 + 10, 1, 1},
                                                         PixelEvent{2 * 8192 + 20, 1, 1}));
}

TEST(NMnist, DamagedFilesAreRefused) {
  EXPECT_TRUE(
      says(error_in("123456", read_n_mnist), "w: 6 bytes; a recording of N-MNIST has 5 for each event"));
  EXPECT_TRUE(says(error_in(n_mnist_event(34, 1, 0, 0), read_n_mnist), "event 0 is at pixel (34, 1)"));
  EXPECT_TRUE(
      says(error_in(n_mnist_event(1, 239, 0, 0), read_n_mnist), "at pixel (1, 239); the sensor has 34 × 34"));
  EXPECT_TRUE(read_n_mnist(in_memory("")).empty());
}

TEST(NMnist, ARealRecordingIsRead) {
  const char* data = std::getenv("TESSERA_DATA");
  const std::string path = data == nullptr ? "" : std::string(data) + "/nmnist/sample.bin";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "TESSERA_DATA has no nmnist/sample.bin";
  const auto events = read_n_mnist(io::Source::open(path));
  EXPECT_EQ(events.size(), 4325u);
  EXPECT_TRUE(std::ranges::is_sorted(events, {}, &PixelEvent::time));
  EXPECT_GT(events.back().time, 300'000);
  EXPECT_LT(events.back().time, 320'000);
}

TEST(Aedat, PolarityEventsAreRead) {
  const std::string packet =
      aedat_packet(1, 8, 0, 3,
                   aedat_event(127, 0, 1, 5) + aedat_event(3, 4, 0, 6, /*valid=*/false) +
                       aedat_event(3, 126, 0, 0x7FFFFFFF));
  const std::string other = aedat_packet(0, 8, 0, 2, std::string(16, 'x'));
  const std::string later = aedat_packet(1, 8, 2, 1, aedat_event(1, 2, 0, 9));
  EXPECT_THAT(read_aedat(in_memory(aedat_header() + packet + other + later)),
              ElementsAre(PixelEvent{5, 127, 0, 1}, PixelEvent{0x7FFFFFFF, 3, 126, 0},
                          PixelEvent{(int64_t{2} << 31) + 9, 1, 2, 0}));
}

TEST(Aedat, DamagedFilesAreRefused) {
  const std::string header = aedat_header();
  EXPECT_TRUE(says(error_in("RIFF", read_aedat), "not an AEDAT file"));
  EXPECT_TRUE(says(error_in("#!AER-DAT2.0\r\n", read_aedat), "version \"#!AER-DAT2.0\"; only #!AER-DAT3.1"));
  EXPECT_TRUE(says(error_in("#!AER-DAT3.1\r\n#x\r\n", read_aedat), "the header has no line #!END-HEADER"));
  EXPECT_TRUE(says(error_in("#!AER-DAT3.1\r\nx\r\n#!END-HEADER\r\n", read_aedat), "\"x\" in the header"));
  EXPECT_TRUE(says(error_in(header + "abc", read_aedat), "3 bytes are left at byte"));
  const std::string packet = aedat_packet(1, 8, 0, 2, aedat_event(1, 1, 0, 1));
  EXPECT_TRUE(says(error_in(header + packet, read_aedat), "a packet of 2 events of 8 bytes at byte"));
  EXPECT_TRUE(
      says(error_in(header + aedat_packet(1, 4, 0, 1, "abcd"), read_aedat), "polarity events of 4 bytes"));
  EXPECT_TRUE(says(error_in(header + aedat_packet(1, 8, 0, 1, aedat_event(128, 1, 0, 1)), read_aedat),
                   "event 0 is at pixel (128, 1); the sensor has 128 × 128"));
  std::string unequal = aedat_packet(1, 8, 0, 1, aedat_event(1, 1, 0, 1));
  unequal[16] = 7;  // the capacity
  EXPECT_TRUE(says(error_in(header + unequal, read_aedat), "1 events and room for 7"));
  EXPECT_TRUE(read_aedat(in_memory(header)).empty());
}

TEST(Gestures, ListsHaveClassBeginAndEnd) {
  const std::string list = "class,startTime_usec,endTime_usec\r\n1,10,20\n11, 30 , 4611686018427387904\r\n\n";
  EXPECT_THAT(read_gestures(in_memory(list)),
              ElementsAre(Gesture{0, 10, 20}, Gesture{10, 30, int64_t{1} << 62}));
  EXPECT_TRUE(says(error_in("h\n12,1,2\n", read_gestures), "12"));
  EXPECT_TRUE(says(error_in("h\n0,1,2\n", read_gestures), "gesture 1 has class 0"));
  EXPECT_TRUE(says(error_in("h\n1,2,2\n", read_gestures), "from 2 to 2 µs"));
  EXPECT_TRUE(says(error_in("h\n1,2\n", read_gestures), "end"));
  EXPECT_TRUE(says(error_in("h\n1,2,3,4\n", read_gestures), "end"));
}

TEST(NpyIntegers, AllTypesAndOrdersAreRead) {
  const auto values = [](const std::string& file) {
    return io::read_npy_integers(in_memory(file), 100).values;
  };
  EXPECT_THAT(values(npy_file("'|b1'", "(2,)", std::string("\x00\x02", 2))), ElementsAre(0, 1));
  EXPECT_THAT(values(npy_file("'|i1'", "(2,)", "\x01\xFF")), ElementsAre(1, -1));
  EXPECT_THAT(values(npy_file("'|u1'", "(1,)", "\xFF")), ElementsAre(255));
  EXPECT_THAT(values(npy_file("'>i2'", "(1,)", "\xFF\xFE")), ElementsAre(-2));
  EXPECT_THAT(values(npy_file("'<u2'", "(1,)", "\x01\x02")), ElementsAre(513));
  EXPECT_THAT(values(npy_file("'<i4'", "(1,)", little_endian(70000, 4))), ElementsAre(70000));
  EXPECT_THAT(values(npy_file("'>u4'", "(1,)", std::string("\x80\0\0\0", 4))), ElementsAre(2147483648));
  EXPECT_THAT(values(npy_file("'<i8'", "(1,)", std::string(8, '\xFF'))), ElementsAre(-1));
  EXPECT_THAT(values(npy_file("'<u8'", "()", little_endian(5, 8))), ElementsAre(5));
  EXPECT_THAT(values(npy_file("'|u1'", "(2, 3)", "\1\4\2\5\3\6", true)), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(values(npy_file("'|u1'", "(2, 1, 2)", "\1\3\2\4", true)), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(values(npy_file("'|u1'", "(0, 3)", "")), ElementsAre());
}

TEST(NpyIntegers, OthersAreRefused) {
  const auto error = [](const std::string& file, uint64_t most = 100) {
    return error_of([&] { io::read_npy_integers(in_memory(file), most); });
  };
  EXPECT_TRUE(says(error(npy_file("'<f4'", "(1,)", "abcd")), "whole numbers are expected"));
  EXPECT_TRUE(says(error(npy_file("[('a', '<f8')]", "(0,)", "")), "whole numbers are expected"));
  EXPECT_TRUE(
      says(error(npy_file("'<u8'", "(1,)", std::string(8, '\xFF'))), "the value 18446744073709551615"));
  EXPECT_TRUE(says(error(npy_file("'|u1'", "(3,)", "ab")), "2 bytes of data; its header promises 3"));
  EXPECT_TRUE(says(error(npy_file("'|u1'", "(3,)", "abcd")), "4 bytes of data; its header promises 3"));
  EXPECT_TRUE(says(error(npy_file("'|u1'", "(3,)", "abc"), 2), "more than 2 values"));
  EXPECT_TRUE(says(error(npy_file("[('a', '|u1'), ('b', '|u1')]", "(2,)", "abcd"), 3), "more than 3 values"));
  EXPECT_TRUE(says(error(npy_file("'|u1'", "(4294967296, 4294967296)", "")), "more than 100 values"));
  EXPECT_TRUE(says(error(npy_file("[('a', '|u1', (2,))]", "(1,)", "ab")), "records with arrays"));
  EXPECT_TRUE(says(error(npy_file("[('a', [('b', '|u1')])]", "(1,)", "ab")), "records within records"));
  EXPECT_TRUE(says(error(npy_file("[]", "(1,)", "ab")), "records without fields"));
}

TEST(EventArrays, RecordsAreReadByName) {
  const std::string record = little_endian(7, 8) + little_endian(3, 2) + "\x01";
  for (const char* p : {"'|b1'", "'|i1'"}) {
    const std::string descr = std::string("[('t', '<i8'), ('x', '<u2'), ('p', ") + p + ")]";
    EXPECT_THAT(read_event_array(in_memory(npy_file(descr, "(2,)", record + record))),
                ElementsAre(PixelEvent{7, 3, 0, 1}, PixelEvent{7, 3, 0, 1}));
  }
}

TEST(EventArrays, RowsOfNumbersAreXYTP) {
  const std::string row = little_endian(5, 4) + little_endian(6, 4) + little_endian(70, 4);
  const std::string rows = row + little_endian(1, 4) + row + std::string(4, '\xFF');
  EXPECT_THAT(read_event_array(in_memory(npy_file("'<i4'", "(2, 4)", rows))),
              ElementsAre(PixelEvent{70, 5, 6, 1}, PixelEvent{70, 5, 6, 0}));
}

TEST(EventArrays, OthersAreRefused) {
  const auto error = [](const std::string& file) { return error_in(file, read_event_array); };
  EXPECT_TRUE(
      says(error(npy_file("'|u1'", "(4,)", "abcd")), "events are [events, 4] (x, y, t, p), or records"));
  EXPECT_TRUE(says(error(npy_file("'|u1'", "(1, 3)", "abc")), "events are [events, 4]"));
  EXPECT_TRUE(says(error(npy_file("[('t', '|u1')]", "(1,)", "a")), "records without a field x"));
  EXPECT_TRUE(says(error(npy_file("[('x', '|u1')]", "(1,)", "a")), "records without a field t"));
  EXPECT_TRUE(
      says(error(npy_file("[('t', '|u1'), ('x', '|u1')]", "(1, 1)", "ab")), "records in 2 dimensions"));
  EXPECT_TRUE(says(error(npy_file("'|i1'", "(1, 4)", std::string("\xFF\0\0\0", 4))), "event 0 has x = -1"));
  EXPECT_TRUE(says(error(npy_file("'|i1'", "(1, 4)", std::string("\0\0\xFF\0", 4))), "event 0 has t = -1"));
  EXPECT_TRUE(says(error(npy_file("'|i1'", "(1, 4)", std::string("\0\0\0\2", 4))), "event 0 has p = 2"));
  EXPECT_TRUE(says(error(npy_file("'<i4'", "(1, 4)",
                                  little_endian(0, 4) + little_endian(65536, 4) + std::string(8, '\0'))),
                   "event 0 has y = 65536; 0 to 65535 are possible"));
}

}  // namespace
}  // namespace tessera::train
