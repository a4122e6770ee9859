#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/data/dataset.h"

namespace flux2 {

// An image file of a folder, with its path inside it.
struct ListedFile {
  std::filesystem::path path;
  std::string folder;  // inside the listed one; empty at its top
  std::string name;    // "cat.png"
  std::string stem;    // "cat"
};

// The images of a folder in the order of their paths. Hidden files are left out, and so are the folders of `except`.
std::vector<ListedFile> list_images(const std::filesystem::path& folder, bool recursive,
                                    const std::vector<std::filesystem::path>& except = {});

// The references of each target, or other images that belong to one; `what` they are is for messages. A file belongs to the
// target S if it is called S.* or S_<number>.*; longer names of targets choose first. The one without a number comes first, then
// by number. Faults become findings.
std::vector<std::vector<std::filesystem::path>> match_references(const std::vector<ListedFile>& targets,
                                                                 const std::vector<ListedFile>& references, const char* what,
                                                                 std::vector<Finding>& findings);

// "a.png, b.png, c.png and 4 more"
std::string some_of(const std::vector<std::string>& names);

}  // namespace flux2
