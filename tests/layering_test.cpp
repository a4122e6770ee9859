// What must hold for the source tree as a whole: a folder includes only folders below it, messages name no command-line flags,
// and the documentation names files that exist.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "tests/support/paths.h"

namespace {

namespace fs = std::filesystem;

// The folders that each folder may include besides itself. docs/architecture.md shows this as a diagram.
const std::map<std::string, std::set<std::string>> kMayInclude = [] {
  std::map<std::string, std::set<std::string>> m;
  m["base"] = {};
  m["net"] = {"base"};
  m["tensor"] = {"base"};
  m["autograd"] = {"base", "tensor"};
  m["ops"] = {"base", "tensor", "autograd"};
  m["weights"] = {"base", "tensor"};
  m["nn"] = {"base", "tensor", "autograd", "ops", "weights"};
  m["text"] = {"base"};
  m["image"] = {"base"};
  m["scenes"] = {"base", "image"};
  m["model"] = {"base", "tensor", "autograd", "ops", "weights", "nn"};
  m["pipeline"] = {"base", "tensor", "autograd", "ops", "weights", "nn", "model", "text", "image"};
  m["hub"] = {"base", "net", "tensor", "weights", "nn", "model", "text", "image"};
  m["backend/cpu"] = {"base", "tensor"};
  m["backend/cuda"] = {"base", "tensor"};
  m["backend/plan"] = {"base", "tensor"};
  m["engine"] = {"base", "net",   "tensor",   "autograd", "ops",         "weights",      "nn",          "model",
                 "text", "image", "pipeline", "hub",      "backend/cpu", "backend/cuda", "backend/plan"};
  m["record"] = {"base", "net", "tensor", "image", "pipeline"};
  m["rewrite"] = {"base", "net", "image"};
  m["bench"] = {"base", "net",   "tensor",   "autograd", "ops",    "weights",     "nn",   "model",
                "text", "image", "pipeline", "hub",      "engine", "backend/cpu", "train"};
  m["train"] = {"base",  "net",  "tensor", "autograd", "ops",      "weights", "nn",
                "model", "text", "image",  "scenes",   "pipeline", "hub"};
  m["app"] = {"base",     "net", "tensor", "weights", "model", "text",   "image",
              "pipeline", "hub", "engine", "record",  "train", "rewrite"};
  m["webui"] = {"base"};
  m["server"] = {"base", "net",    "tensor", "weights", "model", "text",  "image",  "pipeline",
                 "hub",  "engine", "record", "train",   "app",   "webui", "rewrite"};
  m["cli"] = {"base",     "net", "tensor", "weights", "model", "text",  "image", "server",
              "pipeline", "hub", "engine", "record",  "bench", "train", "app",   "rewrite"};
  return m;
}();

std::string folder_of(const std::string& path) {
  const size_t slash = path.find('/');
  if (slash == std::string::npos) return {};
  const std::string first = path.substr(0, slash);
  return first == "backend" ? path.substr(0, path.find('/', slash + 1)) : first;
}

bool is_source(const fs::path& p) {
  const auto e = p.extension();
  return e == ".h" || e == ".cpp" || e == ".cu" || e == ".cuh" || e == ".inc";
}

TEST(Layering, FoldersIncludeOnlyFoldersBelowThem) {
  const fs::path root = flux2::test::source_folder();
  const std::regex include("^\\s*#\\s*include\\s*\"([^\"]+)\"");
  int files = 0, includes = 0;
  for (const fs::path& top : {root / "src", root / "webui", root / "server", root / "cli"})
    for (const auto& entry : fs::recursive_directory_iterator(top)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      // Tests and their fixtures (test_*.h) may include more: an op is tested on a backend.
      const std::string name = entry.path().stem().string();
      if (name.ends_with("_test") || name.starts_with("test_")) continue;
      const std::string relative = fs::relative(entry.path(), top == root / "src" ? top : root).generic_string();
      const std::string folder = folder_of(relative);
      ASSERT_TRUE(kMayInclude.contains(folder)) << relative << ": unknown folder; add it to the table with what it may include";
      ++files;
      std::ifstream in(entry.path());
      std::string line;
      for (int number = 1; std::getline(in, line); ++number) {
        std::smatch match;
        if (line.find('#') == line.npos || !std::regex_search(line, match, include)) continue;
        const std::string target = folder_of(match[1].str());
        if (target.empty() || target == folder) continue;
        ++includes;
        EXPECT_TRUE(kMayInclude.at(folder).contains(target)) << relative << ":" << number << " includes " << match[1].str();
      }
    }
  EXPECT_GT(files, 50);
  EXPECT_GT(includes, 100);
}

// Boost takes long to compile, so one folder alone sees it; the headers that the others include do not.
TEST(Layering, OnlyTheHttpServerSeesBoost) {
  const fs::path root = flux2::test::source_folder();
  const std::set<std::string> inside = {"transport.h", "server_core.h", "connection.h"};
  const std::regex boost("^\\s*#\\s*include\\s*<boost/"), own("^\\s*#\\s*include\\s*\"server/http/([^\"]+)\"");
  int seen = 0;
  for (const fs::path& top : {root / "src", root / "server", root / "cli"})
    for (const auto& entry : fs::recursive_directory_iterator(top)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      const std::string relative = fs::relative(entry.path(), root).generic_string();
      const bool http = relative.starts_with("server/http/");
      const bool header = entry.path().extension() == ".h" && !inside.contains(entry.path().filename().string());
      std::ifstream in(entry.path());
      std::string line;
      while (std::getline(in, line)) {
        if (line.find('#') == line.npos) continue;
        std::smatch match;
        const bool includes =
            std::regex_search(line, boost) || (std::regex_search(line, match, own) && inside.contains(match[1].str()));
        EXPECT_FALSE(includes && (!http || header)) << relative << ": " << line;
        seen += includes ? 1 : 0;
      }
    }
  EXPECT_GT(seen, 10);
}

// Each front end spells hints in its own way (base/error.h), so no text below them may name a command-line option.
TEST(Layering, NoMessageNamesACommandLineFlag) {
  const fs::path root = flux2::test::source_folder();
  int literals = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root / "src")) {
    if (!entry.is_regular_file() || !is_source(entry.path()) || entry.path().stem().string().ends_with("_test")) continue;
    std::ifstream in(entry.path());
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      bool inside = false;
      std::string literal;
      for (size_t i = 0; i < line.size(); ++i) {
        if (!inside && line.compare(i, 2, "//") == 0) break;
        if (inside && line[i] == '\\') {
          ++i;
        } else if (line[i] == '"') {
          inside = !inside;
          if (inside) continue;
          ++literals;
          const size_t dashes = literal.find("--");
          const bool flag = dashes != literal.npos && dashes + 2 < literal.size() && std::islower(literal[dashes + 2]) != 0;
          EXPECT_FALSE(flag || literal.find("`flux2 ") != literal.npos)
              << fs::relative(entry.path(), root).generic_string() << ":" << number << ": \"" << literal << '"';
          literal.clear();
        } else if (inside) {
          literal += line[i];
        }
      }
    }
  }
  EXPECT_GT(literals, 1000);
}

