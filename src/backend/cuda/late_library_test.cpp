#include "backend/cuda/late_library.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace flux2 {
namespace {

TEST(LateLibrary, FindsFunctionsOfALibraryOpenedAtTheCall) {
  const LateLibrary math("libm.so.6");
  ASSERT_TRUE(math.opens());
  const auto cosine = reinterpret_cast<double (*)(double)>(math.symbol("cos"));
  EXPECT_EQ(cosine(0.0), 1.0);
}

TEST(LateLibrary, NamesTheMissingLibraryOrFunction) {
  const auto message = [](const LateLibrary& library, const char* function) -> std::string {
    try {
      library.symbol(function);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const LateLibrary absent("libno-such-library.so.7");
  EXPECT_FALSE(absent.opens());
  EXPECT_NE(message(absent, "cos").find("libno-such-library.so.7 cannot be opened"), std::string::npos);
  EXPECT_NE(message(LateLibrary("libm.so.6"), "no_such_function").find("libm.so.6 has no function no_such_function"),
            std::string::npos);
}

TEST(LateLibrary, SuggestsTheCpuIfALibraryIsMissing) {
  try {
    LateLibrary("libno-such-library.so.7").symbol("cos");
    FAIL();
  } catch (const Error& e) {
    ASSERT_EQ(e.hint().suggestions.size(), 1u);
    EXPECT_EQ(e.hint().suggestions[0], set_option("device", "cpu"));
  }
}

}  // namespace
}  // namespace flux2
