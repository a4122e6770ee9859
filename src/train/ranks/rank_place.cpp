#include "train/ranks/rank_place.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

int number_in_environment(const char* name, std::string_view text, int low, int high) {
  int value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(failure == std::errc() && end == text.data() + text.size() && value >= low && value <= high,
        "the environment variable {} is \"{}\"; it must be a number from {} to {}", name, printable(text), low, high);
  return value;
}

}  // namespace

std::optional<RankPlace> rank_from_environment(const std::function<const char*(const char* name)>& given) {
  constexpr int kMostRanks = 4096;
  const auto get = [&](const char* name) {
    const char* value = given ? given(name) : std::getenv(name);
    return std::string_view(value != nullptr ? value : "");
  };
  if (get("RANK").empty() && get("WORLD_SIZE").empty()) return std::nullopt;
  for (const char* name : {"RANK", "WORLD_SIZE"})
    check(!get(name).empty(), "the environment variable {} is missing; RANK and WORLD_SIZE are set together", name);
  RankPlace place;
  place.size = number_in_environment("WORLD_SIZE", get("WORLD_SIZE"), 1, kMostRanks);
  place.rank = number_in_environment("RANK", get("RANK"), 0, place.size - 1);
  place.local_rank = place.rank;
  if (!get("LOCAL_RANK").empty()) place.local_rank = number_in_environment("LOCAL_RANK", get("LOCAL_RANK"), 0, kMostRanks - 1);
  if (!get("MASTER_ADDR").empty()) place.address = get("MASTER_ADDR");
  if (!get("MASTER_PORT").empty()) place.port = number_in_environment("MASTER_PORT", get("MASTER_PORT"), 1, 65535);
  // torchrun listens at this port itself and tells its processes so; the ranks meet at the next one.
  if (get("TORCHELASTIC_USE_AGENT_STORE") == "True") place.port += place.port < 65535 ? 1 : -1;
  place.token = get("FLUX2_RANK_TOKEN");
  return place;
}

}  // namespace flux2
