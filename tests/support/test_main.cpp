// The main function of all test programs. It keeps a journal for scripts/test.sh, which counts the tests of programs that run
// whole: where FLUX2_TEST_JOURNALS names a folder and FLUX2_TEST_NAME a file in it, each test is written down when it begins and
// when it ends. A test that ends the program is the one that began and did not end. FLUX2_SLOW_TESTS has the names of tests, with
// ":" between them, that a program leaves out when it runs whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace flux2::test {
namespace {

class Journal : public testing::EmptyTestEventListener {
 public:
  explicit Journal(const std::string& path) : to_(path) {}

  void OnTestStart(const testing::TestInfo& test) override { note("begin", test); }
  void OnTestEnd(const testing::TestInfo& test) override {
    const testing::TestResult& result = *test.result();
    note(result.Skipped() ? "skipped" : result.Passed() ? "passed" : "failed", test);
  }

 private:
  void note(const char* what, const testing::TestInfo& test) {
    to_ << what << ' ' << test.test_suite_name() << '.' << test.name() << std::endl;  // at once: the program may end here
  }

  std::ofstream to_;
};

}  // namespace
}  // namespace flux2::test

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const char* slow = std::getenv("FLUX2_SLOW_TESTS");
  const bool chosen = GTEST_FLAG_GET(filter) != "*";
  // CTest keeps the list of tests for later runs, so the list has all of them.
  if (slow && !chosen && !GTEST_FLAG_GET(list_tests)) GTEST_FLAG_SET(filter, std::string("-") + slow);
  const char* folder = std::getenv("FLUX2_TEST_JOURNALS");
  const char* name = std::getenv("FLUX2_TEST_NAME");
  if (folder && name)
    testing::UnitTest::GetInstance()->listeners().Append(new flux2::test::Journal(std::string(folder) + "/" + name));
  return RUN_ALL_TESTS();
}
