#include "io/weights.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <tessera/io.h>

#include "io/files.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "sparse/pattern.h"
#include "support/error_of.h"

namespace tessera::io {
namespace {

using test::error_of;
using test::says;
using test::TemporaryFolder;
using Values = std::vector<float>;

TEST(ReadWeights, TheExtensionNamesTheFormat) {
  const TemporaryFolder folder;
  const Values values = {1, 0, 0, 2};
  const TensorData tensor{
      .name = "w", .dtype = "F32", .shape = {2, 2}, .bytes = std::as_bytes(std::span(values))};
  folder.write("w.smtx", "2, 2, 2\n0 1 2\n0 1\n");
  folder.write("w.MTX", "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n2 2 2\n");
  folder.write("pattern.mtx", "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n");
  write_npy(folder.file("w.npy"), 2, 2, values);
  write_safetensors(folder.file("w.safetensors"), std::span(&tensor, 1));

  EXPECT_FALSE(read_weights(folder.file("w.smtx")).has_values);
  EXPECT_FALSE(read_weights(folder.file("pattern.mtx")).has_values);
  for (const char* name : {"w.MTX", "w.npy", "w.safetensors"}) {
    const Weights weights = read_weights(folder.file(name));
    EXPECT_TRUE(weights.has_values) << name;
    EXPECT_EQ(sparse::to_dense(weights.matrix), values) << name;
  }
  EXPECT_EQ(sparse::to_dense(read_weights(folder.file("w.safetensors"), "w").matrix), values);
}

TEST(ReadWeights, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& name, const std::string& tensor = "") {
    return error_of([&] { read_weights(folder.file(name), tensor); });
  };
  EXPECT_TRUE(says(message("missing.npy"), "missing.npy: cannot open the file: No such file"));
  EXPECT_TRUE(says(message("w.pt"), "the extension .pt is not known; weights are read from .smtx"));
  EXPECT_TRUE(says(message("weights"), "the extension (none) is not known"));
  EXPECT_TRUE(says(message("w.npy", "layer"), "tensor \"layer\" was asked for; a .npy file holds one"));
  std::filesystem::create_directory(folder.path() / "folder.mtx");
  EXPECT_TRUE(says(message("folder.mtx"), "not a regular file"));
  ASSERT_EQ(::mkfifo(folder.file("pipe.mtx").c_str(), 0600), 0);
  EXPECT_TRUE(says(message("pipe.mtx"), "not a regular file"));
  EXPECT_EQ(error_of<UsageError>([&] { read_weights("w.pt"); }).find("(no error)"), std::string::npos);
}

TEST(ReadWeights, RefusesFilesBeyondTheMemory) {
  const TemporaryFolder folder;
  for (const char* name : {"w.smtx", "w.mtx"}) {
    const std::string path = folder.write(name, "1");
    if (::truncate(path.c_str(), off_t{1} << 42) != 0) {
      GTEST_SKIP() << "the file system does not take a file of 4 TB";
    }
    const std::string message = error_of([&] { read_weights(path); });
    EXPECT_TRUE(says(message, path + ": reading the file needs 4.4 TB of memory and"));
  }
}

TEST(ReadMatrix, FillsPatternsWithSeededValues) {
  const TemporaryFolder folder;
  const std::string path = folder.write("w.smtx", "2, 2, 2\n0 1 2\n0 1\n");
  const SparseMatrix one = read_matrix(path, "", 1);
  EXPECT_EQ(one.values.size(), 2u);
  EXPECT_EQ(one.values, read_matrix(path, "", 1).values);
  EXPECT_NE(one.values, read_matrix(path, "", 2).values);
  for (float value : one.values) EXPECT_NE(value, 0);
}

}  // namespace
}  // namespace tessera::io