// Texts from files, prompts and servers are made safe at the one place that prints (cli/output.h).
TEST(Layering, OnlyOneFilePrints) {
  const fs::path root = flux2::test::source_folder();
  const std::regex prints(
      "\\b(stdout|stderr|std::cout|std::cerr|std::clog|printf|fprintf|puts|fputs|putchar|fputc|perror|fmt::print)\\b|"
      "\\bwrite\\((STDOUT_FILENO|STDERR_FILENO|1|2),");
  const std::regex text("\"(\\\\.|[^\"\\\\])*\"");
  // Searching for these words first is much faster than the expression.
  constexpr std::array words = {"stdout", "stderr", "std::c", "printf", "puts", "putc", "perror", "fmt::print", "write("};
  const auto may_print = [&](const std::string& line) {
    return std::any_of(words.begin(), words.end(), [&](const char* word) { return line.find(word) != line.npos; });
  };
  int files = 0;
  for (const fs::path& top : {root / "src", root / "server", root / "cli"})
    for (const auto& entry : fs::recursive_directory_iterator(top)) {
      if (!entry.is_regular_file() || !is_source(entry.path()) || entry.path().stem().string().ends_with("_test")) continue;
      const std::string relative = fs::relative(entry.path(), root).generic_string();
      ++files;
      if (relative == "cli/output.cpp") continue;
      std::ifstream in(entry.path());
      std::string line;
      for (int number = 1; std::getline(in, line); ++number) {
        if (!may_print(line)) continue;
        const std::string code = std::regex_replace(line.substr(0, line.find("//")), text, "");
        EXPECT_FALSE(std::regex_search(code, prints)) << relative << ":" << number << ": " << line;
      }
    }
  EXPECT_GT(files, 300);
}

std::string content_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) found.push_back((*at)[1]);
  return found;
}

// The arguments of each use of a macro whose name begins like that: "TEST_F(Layering, Holds)" gives {"Layering", "Holds"}.
std::vector<std::vector<std::string>> uses_of_macro(const std::string& text, const std::string& name) {
  std::vector<std::vector<std::string>> uses;
  for (size_t at = 0; (at = text.find(name, at)) != text.npos; at += name.size()) {
    if (at > 0 && (std::isalnum(text[at - 1]) != 0 || text[at - 1] == '_')) continue;
    size_t i = at + name.size();
    while (i < text.size() && (std::isupper(text[i]) != 0 || text[i] == '_')) ++i;
    if (i == text.size() || text[i] != '(') continue;
    uses.emplace_back(1);
    for (++i;
         i < text.size() && (std::isalnum(text[i]) != 0 || std::string_view("_, \n").find(text[i]) != std::string_view::npos);
         ++i) {
      if (text[i] == ',') uses.back().emplace_back();
      else if (std::isspace(text[i]) == 0) uses.back().back() += text[i];
    }
  }
  return uses;
}

