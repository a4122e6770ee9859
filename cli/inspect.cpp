#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"
#include "base/mapped_file.h"
#include "cli/command.h"
#include "cli/component_text.h"
#include "cli/table.h"
#include "hub/recognise.h"
#include "hub/tensor_table.h"
#include "image/format.h"
#include "image/read_image.h"
#include "image/watermark.h"
#include "record/picture_metadata.h"
#include "record/xmp.h"

namespace flux2 {

namespace {

bool is_picture(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored) || std::filesystem::file_size(path, ignored) == 0) return false;
  const auto format = sniff_format(MappedFile::open(path)->bytes());
  return format.has_value();
}

bool is_named_like_a_picture(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  constexpr std::array kExtensions = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".ppm", ".pgm", ".gif", ".avif", ".tif", ".tiff"};
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

Recognition recognise_model(const std::string& path, const Log& log) {
  try {
    return recognise(path, log);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::BadFile || !is_named_like_a_picture(path)) throw;
    throw Error(ErrorCode::BadFile, fmt::format("{} is not an image that this program reads, and not a model either", path),
                "images are PNG, JPEG, WebP, BMP, PPM or PGM files; the content counts, not the name");
  }
}

// Control characters of somebody else's text must not reach the terminal.
std::string harmless(std::string_view text) {
  std::string out;
  for (const char c : text) out += (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f ? '?' : c;
  return out;
}

Json raw_texts(const ImageMetadata& metadata) {
  Json texts = Json::object();
  for (const auto& [key, value] : metadata.text) texts[key] = value;
  if (!metadata.exif_comment.empty()) texts["exif:UserComment"] = metadata.exif_comment;
  if (!metadata.software.empty()) texts["exif:Software"] = metadata.software;
  if (!metadata.make.empty()) texts["exif:Make"] = metadata.make;
  if (!metadata.xmp.empty()) texts["xmp"] = metadata.xmp;
  return texts;
}

// Our own JSON as it stands in the file; of other programs what we understood.
Json settings_of(const FoundRecord& found) {
  if (!found.original.is_null()) return found.original;
  Json json = to_json(found.record);
  for (const char* key : {"v", "rewritten_prompt", "cache", "device", "time_ms", "index", "kind", "profile", "noise", "shift"})
    json.erase(key);
  if (json.value("app", "").empty()) json.erase("app");
  return json;
}

Json watermark_json(const Image& image, const std::string& mark) {
  const WatermarkMatch match = find_watermark(image, watermark_bits(mark));
  return {
      {"mark", mark}, {"found", match.is_found()}, {"matched", match.matched}, {"bits", match.bits}, {"chance", match.chance}};
}

// `mark`: the watermark to look for; empty: none.
Json picture_json(const std::string& path, const Limits& limits, const std::string& mark) {
  const auto file = MappedFile::open(path);
  const Image image = in_context(path, [&] { return read_image(file->bytes(), {.limits = limits.image}); });
  const ImageMetadata metadata = read_metadata(file->bytes(), limits.image);
  Json json = {{"file", path},
               {"kind", "image"},
               {"format", name_of(*sniff_format(file->bytes()))},
               {"width", image.width},
               {"height", image.height}};
  const auto found = find_record(metadata, limits.json);
  json["source"] = found ? Json(found->source) : Json(nullptr);
  json["settings"] = found ? settings_of(*found) : Json(nullptr);
  json["generated"] = says_generated(metadata.xmp);
  json["texts"] = raw_texts(metadata);
  if (!mark.empty()) json["watermark"] = watermark_json(image, mark);
  return json;
}

// "id pico, quant bf16" instead of {"id":"pico","quant":"bf16"}.
std::string in_words(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_structured()) return value.dump();
  std::string all;
  for (const auto& [key, member] : value.items()) {
    if (!all.empty()) all += value.is_array() ? "; " : ", ";
    all += (value.is_array() ? "" : key + " ") + in_words(member);
  }
  return all;
}

void print_picture(Invocation& run, const Json& json) {
  Console& console = run.console;
  console.result(fmt::format("{}: {} image, {}x{}", json["file"].get<std::string>(), json["format"].get<std::string>(),
                             json["width"].get<int>(), json["height"].get<int>()));
  if (json.contains("watermark")) {
    const Json& mark = json["watermark"];
    console.result(fmt::format("  watermark: {}; {} of {} bits match (by chance: {:.2g})",
                               mark["found"].get<bool>() ? "found" : "not found", mark["matched"].get<int>(),
                               mark["bits"].get<int>(), mark["chance"].get<double>()));
  }
  if (run.settings.flag("raw")) {
    for (const auto& [key, value] : json["texts"].items())
      console.result(fmt::format("[{}]\n{}", harmless(key), harmless(value.get<std::string>())));
    return;
  }
  if (json["source"].is_null()) {
    console.result(json["generated"].get<bool>() ? "  marked as made by a model; no settings" : "  no settings inside");
    return;
  }
  console.result("  settings from: " + json["source"].get<std::string>());
  for (const auto& [key, value] : json["settings"].items()) {
    if (value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty())) continue;
    console.result(fmt::format("  {:<10} {}", harmless(key) + ":", harmless(in_words(value))));
  }
}

