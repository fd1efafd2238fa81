#include "product/bind.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(CallBindings, HoldAnyNumber) {
  for (uint32_t count : {1U, 16U, 17U, 100U}) {
    CallBindings bindings = {{.variable = 0}};
    for (uint32_t i = 1; i < count; ++i) bindings.push_back({.variable = i});
    ASSERT_EQ(bindings.all().size(), count);
    for (uint32_t i = 0; i < count; ++i) EXPECT_EQ(bindings.all()[i].variable, i);
  }
}

}  // namespace
}  // namespace tessera
