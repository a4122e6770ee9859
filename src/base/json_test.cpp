#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "base/error.h"

namespace flux2 {
namespace {

TEST(Json, KeepsTheOrderOfKeys) { EXPECT_EQ(parse_json(R"({"b":1,"a":[2]})").dump(), R"({"b":1,"a":[2]})"); }

TEST(Json, NamesThePositionOfAFault) {
  try {
    parse_json(R"({"a":)");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::BadFile);
    EXPECT_NE(std::string(e.what()).find("byte"), std::string::npos);
  }
}

TEST(Json, EnforcesItsLimits) {
  EXPECT_THROW(parse_json("[[[1]]]", {.depth = 2}), Error);
  EXPECT_NO_THROW(parse_json("[[1]]", {.depth = 2}));
  EXPECT_THROW(parse_json(R"({"a":1,"a":2})", {.refuse_duplicate_keys = true}), Error);
  EXPECT_NO_THROW(parse_json(R"({"a":{"a":1},"b":{"a":1}})", {.refuse_duplicate_keys = true}));
  EXPECT_THROW(parse_json("\"\xff\""), Error);
}

std::string refusal_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint().plain();
  }
  return "";
}

TEST(Json, KeepsTheLastOfTwoEqualKeysInTheFirstPlace) {
  EXPECT_EQ(parse_json(R"({"a":1,"b":2,"a":3})").dump(), R"({"a":3,"b":2})");
  std::string many = "{";
  for (int i = 0; i < 100; ++i) many += "\"k" + std::to_string(i) + "\":0,";
  const Json json = parse_json(many + "\"k7\":[1,{\"k7\":2}]}");
  EXPECT_EQ(json.size(), 100);
  EXPECT_EQ(json["k7"].dump(), R"([1,{"k7":2}])");
}

TEST(Json, ManyKeysTakeLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += (i ? ",\"key" : "\"key") + std::to_string(i) + "\":" + std::to_string(i);
  text += "}";
  EXPECT_THAT(
      refusal_of([&] { parse_json(text, Limits{}.json); }),
      testing::AllOf(testing::HasSubstr("100001 keys or more; the limit is 100000"), testing::HasSubstr("limits.json-keys")));
  const std::clock_t began = std::clock();  // of the processor: other programs do not count
  const Json json = parse_json(text, {.keys = 1'000'000});
  EXPECT_EQ(json.size(), 200'000);
  EXPECT_EQ(json.back(), 199'999);
  EXPECT_LT((std::clock() - began) / CLOCKS_PER_SEC, 5) << "a quadratic search takes minutes";
}

TEST(Json, CountsValuesAndBytes) {
  EXPECT_NO_THROW(parse_json("[0,0]", {.values = 3}));
  EXPECT_THAT(refusal_of([] { parse_json("[0,0,0]", {.values = 3}); }),
              testing::HasSubstr("4 values or more; the limit is 3 | "));
  EXPECT_THAT(refusal_of([] { parse_json("[0,0,0]", {.bytes = 6}); }), testing::HasSubstr("7 bytes; the limit is 6 bytes"));
}

TEST(Json, MillionsOfBracketsAreRefused) {
  EXPECT_THAT(refusal_of([] { parse_json(std::string(5'000'000, '[')); }), testing::HasSubstr("nested 65 deep"));
}

TEST(Json, NamesFaultsInOurOwnWords) {
  for (const char* text : {"", "{", "[1,]", "\"\xff\"", "1e999999", "nul", "{\"a\" 1}", "\"\\ud800\"", "[1] x"})
    EXPECT_THAT(refusal_of([&] { parse_json(text, Limits{}.json); }),
                testing::AllOf(testing::StartsWith("not valid "), testing::Not(testing::HasSubstr("exception"))))
        << text;
}

TEST(Json, MembersAreReadWithTheirTypes) {
  const Json json =
      parse_json(R"({"text":"a","yes":true,"whole":-7,"big":9223372036854775808,"real":0.5,"huge":1e300,"none":null})");
  std::string text = "before";
  bool yes = false;
  int whole = 1;
  int64_t wide = 2;
  float real = 3;
  double exact = 4;
  read_member(json, "text", text), read_member(json, "yes", yes), read_member(json, "whole", whole);
  read_member(json, "whole", wide), read_member(json, "real", real), read_member(json, "huge", exact);
  EXPECT_EQ(text, "a");
  EXPECT_TRUE(yes);
  EXPECT_EQ(whole, -7);
  EXPECT_EQ(wide, -7);
  EXPECT_EQ(real, 0.5f);
  EXPECT_EQ(exact, 1e300);
  read_member(json, "none", text), read_member(json, "absent", whole);
  EXPECT_EQ(text, "a");
  EXPECT_THAT(refusal_of([&] { read_member(json, "whole", text); }), testing::HasSubstr("\"whole\" is a number, not a string"));
  EXPECT_THAT(refusal_of([&] { read_member(json, "text", whole); }), testing::HasSubstr("not a whole number"));
  EXPECT_THAT(refusal_of([&] { read_member(json, "real", whole); }), testing::HasSubstr("not a whole number"));
  EXPECT_THAT(refusal_of([&] { read_member(json, "big", wide); }), testing::HasSubstr("out of range"));
  EXPECT_THAT(refusal_of([&] { read_member(json, "huge", real); }), testing::HasSubstr("too large"));
  EXPECT_THAT(refusal_of([&] { read_member(parse_json("[]"), "a", yes); }), testing::HasSubstr("found array"));
  EXPECT_FALSE(try_parse_json("nonsense"));
}

struct TextFile : testing::Test {
  std::filesystem::path folder = std::filesystem::temp_directory_path() / ("flux2-text-file-" + std::to_string(::getpid()));
  TextFile() { std::filesystem::create_directories(folder); }
  ~TextFile() override { std::filesystem::remove_all(folder); }
};

TEST_F(TextFile, IsReadWhole) {
  std::ofstream(folder / "a") << "some text";
  EXPECT_EQ(read_text_file(folder / "a"), "some text");
  EXPECT_EQ(read_text_file(folder / "a", {.bytes = 9}), "some text");
  std::ofstream(folder / "empty");
  EXPECT_EQ(read_text_file(folder / "empty"), "");
  EXPECT_FALSE(read_text_file("/proc/self/stat").empty()) << "a file that states no size";
}

TEST_F(TextFile, IsRefusedBeforeItIsReadWhenItIsTooLarge) {
  std::ofstream(folder / "model_index.json") << "{";
  std::filesystem::resize_file(folder / "model_index.json", uintmax_t{3} << 30);  // sparse
  EXPECT_THAT(refusal_of([&] { read_json(folder / "model_index.json"); }),
              testing::HasSubstr("model_index.json: the file has 3.00 GiB; the limit is 16.0 MiB"));
  EXPECT_THAT(refusal_of([&] { read_json(folder / "model_index.json", Limits{}.json); }),
              testing::HasSubstr("config set limits.json-bytes 3221225472"));
  EXPECT_THAT(refusal_of([&] { read_text_file(folder / "model_index.json"); }), testing::HasSubstr("limits.text-bytes"));
}

TEST_F(TextFile, DoesNotWaitForAPipe) {
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal_of([&] { read_text_file(folder / "pipe"); }), testing::HasSubstr("is not a regular file"));
  EXPECT_THAT(refusal_of([&] { read_text_file(folder); }), testing::HasSubstr("is not a regular file"));
}

}  // namespace
}  // namespace flux2
