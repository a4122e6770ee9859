#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// What a person asks to be fetched: a repository of the hub, some of its files, or one file by its address.
//   owner/repo   owner/repo@revision   owner/repo:variant   owner/repo::sub/folder   owner/repo::a+b   https://…
struct Source {
  std::string repository;          // "owner/repo"; empty for a plain address
  std::string revision = "main";   // branch, tag or commit
  std::string variant;             // "fp8", "Q4_K_M": a word of the file's name; empty: what a repository is fetched for
  std::vector<std::string> paths;  // files or folders; empty: the whole repository
  std::string url;                 // a plain address, when repository is empty

  std::string text() const;  // as one would type it
};

// Empty when the words are none of these forms (a local path, the name of a starter). Throws InvalidArgument for one
// that means to be and is not: "owner/repo::" or an address without a file. Addresses of pages and files of the hub
// (https://huggingface.co/owner/repo/blob/main/x.gguf, or of `endpoint`) become their repository and path.
std::optional<Source> parse_source(std::string_view words, std::string_view endpoint = "https://huggingface.co");

}  // namespace flux2