// A test that was renamed would otherwise be run by `scripts/test.sh --fast` again, and nobody would know why.
TEST(SlowTests, EveryNameInTheListIsATest) {
  const fs::path root = flux2::test::source_folder();
  std::set<std::string> tests, prefixes;
  std::string sources;
  for (const fs::path& top : {root / "src", root / "webui", root / "server", root / "cli", root / "bench", root / "tests"})
    for (const auto& entry : fs::recursive_directory_iterator(top)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      const std::string text = content_of(entry.path());
      if (text.find("gtest") == text.npos && text.find("TEST") == text.npos && top != root / "tests") continue;
      for (const auto& words : uses_of_macro(text, "TEST"))
        if (words.size() == 2) tests.insert(words[0] + "." + words[1]);
      for (const auto& words : uses_of_macro(text, "INSTANTIATE_TEST_SUITE_P")) prefixes.insert(words[0]);
      sources += text;
    }
  std::ifstream list(root / "tests/slow_tests.txt");
  int names = 0;
  for (std::string line, last; std::getline(list, line);) {
    if (line.empty() || line[0] == '#') continue;
    ++names;
    EXPECT_LT(last, line) << "the names are sorted";
    last = line;
    if (line.find('*') != line.npos) continue;
    // Prefix/Suite.Name/value, or Suite.Name.
    std::vector<std::string> parts(1);
    for (const char c : line)
      if (c == '/') parts.emplace_back();
      else parts.back() += c;
    ASSERT_TRUE(parts.size() == 1 || parts.size() == 3) << line;
    EXPECT_TRUE(tests.contains(parts[parts.size() / 2])) << "no source has the test " << line;
    if (parts.size() == 1) continue;
    EXPECT_TRUE(prefixes.contains(parts[0])) << line;
    // The value stands in a source as it is, or a function joins words that do.
    if (sources.find('"' + parts[2] + '"') != sources.npos) continue;
    std::istringstream words(parts[2]);
    for (std::string word; std::getline(words, word, '_');) EXPECT_NE(sources.find(word), sources.npos) << line;
  }
  EXPECT_GT(names, 0);
}

// A path in backticks has a slash or the extension of a file. It is relative to the repository or to src/.
TEST(Documentation, PathsInArchitectureAndContributingExist) {
  const fs::path root = flux2::test::source_folder();
  for (const char* page : {"docs/architecture.md", "CONTRIBUTING.md"}) {
    int paths = 0;
    for (const std::string& path :
         matches(content_of(root / page), "`([A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]*)+|[A-Za-z0-9_-]+\\.(?:h|cpp|cu|md|sh|txt))`")) {
      if (path == "CMakeLists.txt" || path.starts_with("build/")) continue;  // of every folder; made by a build
      EXPECT_TRUE(fs::exists(root / path) || fs::exists(root / "src" / path)) << page << " names " << path;
      ++paths;
    }
    EXPECT_GT(paths, 20) << page;
  }
}

// The table of docs/security.md states every limit with both of its defaults.
TEST(Documentation, SecurityPageListsAllLimits) {
  const std::string page = content_of(flux2::test::source_folder() / "docs/security.md");
  const flux2::Limits person, server = flux2::Limits::for_server();
  size_t rows = 0;
  for (const flux2::LimitField& f : flux2::limit_fields()) {
    const std::string row = fmt::format("| `limits.{}` | {} | {} | {} |\n", f.name, f.get(person), f.get(server), f.help);
    EXPECT_NE(page.find(row), page.npos) << "missing or outdated: " << row;
    ++rows;
  }
  EXPECT_EQ(matches(page, "\\| `(limits\\.[a-z-]+)` \\|").size(), rows) << "the page has limits that do not exist";
}

TEST(Documentation, LinksLeadToFiles) {
  const fs::path root = flux2::test::source_folder();
  std::vector<fs::path> pages = {root / "README.md", root / "CONTRIBUTING.md", root / "CHANGELOG.md"};
  for (const auto& entry : fs::directory_iterator(root / "docs"))
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  int links = 0;
  for (const fs::path& page : pages)
    for (const std::string& target : matches(content_of(page), "\\]\\(([^)#\\s]+)[^)]*\\)")) {
      if (target.find("://") != target.npos) continue;
      EXPECT_TRUE(fs::exists(page.parent_path() / target)) << page.filename() << " links to " << target;
      ++links;
    }
  EXPECT_GT(links, 20);
}

}  // namespace