Json component_json(const Component& c) {
  Json json = {{"kind", name_of(c.kind)},    {"path", c.path.string()}, {"family", c.family},   {"variant", c.variant},
               {"dialect", c.dialect},       {"prefix", c.prefix},      {"storage", c.storage}, {"tensors", c.tensors},
               {"parameters", c.parameters}, {"bytes", c.bytes},        {"usable", c.usable()}, {"evidence", c.evidence}};
  if (c.distilled) json["distilled"] = *c.distilled;
  if (c.distilled) json["distilled_reason"] = c.distilled_reason;
  if (!c.needs.empty()) json["needs"] = c.needs;
  if (!c.serves.empty()) json["serves"] = c.serves;
  if (!c.usable()) json["problem"] = c.problem, json["hint"] = command_line_words(c.hint);
  return json;
}

Json model_json(const Recognition& recognition) {
  Json json = {{"file", recognition.path.string()}, {"kind", name_of(recognition.kind)}, {"container", recognition.container},
               {"evidence", recognition.evidence},  {"components", Json::array()},       {"metadata", recognition.metadata}};
  for (const Component& component : recognition.components) json["components"].push_back(component_json(component));
  return json;
}

// Shapes and parameter counts of a component, the blocks of a network together.
void print_tensors(Invocation& run, const Component& component) {
  std::vector<std::vector<std::string>> rows = {{"    TENSOR", "COUNT", "SHAPE", "TYPE", "PARAMETERS"}};
  int64_t parameters = 0;
  for (const TensorGroup& group : tensor_groups(*open_weights(component.path, run.log), component.prefix)) {
    rows.push_back(
        {"    " + group.name, std::to_string(group.count), group.shape.str(), group.type, fmt::format("{}", group.parameters)});
    parameters += group.parameters;
  }
  rows.push_back({"    total", "", "", "", fmt::format("{}", parameters)});
  run.console.result(text_table(rows));
}

void print_model(Invocation& run, const Recognition& recognition) {
  Console& console = run.console;
  console.result(fmt::format("{}: {} ({})", recognition.path.string(), name_of(recognition.kind), recognition.container));
  for (const std::string& line : recognition.evidence) console.result("  " + harmless(line));
  for (const Component& c : recognition.components) {
    const bool elsewhere = c.path != recognition.path;
    console.result(harmless("  " + component_text(c) + (elsewhere ? " in " + c.path.string() : "")));
    if (c.tensors > 0)
      console.result(harmless(fmt::format("    {} tensors, {:.1f} M parameters, {:.1f} MB, {}{}", c.tensors,
                                          static_cast<double>(c.parameters) / 1e6, static_cast<double>(c.bytes) / 1e6, c.storage,
                                          c.dialect.empty() ? "" : ", " + c.dialect + " names")));
    for (const std::string& line : c.evidence) console.result("    " + harmless(line));
    if (console.verbosity() > 0 && c.tensors > 0) print_tensors(run, c);
    if (!c.needs.empty()) console.result("    needs " + harmless(c.needs));
    if (!c.serves.empty()) console.result(fmt::format("    contains what is needed for {}", fmt::join(c.serves, ", ")));
    if (!c.usable())
      console.result(harmless(
          fmt::format("    cannot be used: {}{}", c.problem, c.hint.empty() ? "" : "\n    hint: " + command_line_words(c.hint))));
  }
  if (run.settings.flag("raw"))
    for (const auto& [key, value] : recognition.metadata) console.result(fmt::format("[{}]\n{}", harmless(key), harmless(value)));
}

}  // namespace

int run_inspect(Invocation& run) {
  check(!run.positional.empty(), "inspect needs a file or folder");
  Json all = Json::array();
  const std::string asked = run.settings.text("watermark", "off"), mark = asked == "off" ? "" : asked;
  for (const std::string& path : run.positional) {
    const bool picture = is_picture(path);
    if (picture) {
      Json json = picture_json(path, run.limits, mark);
      if (!run.console.json()) print_picture(run, json);
      all.push_back(std::move(json));
    } else {
      const Recognition recognition = recognise_model(path, run.console.log());
      if (!run.console.json()) print_model(run, recognition);
      all.push_back(model_json(recognition));
    }
  }
  if (run.console.json()) run.console.result(pretty(all.size() == 1 ? all[0] : all));
  return 0;
}

}  // namespace flux2
