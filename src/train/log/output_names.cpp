#include "train/log/output_names.h"

#include <ctime>
#include <string_view>

#include "base/error.h"
#include "base/foreign_text.h"
#include "base/text.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

bool is_digits(std::string_view text, size_t at_least) {
  return text.size() >= at_least && text.find_first_not_of("0123456789") == text.npos;
}

}  // namespace

void check_output_name(const std::string& name) {
  if (is_plain_name(name) && name.size() <= 200) return;
  throw Error(ErrorCode::InvalidArgument, fmt::format("the output name \"{}\" is not a file name", printable(name)),
              Hint("use {0} for the name without folder and ending, and {1} for the folder",
                   {set_option("output_name"), set_option("output_dir")}));
}

fs::path OutputNames::epoch_checkpoint(int64_t epoch) const { return folder / fmt::format("{}-{:06}.safetensors", name, epoch); }
fs::path OutputNames::step_checkpoint(int64_t step) const { return folder / fmt::format("{}-step{:08}.safetensors", name, step); }
fs::path OutputNames::last_checkpoint() const { return folder / (name + ".safetensors"); }
fs::path OutputNames::epoch_state(int64_t epoch) const { return folder / fmt::format("{}-{:06}-state", name, epoch); }
fs::path OutputNames::step_state(int64_t step) const { return folder / fmt::format("{}-step{:08}-state", name, step); }
fs::path OutputNames::last_state() const { return folder / (name + "-state"); }
fs::path OutputNames::log() const { return folder / (name + ".jsonl"); }
fs::path OutputNames::report() const { return folder / "report.html"; }

fs::path OutputNames::sample(const Sample& s) const {
  const std::string number = s.by_epoch ? fmt::format("e{:06}", s.number) : fmt::format("{:06}", s.number);
  const std::string seed = s.seed ? fmt::format("_{}", *s.seed) : "";
  return folder / "sample" / fmt::format("{}_{}_{:02}_{}{}_000.png", name, number, s.index, compact_time(s.unix_time), seed);
}

bool OutputNames::is_state_name(const std::string& file_name) const {
  constexpr std::string_view kEnd = "-state";
  std::string_view rest = file_name;
  if (!rest.starts_with(name) || !rest.ends_with(kEnd) || rest.size() < name.size() + kEnd.size()) return false;
  rest = rest.substr(name.size(), rest.size() - name.size() - kEnd.size());  // "", "-000002" or "-step00000100"
  if (rest.empty()) return true;
  if (rest.starts_with("-step")) return is_digits(rest.substr(5), 8);
  return rest.starts_with('-') && is_digits(rest.substr(1), 6);
}

std::string compact_time(int64_t unix_time) {
  const auto seconds = static_cast<std::time_t>(unix_time);
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y%m%d%H%M%S", &local)};
}

}  // namespace flux2
