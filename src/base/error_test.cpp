#include "base/error.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

TEST(Error, CarriesCodeMessageAndHint) {
  try {
    throw Error(ErrorCode::BadFile, "x.safetensors is empty", "download it again");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::BadFile);
    EXPECT_STREQ(e.what(), "x.safetensors is empty");
    EXPECT_EQ(e.hint().plain(), "download it again");
  }
}

TEST(Error, ContextIsPrependedAndTheRestIsKept) {
  try {
    in_context("opening vae", [] { throw Error(ErrorCode::NotFound, "no such file", "look again"); });
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::NotFound);
    EXPECT_STREQ(e.what(), "opening vae: no such file");
    EXPECT_EQ(e.hint().plain(), "look again");
  }
}

TEST(Error, HintsAreSpelledByTheFrontEnd) {
  const Hint hint("try {0} or {1}; {2} stays", {set_option("profile", "exact"), unset_option("offline")});
  EXPECT_EQ(hint.plain(), "try profile=exact or offline; {2} stays");
  EXPECT_EQ(hint.spelled([](const Suggestion& s) { return "--" + s.name; }), "try --profile or --offline; {2} stays");
}

TEST(Error, RequireIsAnInternalError) {
  try {
    require(false, "block {} is missing", 3);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Internal);
    EXPECT_STREQ(e.what(), "block 3 is missing");
  }
}

TEST(Error, CheckFormatsOnlyOnFailure) {
  check(true, "never {}", 1);
  EXPECT_THROW(check(false, "width {} is odd", 7), Error);
}

}  // namespace
}  // namespace flux2
