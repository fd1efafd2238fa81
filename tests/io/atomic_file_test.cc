#include "io/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <span>
#include <string>

#include "io/files.h"
#include "support/error_of.h"

namespace tessera::io {
namespace {

using test::content_of;

void append(AtomicFile& file, const std::string& text) { file.write(std::as_bytes(std::span(text))); }

TEST(AtomicFile, AppearsOnlyWhenCommitted) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("out");
  {
    AtomicFile file(path);
    append(file, "hello ");
    append(file, "world");
    EXPECT_FALSE(std::filesystem::exists(path));
    file.commit();
    EXPECT_EQ(content_of(path), "hello world");
  }
  EXPECT_EQ(content_of(path), "hello world");
  EXPECT_EQ(folder.count(), 1u);
}

TEST(AtomicFile, LeavesNothingBehindWithoutCommit) {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("out", "old");
  {
    AtomicFile file(path);
    append(file, "half of the n");
  }
  EXPECT_EQ(content_of(path), "old");
  EXPECT_EQ(folder.count(), 1u);
}

TEST(AtomicFile, KeepsThePermissionsOfWhatItReplaces) {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("out", "old");
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  AtomicFile file(path);
  file.commit();
  struct stat status = {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST(AtomicFile, SaysWhatIsWrong) {
  const test::TemporaryFolder folder;
  EXPECT_ERROR("missing/out: cannot create a temporary file beside it: No such file",
               AtomicFile file(folder.file("missing/out")));
  EXPECT_ERROR("not a regular file", AtomicFile file(folder.path().string()));
  EXPECT_ERROR("/dev/null: not a regular file", AtomicFile file("/dev/null"));
}

TEST(AtomicFile, AnInterruptedProgramLeavesNothing) {
  const test::TemporaryFolder folder;
  AtomicFile file(folder.file("out"));
  append(file, "half of the n");
  EXPECT_LE(folder.count(), 1u);  // none where it has no name
  remove_unfinished_files();
  EXPECT_EQ(folder.count(), 0u);
}

/// Names of files have at most 255 bytes; the name of the temporary file has 7 more than the file's.
TEST(AtomicFile, KnowsAtOnceWhetherANameIsTooLong) {
  const test::TemporaryFolder folder;
  const std::string longest = folder.file(std::string(248, 'x'));
  write_text(longest, "new");
  write_text(longest, "newer");
  EXPECT_EQ(content_of(longest), "newer");
  EXPECT_ERROR("cannot create a temporary file beside it", require_writable(longest + "x"));
  EXPECT_EQ(folder.count(), 1u);
}

TEST(AtomicFile, AKilledProgramLeavesNothing) {
  const test::TemporaryFolder folder;
  const int unnamed = ::open(folder.path().c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (unnamed < 0) GTEST_SKIP() << "the file system has no files without a name";
  ::close(unnamed);
  const std::string path = folder.write("out", "old");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    AtomicFile file(path);
    append(file, "half of the n");
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(content_of(path), "old");
  EXPECT_EQ(folder.count(), 1u);
}

}  // namespace
}  // namespace tessera::io
