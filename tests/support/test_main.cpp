// The main function of all test programs. It keeps a journal for scripts/test.sh, which counts the tests of programs that run
// whole: where FLUX2_TEST_JOURNALS names a folder and FLUX2_TEST_NAME a file in it, each test is written down when it begins and
// when it ends. A test that ends the program is the one that began and did not end. FLUX2_SLOW_TESTS has the names of tests, with
// ":" between them, that a program leaves out when it runs whole. FLUX2_TEST_TIMES names a file to which each test adds a line
// with the processor seconds that it took, its programs included, which depend less on what else runs than its time does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
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

double processor_seconds() {
  double sum = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage use{};
    ::getrusage(who, &use);
    for (const timeval& t : {use.ru_utime, use.ru_stime})
      sum += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  }
  return sum;
}

class Times : public testing::EmptyTestEventListener {
 public:
  explicit Times(const char* path) : path_(path) {}

  void OnTestEnd(const testing::TestInfo& test) override {
    const double now = processor_seconds();  // what a suite has made before its first test belongs to that test
    char line[512];
    std::snprintf(line, sizeof line, "%.3f %s.%s\n", now - before_, test.test_suite_name(), test.name());
    before_ = now;
    std::ofstream(path_, std::ios::app) << line << std::flush;
  }

 private:
  std::string path_;
  double before_ = 0;
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
  if (const char* times = std::getenv("FLUX2_TEST_TIMES"))
    testing::UnitTest::GetInstance()->listeners().Append(new flux2::test::Times(times));
  return RUN_ALL_TESTS();
}
