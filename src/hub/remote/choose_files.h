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

// .safetensors, .gguf, .json, .txt and the files of tokenizers. Nothing else is ever downloaded.
bool is_fetched_kind(const std::string& path);

// Chooses the files of a repository that a source refers to. For a whole repository: its diffusers folder if it has one, without
// a single file with the same weights; else its only model (a file, or shards with their index). If there are several or none,
// throws InvalidArgument or NotFound with a list of what there is.
FileChoice choose_files(const std::vector<RemoteFile>& files, const Source& source);

}  // namespace flux2
