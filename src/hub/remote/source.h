#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// What the user wants to download: a repository of the hub, some of its files, or one file by its URL.
//   owner/repo   owner/repo@revision   owner/repo:variant   owner/repo::sub/folder   owner/repo::a+b   https://…
struct Source {
  std::string repository;          // "owner/repo"; empty for a plain address
  std::string revision = "main";   // branch, tag or commit
  std::string variant;             // "fp8", "Q4_K_M": a word of the file's name; empty: the default choice
  std::vector<std::string> paths;  // files or folders; empty: the whole repository
  std::string url;                 // a plain address, when repository is empty

  std::string text() const;  // as one would type it
};

// Empty if the text has none of these forms (a local path, the name of a starter set). Throws InvalidArgument for a malformed
// one: "owner/repo::" or a URL without a file. Addresses of pages and files of the hub
// (https://huggingface.co/owner/repo/blob/main/x.gguf, or of `endpoint`) become their repository and path.
std::optional<Source> parse_source(std::string_view words, std::string_view endpoint = "https://huggingface.co");

}  // namespace flux2
