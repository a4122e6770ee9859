#include "train/optimiser/python_literals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {

namespace {

std::string round_trip(const std::string& text) { return parse_python(text).repr(); }

template <class F>
std::string literal_error(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::InvalidArgument);
    return e.what();
  }
  return "no error";
}

TEST(PythonLiterals, AreReadAndWrittenAsPythonDoes) {
  EXPECT_EQ(round_trip("3"), "3");
  EXPECT_EQ(round_trip("-1_000"), "-1000");
  EXPECT_EQ(round_trip("+2"), "2");
  EXPECT_EQ(round_trip("1e-4"), "0.0001");
  EXPECT_EQ(round_trip("1e-8"), "1e-08");
  EXPECT_EQ(round_trip("5."), "5.0");
  EXPECT_EQ(round_trip(".5"), "0.5");
  EXPECT_EQ(round_trip("1E+20"), "1e+20");
  EXPECT_EQ(round_trip("True"), "True");
  EXPECT_EQ(round_trip(" False "), "False");
  EXPECT_EQ(round_trip("None"), "None");
  EXPECT_EQ(round_trip("'a\\'b'"), "\"a'b\"");
  EXPECT_EQ(round_trip("\"a=b\""), "'a=b'");
  EXPECT_EQ(round_trip("r'.*\\.img_\\d+'"), "'.*\\\\.img_\\\\d+'");
  EXPECT_EQ(*parse_python("r'.*\\.img_\\d+'").as<std::string>(), ".*\\.img_\\d+");
  EXPECT_EQ(*parse_python("'\\d\\n'").as<std::string>(), "\\d\n");
  EXPECT_EQ(round_trip("[1, 2.0, 'x', [None]]"), "[1, 2.0, 'x', [None]]");
  EXPECT_EQ(round_trip("(0.9, 0.99)"), "(0.9, 0.99)");
  EXPECT_EQ(round_trip("0.9,0.99"), "(0.9, 0.99)");
  EXPECT_EQ(round_trip("1,"), "(1,)");
  EXPECT_EQ(round_trip("(1)"), "1");
  EXPECT_EQ(round_trip("()"), "()");
  EXPECT_EQ(round_trip("[1,]"), "[1]");
}

TEST(PythonLiterals, FaultsAreErrors) {
  for (const char* bad : {"", "abc", "1 2", "[1, 2", "'x", "1e", "--1", "1.2.3", "[1 2]", "true", "{1: 2}", "0x10", "'\\x41'",
                          ",", "99999999999999999999"})
    EXPECT_THAT(literal_error([&] { parse_python(bad); }), testing::HasSubstr("is not a Python value")) << bad;
  EXPECT_THAT(literal_error([] { parse_python(std::string(100, '[')); }), testing::HasSubstr("nested too deeply"));
}

TEST(PythonOptions, SplitAtTheFirstEqualsSign) {
  PythonOptions options("network_args",
                        {"a='x=y'", "rank=4", "betas=0.9,0.99", "on=True", "off=0", "patterns=[r'a.b', 'c']", "none=None"});
  EXPECT_EQ(options.text("a", ""), "x=y");
  EXPECT_EQ(options.integer("rank", 1), 4);
  EXPECT_EQ(options.number("rank", 1), 4.0);
  EXPECT_EQ(options.numbers("betas", {0, 0}), (std::vector<double>{0.9, 0.99}));
  EXPECT_TRUE(options.flag("on", false));
  EXPECT_FALSE(options.flag("off", true));
  EXPECT_EQ(options.texts("patterns"), (std::vector<std::string>{"a.b", "c"}));
  EXPECT_FALSE(options.optional_number("none").has_value());
  EXPECT_EQ(options.number("absent", 7), 7);
  EXPECT_NO_THROW(options.finish());
  EXPECT_EQ(options.str(), "a=x=y,rank=4,betas=(0.9, 0.99),on=True,off=0,patterns=['a.b', 'c'],none=None");
}

TEST(PythonOptions, TextsMayLoseTheirQuotesToAShell) {
  PythonOptions options("lr_scheduler_args", {"step_rules=1:10,0.1:20,0.01"});
  EXPECT_EQ(options.text("step_rules", ""), "1:10,0.1:20,0.01");
}

TEST(PythonOptions, ErrorsNameTheKey) {
  PythonOptions unknown("optimizer_args", {"weight_decy=0.1"});
  unknown.number("weight_decay", 0);
  unknown.number("eps", 0);
  EXPECT_EQ(literal_error([&] { unknown.finish(); }), "optimizer_args: unknown key weight_decy; did you mean weight_decay?");
  PythonOptions far("optimizer_args", {"zzzzzzzzzzzz=0.1"});
  far.number("eps", 0);
  EXPECT_EQ(literal_error([&] { far.finish(); }), "optimizer_args: unknown key zzzzzzzzzzzz; use one of: eps");
  PythonOptions wrong("optimizer_args", {"eps='a'", "betas=(1,)"});
  EXPECT_EQ(literal_error([&] { wrong.number("eps", 0); }), "optimizer_args: eps='a' is not a number");
  EXPECT_EQ(literal_error([&] { wrong.numbers("betas", {0, 0}); }), "optimizer_args: betas=(1,) is not a list of 2 numbers");
  EXPECT_EQ(literal_error([] { PythonOptions("x", {"word"}); }), "x: \"word\" is not of the form key=value");
  EXPECT_EQ(literal_error([] { PythonOptions("x", {"a=1", "a=2"}); }), "x: a is given twice");
}

}  // namespace

}  // namespace flux2
