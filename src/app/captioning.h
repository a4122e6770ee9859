#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "app/context.h"
#include "rewrite/rewriter.h"

namespace flux2 {

// Captions for the images of a folder, as training reads them: NAME.txt next to NAME.png.
struct CaptionOptions {
  std::filesystem::path folder;
  std::string extension = ".txt";
  std::string prefix = {};  // in front of every caption, as it is: "myword, "
  std::string about = {};   // words that may help to describe the images
  bool overwrite = false;   // also replace captions that exist
  bool recursive = false;   // images of folders inside it too
  uint64_t seed = 0;
};

struct CaptionReport {
  int64_t images = 0, written = 0, kept = 0;  // kept: those that had a caption
  std::vector<std::string> failed;            // images that could not be read or described, with the reason
};

// Called before each image that is described: how many of `total` are finished.
using OnCaption = std::function<void(size_t done, size_t total, const std::filesystem::path& image)>;

// Writes the captions that are missing, one complete file at a time, so that a run that is stopped can be repeated and goes on
// where it was. An image that cannot be read, or whose description is of no use, is reported and left out. Throws Cancelled if
// `cancelled` says so, and the errors of a service that does not answer.
CaptionReport caption_images(const CaptionOptions& options, Rewriter& rewriter, const AppContext& context,
                             const Rewriter::Cancelled& cancelled, const OnCaption& on_caption = {});

}  // namespace flux2
