#include "train/data/match_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/path_exists.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

// AVIF is listed because musubi-tuner trains on it: reading it fails with a message instead of leaving it out silently.
constexpr std::array kImageExtensions = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".avif"};

bool has_image_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::find(kImageExtensions.begin(), kImageExtensions.end(), extension) != kImageExtensions.end();
}

// What follows the last underscore of a stem as a number; none if it is something else.
std::optional<uint64_t> number_of(const std::string& stem) {
  const size_t underscore = stem.rfind('_');
  const std::string digits = underscore == stem.npos ? stem : stem.substr(underscore + 1);
  const bool all = !digits.empty() && std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!all || digits.size() > 18) return {};
  return std::stoull(digits);
}

}  // namespace

std::vector<ListedFile> list_images(const fs::path& folder, bool recursive, const std::vector<fs::path>& except) {
  if (!is_folder(folder)) fail(ErrorCode::NotFound, "the folder {} does not exist", folder.string());
  std::vector<ListedFile> files;
  const auto excluded = [&](const fs::path& path) {
    return std::any_of(except.begin(), except.end(), [&](const fs::path& other) {
      std::error_code different;
      return !other.empty() && fs::equivalent(path, other, different) && !different;
    });
  };
  const auto list = [&](const auto& self, const fs::path& inside) -> void {
    std::error_code fault;
    for (fs::directory_iterator at(folder / inside, fault), end; !fault && at != end; at.increment(fault)) {
      const std::string name = at->path().filename().string();
      if (name.starts_with(".")) continue;
      if (is_folder(at->path())) {
        // A link to a folder above would never end.
        if (recursive && !at->is_symlink() && !excluded(at->path())) self(self, inside / name);
      } else if (has_image_extension(at->path())) {
        files.push_back({folder / inside / name, inside.generic_string(), name, at->path().stem().string()});
      }
    }
    if (fault) fail(ErrorCode::NotFound, "cannot list the folder {}: {}", (folder / inside).string(), fault.message());
  };
  list(list, {});
  std::sort(files.begin(), files.end(), [](const ListedFile& a, const ListedFile& b) {
    return (fs::path(a.folder) / a.name).generic_string() < (fs::path(b.folder) / b.name).generic_string();
  });
  return files;
}

std::vector<std::vector<fs::path>> match_references(const std::vector<ListedFile>& targets,
                                                    const std::vector<ListedFile>& references, const char* what,
                                                    std::vector<Finding>& findings) {
  std::vector<size_t> longest_first(targets.size());
  std::iota(longest_first.begin(), longest_first.end(), size_t{0});
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](size_t a, size_t b) { return targets[a].name.size() > targets[b].name.size(); });

  // By folder and name, so that the references of one target lie side by side.
  std::map<std::pair<std::string, std::string>, const ListedFile*> unmatched;
  for (const ListedFile& file : references) unmatched[{file.folder, file.name}] = &file;

  std::vector<std::vector<fs::path>> matched(targets.size());
  for (const size_t t : longest_first) {
    const std::string& stem = targets[t].stem;
    struct Match {
      uint64_t order;
      std::string name;
      fs::path path;
    };
    std::vector<Match> found;
    for (const char mark : {'.', '_'}) {
      const std::string start = stem + mark;
      auto at = unmatched.lower_bound({targets[t].folder, start});
      while (at != unmatched.end() && at->first.first == targets[t].folder && at->first.second.starts_with(start)) {
        const ListedFile& file = *at->second;
        const auto number = file.stem == stem ? std::optional<uint64_t>(0) : number_of(file.stem);
        if (number) {
          found.push_back({file.stem == stem ? 0 : *number + 1, file.name, file.path});
        } else {
          findings.push_back(
              {Finding::Stops, fmt::format("the {} {} looks like one of {}, but has no number behind its last \"_\": "
                                           "call it {}_1{}",
                                           what, file.path.string(), targets[t].name, stem, file.path.extension().string())});
        }
        at = unmatched.erase(at);
      }
    }
    std::sort(found.begin(), found.end(),
              [](const Match& a, const Match& b) { return a.order != b.order ? a.order < b.order : a.name < b.name; });
    for (Match& match : found) matched[t].push_back(std::move(match.path));
  }
  return matched;
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) shown.push_back(names[i]);
  const std::string more = names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : "";
  return fmt::format("{}{}", fmt::join(shown, ", "), more);
}

}  // namespace flux2
