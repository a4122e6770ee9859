#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "base/json.h"
#include "hub/recognise.h"

namespace flux2 {

// How models are arranged in folders. Nothing here throws for missing or unreadable files; they count as absent.

std::vector<std::filesystem::path> weight_files_in(const std::filesystem::path& folder);  // sorted; of a series its first part
std::vector<std::filesystem::path> folders_in(const std::filesystem::path& folder);       // sorted

bool has_weight_index(const std::filesystem::path& folder);  // *.safetensors.index.json
bool holds_weights(const std::filesystem::path& folder);     // a .safetensors or .gguf file
bool holds_tokenizer(const std::filesystem::path& folder);   // tokenizer.json, tekken.json, or vocab.json with merges.txt

// The model_index.json of a folder; throws BadFile when it is not JSON or not an object.
std::optional<Json> model_index_of(const std::filesystem::path& folder);

// The folder beside a model's own whose autoencoder, text encoder and tokenizer it uses: "parts_from" in the section "flux2" of
// its model_index.json. Throws BadFile if that is not the name of a folder.
std::optional<std::filesystem::path> lender_of(const std::filesystem::path& folder);

// The one that describes a transformer: in its folder, or above a folder of that name.
std::optional<Json> model_index_near(const std::filesystem::path& component);

// What can be opened as weights in a folder: the folder itself when it is one component with its configuration, else
// its files and those of its folders that hold weights.
std::vector<std::filesystem::path> components_in(const std::filesystem::path& folder);

// Paths below a model's folder where a component of that kind may be, best first: what model_index.json names, the usual names,
// the folders of other tools, any file. Only their headers show which of them are of that kind. Those of
// lender_of(root) come last.
std::vector<std::filesystem::path> candidates_in(const std::filesystem::path& root, ComponentKind kind);

// The folder in which the other parts of a transformer's model are looked for first.
std::filesystem::path model_root(const std::filesystem::path& transformer);

}  // namespace flux2
