#include "app/selftest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/paths.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Selftest : public testing::Test {
 protected:
  Selftest() {
    std::string pattern = (fs::temp_directory_path() / "flux2-selftest-XXXXXX").string();
    folder_ = fs::path(::mkdtemp(pattern.data())) / "pico";
    fs::copy(test::pico_folder(), folder_, fs::copy_options::recursive);
    context_.environment = [this](const char* name) -> const char* {
      return std::string_view(name) == "FLUX2_BUNDLED" ? folder_.c_str() : nullptr;
    };
  }
  ~Selftest() override { fs::remove_all(folder_.parent_path()); }

  const SelftestResult& result(const SelftestReport& report, const std::string& what) {
    for (const SelftestResult& r : report.results)
      if (r.what == what) return r;
    throw std::runtime_error("nothing was tested as " + what);
  }

  fs::path folder_;
  AppContext context_;
};

TEST_F(Selftest, PassesHere) {
  const SelftestReport report = selftest(context_);
  for (const SelftestResult& r : report.results) EXPECT_TRUE(r.passed()) << r.what << ": " << r.problem;
  EXPECT_TRUE(report.passed());
  EXPECT_TRUE(report.files_intact);
  EXPECT_LT(result(report, "cpu:scalar exact").deviation, 1e-5);
  EXPECT_TRUE(result(report, "file ae.safetensors").passed());
  // The tolerances are tight: a less exact profile exceeds the tolerance of the next stricter one.
  EXPECT_GT(result(report, "cpu fast int8").deviation, 1e-3);
}

TEST_F(Selftest, NamesDamagedFilesAndWrongResults) {
  const fs::path reference = folder_ / "selftest.json";
  Json json = read_json(reference);
  // Simulates a transformer that computes wrong values.
  for (Json& value : json["results"]["latents"]) value = value.get<double>() * 1.5;
  std::ofstream(reference) << json.dump();
  std::ofstream(folder_ / "tokenizer/tokenizer_config.json", std::ios::app) << "\n";
  const SelftestReport report = selftest(context_, "cpu:scalar");
  EXPECT_FALSE(report.passed());
  EXPECT_FALSE(report.files_intact);
  EXPECT_FALSE(result(report, "file tokenizer/tokenizer_config.json").passed());
  const SelftestResult& wrong = result(report, "cpu:scalar exact");
  EXPECT_EQ(wrong.stage, "latents");
  EXPECT_THAT(wrong.problem, HasSubstr("latents differ from the stored result"));
  EXPECT_FALSE(wrong.remedy.empty());
  EXPECT_THROW(selftest(context_, "abacus"), Error);
}

}  // namespace
}  // namespace flux2
