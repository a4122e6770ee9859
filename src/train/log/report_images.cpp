#include "train/log/report_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/base64.h"
#include "base/error.h"
#include "image/read_image.h"
#include "image/resize.h"
#include "image/write_image.h"
#include "train/log/html_text.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr int kImageSide = 320;      // larger images are scaled down
constexpr int kExactSide = 128;      // images up to this size are kept without loss
constexpr size_t kMostImages = 300;  // about 25 KB each
constexpr size_t kMostPrompts = 60;

// A log names files; a report made of somebody else's log must not collect images from all over the disk.
std::optional<fs::path> inside(const fs::path& folder, const std::string& file) {
  const fs::path relative = fs::path(file).lexically_normal();
  if (file.empty() || relative.is_absolute() || *relative.begin() == "..") return std::nullopt;
  return folder / relative;
}

std::string image_element(const RunHistory::Sample& sample, const fs::path& folder) {
  const auto path = inside(folder, sample.file);
  if (!path) return R"(<span class="gone">outside this folder</span>)";
  try {
    Image image = to_rgb(read_image(*path));
    const int side = std::max(image.width, image.height);
    if (side > kImageSide) {
      const auto scaled = [&](int extent) { return std::max(1, static_cast<int>(int64_t{extent} * kImageSide / side)); };
      image = resize(image, scaled(image.width), scaled(image.height));
    }
    const bool exact = side <= kExactSide;
    const auto bytes = exact ? encode_png(image) : encode_jpeg(image, {}, 85);
    return fmt::format(R"(<img alt="" loading="lazy" src="data:image/{};base64,{}">)", exact ? "png" : "jpeg",
                       base64_encode(bytes));
  } catch (const Error&) {
    return R"(<span class="gone">image not found</span>)";
  }
}

// `count` of them, evenly spaced, with the first and the last.
std::vector<const RunHistory::Sample*> evenly(const std::vector<const RunHistory::Sample*>& all, size_t count) {
  if (all.size() <= count) return all;
  std::vector<const RunHistory::Sample*> kept;
  for (size_t i = 0; i < count; ++i) kept.push_back(all[i * (all.size() - 1) / (count - 1)]);
  return kept;
}

}  // namespace

std::string sample_grid(const RunHistory& history, const fs::path& folder) {
  std::map<int64_t, std::vector<const RunHistory::Sample*>> prompts;
  for (const auto& sample : history.samples) prompts[sample.index].push_back(&sample);
  const size_t columns = std::max<size_t>(3, kMostImages / std::max<size_t>(1, std::min(prompts.size(), kMostPrompts)));
  std::string out;
  size_t rows = 0;
  for (auto& [index, all] : prompts) {
    if (rows++ == kMostPrompts) break;
    std::stable_sort(all.begin(), all.end(), [](const auto* a, const auto* b) { return a->step < b->step; });
    const auto& newest = *all.back();
    out += fmt::format(R"(<section class="prompt"><p><b>{}</b> {}{}</p><div class="strip">)", index, html_text(newest.prompt),
                       newest.seed.empty() ? "" : fmt::format(R"( <small>seed {}</small>)", html_text(newest.seed)));
    for (const auto* sample : evenly(all, columns))
      out += fmt::format("<figure>{}<figcaption>step {}</figcaption></figure>", image_element(*sample, folder), sample->step);
    out += "</div></section>";
  }
  return out;
}

}  // namespace flux2
