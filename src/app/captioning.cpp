#include "app/captioning.h"

#include <fmt/format.h>

#include <set>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/path_exists.h"
#include "image/read_image.h"
#include "train/data/match_files.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

void write_caption(const fs::path& path, const std::string& caption) {
  AtomicFile file(path);
  const std::string line = caption + "\n";
  file.write(line.data(), line.size());
  file.commit();
}

// Whether a failure concerns one image alone; otherwise the next image would fail too.
bool concerns_image(const Error& e) {
  return e.code() == ErrorCode::BadFile || e.code() == ErrorCode::NotFound || e.code() == ErrorCode::Incompatible;
}

}  // namespace

CaptionReport caption_images(const CaptionOptions& options, Rewriter& rewriter, const AppContext& context,
                             const Rewriter::Cancelled& cancelled, const OnCaption& on_caption) {
  std::error_code unreadable;
  if (!fs::is_directory(options.folder, unreadable))
    fail(ErrorCode::NotFound, "{} is not a folder of images", options.folder.string());
  check(options.extension.size() > 1 && options.extension[0] == '.' && options.extension.find('/') == std::string::npos,
        "the extension of captions must be like \".txt\", not \"{}\"", options.extension);
  if (!rewriter.sees_images())
    throw Error(ErrorCode::Incompatible, fmt::format("{} cannot look at images", rewriter.model()),
                "use the text encoder of FLUX.2-dev, or a chat server with a model that sees");
  CaptionReport report;
  struct Waiting {
    fs::path image, caption;
  };
  std::vector<Waiting> waiting;
  std::set<fs::path> taken;
  for (const ListedFile& file : list_images(options.folder, options.recursive)) {
    ++report.images;
    const fs::path caption = file.path.parent_path() / (file.stem + options.extension);
    if (!taken.insert(caption).second) {
      report.failed.push_back(
          fmt::format("{}: another image would have the same caption file {}", file.path.string(), caption.filename().string()));
      continue;
    }
    if (!options.overwrite && path_exists(caption)) ++report.kept;
    else waiting.push_back({file.path, caption});
  }
  check(report.images > 0, "{} contains no images", options.folder.string());
  constexpr int kMostInARow = 5;  // answers that are of no use: then the model does not work
  int in_a_row = 0;
  for (size_t i = 0; i < waiting.size(); ++i) {
    if (cancelled && cancelled()) fail(ErrorCode::Cancelled, "stopped");
    if (on_caption) on_caption(i, waiting.size(), waiting[i].image);
    bool is_read = false;
    try {
      const Image image = read_image(waiting[i].image, {.limits = context.limits.image, .log = context.log});
      is_read = true;
      const RewrittenPrompt made = describe_image(
          rewriter, to_rgb(image), {.about = options.about, .seed = options.seed, .one_line = true}, cancelled, context.log);
      write_caption(waiting[i].caption, options.prefix + made.prompt);
      ++report.written;
      in_a_row = 0;
    } catch (const Error& e) {
      if (!concerns_image(e) || (is_read && ++in_a_row == kMostInARow)) throw;
      report.failed.push_back(fmt::format("{}: {}", waiting[i].image.string(), e.what()));
    }
  }
  if (on_caption && !waiting.empty()) on_caption(waiting.size(), waiting.size(), {});
  return report;
}

}  // namespace flux2
