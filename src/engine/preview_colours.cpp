#include "engine/preview_colours.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "base/atomic_file.h"
#include "base/file_hash.h"
#include "base/json.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kLargestFile = uint64_t{1} << 30;  // hashing more would take longer than the fit

std::optional<LatentColours> read_colours(const fs::path& path, size_t channels) {
  try {
    std::error_code ignored;
    if (!fs::exists(path, ignored)) return std::nullopt;
    const Json json = read_json(path);
    LatentColours colours{json.at("factors").get<std::vector<std::array<float, 3>>>(),
                          json.at("bias").get<std::array<float, 3>>()};
    bool sound = colours.factors.size() == channels;
    for (const auto& factor : colours.factors)
      for (const float f : factor) sound = sound && std::isfinite(f);
    if (sound) return colours;
  } catch (const Error&) {
  } catch (const Json::exception&) {}
  return std::nullopt;  // a damaged file is recreated
}

void write_colours(const fs::path& path, const LatentColours& colours) {
  try {
    const std::string text = Json{{"factors", colours.factors}, {"bias", colours.bias}}.dump(1);
    AtomicFile file(path);
    file.write(text.data(), text.size());
    file.commit();
  } catch (const Error&) {
    // A folder we may not write to: they are computed again next time.
  }
}

}  // namespace

LatentColours latent_colours(ModelSession& session, const fs::path& cache) {
  const Vae& vae = *session.models.vae;
  const std::string hash = cache.empty() ? "" : remembered_hash(session.model->files.vae, cache / "hashes.json", kLargestFile);
  const fs::path file = hash.empty() ? fs::path{} : cache / "previews" / (hash.substr(0, 32) + ".json");
  if (!file.empty())
    if (auto known = read_colours(file, static_cast<size_t>(vae.config.packed_channels() / 4))) return *known;
  const LatentColours colours = fit_latent_colours(vae, session);
  if (!file.empty()) write_colours(file, colours);
  return colours;
}

}  // namespace flux2
