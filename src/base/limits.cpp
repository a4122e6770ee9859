#include "base/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "base/text.h"

namespace flux2 {

namespace {

template <auto Part, auto Member>
LimitField limit(const char* name, const char* help, uint64_t low, uint64_t high) {
  return {name,
          help,
          low,
          high,
          [](const Limits& l) { return static_cast<uint64_t>((l.*Part).*Member); },
          [](Limits& l, uint64_t value) {
            auto& at = (l.*Part).*Member;
            at = static_cast<std::remove_reference_t<decltype(at)>>(value);
          }};
}

constexpr uint64_t kAnyBytes = uint64_t{1} << 50, kAnyCount = 1'000'000'000;

}  // namespace

Limits Limits::for_server() {
  Limits l;
  l.request = {.side = 4096,
               .pixels = int64_t{4096} * 4096,
               .batch = 16,
               .repeat = 1,
               .steps = 256,
               .references = 16,
               .adapters = 8,
               .prompt_bytes = 32 << 10,
               .prompts = 1,
               .reference_pixels = int64_t{2048} * 2048};
  l.image = {.side = 16384, .pixels = int64_t{1} << 26, .file_bytes = size_t{50} << 20, .metadata_bytes = size_t{4} << 20};
  l.text.bytes = size_t{8} << 20;
  l.json = {.bytes = size_t{1} << 20, .keys = 20'000, .values = 100'000, .depth = 32, .can_be_raised = true};
  l.weights.tensors = 100'000;
  l.process = {.threads = 256, .queue = 100, .download_bytes = uint64_t{1} << 38};
  return l;
}

const std::vector<LimitField>& limit_fields() {
  using L = Limits;
  static const std::vector<LimitField> fields = {
      limit<&L::request, &RequestLimits::side>("side", "width and height of an image to generate, in pixels", 64, 65500),
      limit<&L::request, &RequestLimits::pixels>("pixels", "width times height of an image to generate", 4096, uint64_t{1} << 31),
      limit<&L::request, &RequestLimits::batch>("batch", "images of one prompt", 1, kAnyCount),
      limit<&L::request, &RequestLimits::repeat>("repeat", "repetitions of a run", 1, kAnyCount),
      limit<&L::request, &RequestLimits::steps>("steps", "denoising steps", 1, kAnyCount),
      limit<&L::request, &RequestLimits::references>("references", "reference images of one request", 0, 1024),
      limit<&L::request, &RequestLimits::adapters>("adapters", "adapters of one request", 0, 100'000),
      limit<&L::request, &RequestLimits::prompt_bytes>("prompt-bytes", "bytes of one prompt", 1, uint64_t{1} << 30),
      limit<&L::request, &RequestLimits::prompts>("prompts", "prompts of one run", 1, kAnyCount),
      limit<&L::request, &RequestLimits::reference_pixels>("reference-pixels", "pixels of a reference that is not scaled down",
                                                           4096, uint64_t{1} << 31),
      limit<&L::image, &ImageLimits::side>("image-side", "width and height of an image file, in pixels", 1, 65500),
      limit<&L::image, &ImageLimits::pixels>("image-pixels", "pixels of an image file", 1, uint64_t{1} << 31),
      limit<&L::image, &ImageLimits::file_bytes>("image-bytes", "bytes of an image file", 1, kAnyBytes),
      limit<&L::image, &ImageLimits::metadata_bytes>("metadata-bytes", "bytes of the decompressed metadata of an image file", 0,
                                                     kAnyBytes),
      limit<&L::text, &TextLimits::bytes>("text-bytes", "bytes of a text file: prompts, wildcards, configurations", 1, kAnyBytes),
      limit<&L::json, &JsonLimits::bytes>("json-bytes", "bytes of a JSON text", 1, kAnyBytes),
      limit<&L::json, &JsonLimits::keys>("json-keys", "keys of a JSON text", 1, kAnyCount),
      limit<&L::json, &JsonLimits::values>("json-values", "values of a JSON text", 1, kAnyCount),
      limit<&L::json, &JsonLimits::depth>("json-depth", "nesting of a JSON text", 1, 1000),
      limit<&L::process, &ProcessLimits::threads>("threads", "threads", 1, 65536),
      limit<&L::process, &ProcessLimits::queue>("queue", "requests that wait", 1, kAnyCount),
      limit<&L::process, &ProcessLimits::download_bytes>("download-bytes", "bytes of a downloaded file", 1, kAnyBytes),
  };
  return fields;
}

const LimitField* find_limit(std::string_view name) {
  for (const LimitField& field : limit_fields())
    if (field.name == name) return &field;
  return nullptr;
}

Hint raise_limit(std::string_view name, uint64_t needed) {
  const LimitField* field = find_limit(name);
  if (!field || needed > field->high) return {};
  return {"if you trust the source, raise the limit with {0}",
          {run_command(fmt::format("config set limits.{} {}", name, needed))}};
}

void check_limit(std::string_view name, uint64_t found, uint64_t allowed, std::string_view what, ErrorCode code) {
  if (found <= allowed) return;
  const auto print = [&](uint64_t value) {
    if (!name.ends_with("bytes")) return std::to_string(value);
    const std::string text = byte_text(value);
    return byte_text(found) == byte_text(allowed) ? fmt::format("{} bytes", value) : text;
  };
  std::string message(what);
  if (const size_t slot = message.find("{}"); slot != message.npos) message.replace(slot, 2, print(found));
  throw Error(code, fmt::format("{}; the limit is {}", message, print(allowed)), raise_limit(name, found));
}

}  // namespace flux2
