// Checks error messages.
#pragma once

#include <gtest/gtest.h>
#include <tessera/error.h>

#include <string>

namespace tessera::test {

/// The message of the `Expected` that calling f() throws; "(no error)" when it returns.
template <class Expected = Error, class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Expected& error) {
    return error.what();
  }
  return "(no error)";
}

/// Whether the message contains the text; for EXPECT_TRUE.
inline ::testing::AssertionResult says(const std::string& message, const std::string& text) {
  if (message.find(text) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "the message is: " << message << "\nand lacks: " << text;
}

}  // namespace tessera::test

/// Expects the statement to throw an Error, or a UsageError, whose message contains the text.
#define EXPECT_ERROR(text, ...) \
  EXPECT_TRUE(::tessera::test::says(::tessera::test::error_of([&] { __VA_ARGS__; }), text))
#define EXPECT_USAGE_ERROR(text, ...) \
  EXPECT_TRUE(                        \
      ::tessera::test::says(::tessera::test::error_of<::tessera::UsageError>([&] { __VA_ARGS__; }), text))
