#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/data/dataset_config.h"

namespace flux2 {

constexpr int64_t kCaptionVariants = 8;  // unless the user says otherwise

// The texts that the text encoder gets for a caption as it was written, the first with its tags in that order. There are several
// only with shuffle_tags, at most `variants`, all different. The order of tags depends on the caption alone.
//   prefix, tags, suffix are joined by a space where there is none; the trigger word replaces {trigger}, else it goes in front
//   with a comma.
std::vector<std::string> caption_texts(const DatasetConfig& config, std::string_view caption,
                                       int64_t variants = kCaptionVariants);

// The content of a caption file: UTF-8, line ends as \n, no white space around it, no byte order mark. Throws BadFile.
std::string caption_of_file(const std::filesystem::path& path);

}  // namespace flux2
