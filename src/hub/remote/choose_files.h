#pragma once

#include <string>
#include <vector>

#include "hub/remote/hub_client.h"
#include "hub/remote/source.h"

namespace flux2 {

struct FileChoice {
  std::vector<RemoteFile> files;  // small files first, then in the order of their names
  std::string reason;             // a sentence
};

// .safetensors, .gguf, .json, .txt and the files of tokenizers. Nothing else is ever fetched.
bool is_fetched_kind(const std::string& path);

// Which files of a repository a source means. A whole repository: its diffusers folder if it has one, without the single
// file that repeats it; else its one model (a file, or shards with their index). Where there are several to choose from,
// or none, an InvalidArgument or NotFound that lists what there is.
FileChoice choose_files(const std::vector<RemoteFile>& files, const Source& source);

}  // namespace flux2
