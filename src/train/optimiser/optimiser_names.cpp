#include "train/optimiser/optimiser_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "train/optimiser/python_literals.h"

namespace flux2 {

namespace {

struct NamedOptimiser {
  const char* name;    // in lower case, without module path
  const char* module;  // what a path before the name may be, in lower case; any of these separated by spaces
  OptimiserKind kind;
  const char* python;  // the class as Python names it in full
};

constexpr auto kNamedOptimisers = std::to_array<NamedOptimiser>({
    {"adamw", "torch.optim torch.optim.adamw", OptimiserKind::AdamW, "torch.optim.adamw.AdamW"},
    {"adamw8bit", "bitsandbytes.optim bitsandbytes.optim.adamw", OptimiserKind::AdamW8bit, "bitsandbytes.optim.adamw.AdamW8bit"},
    {"pagedadamw8bit", "bitsandbytes.optim bitsandbytes.optim.adamw", OptimiserKind::AdamW8bit,
     "bitsandbytes.optim.adamw.PagedAdamW8bit"},
    {"adamw", "bitsandbytes.optim bitsandbytes.optim.adamw", OptimiserKind::AdamW, "bitsandbytes.optim.adamw.AdamW"},
    {"lion", "lion_pytorch lion_pytorch.lion_pytorch", OptimiserKind::Lion, "lion_pytorch.lion_pytorch.Lion"},
    {"lion", "bitsandbytes.optim bitsandbytes.optim.lion", OptimiserKind::Lion, "bitsandbytes.optim.lion.Lion"},
    {"lion8bit", "bitsandbytes.optim bitsandbytes.optim.lion", OptimiserKind::Lion8bit, "bitsandbytes.optim.lion.Lion8bit"},
    {"pagedlion8bit", "bitsandbytes.optim bitsandbytes.optim.lion", OptimiserKind::Lion8bit,
     "bitsandbytes.optim.lion.PagedLion8bit"},
    {"adafactor", "transformers transformers.optimization", OptimiserKind::Adafactor, "transformers.optimization.Adafactor"},
    {"prodigy", "prodigyopt prodigyopt.prodigy", OptimiserKind::Prodigy, "prodigyopt.prodigy.Prodigy"},
    {"adamwschedulefree", "schedulefree schedulefree.adamw_schedulefree", OptimiserKind::ScheduleFree,
     "schedulefree.adamw_schedulefree.AdamWScheduleFree"},
    {"ademamix", "bitsandbytes.optim bitsandbytes.optim.ademamix", OptimiserKind::AdEmaMix,
     "bitsandbytes.optim.ademamix.AdEMAMix"},
    {"ademamix8bit", "bitsandbytes.optim bitsandbytes.optim.ademamix", OptimiserKind::AdEmaMix8bit,
     "bitsandbytes.optim.ademamix.AdEMAMix8bit"},
    {"pagedademamix8bit", "bitsandbytes.optim bitsandbytes.optim.ademamix", OptimiserKind::AdEmaMix8bit,
     "bitsandbytes.optim.ademamix.PagedAdEMAMix8bit"},
    {"came", "came_pytorch came_pytorch.came", OptimiserKind::Came, "came_pytorch.CAME.CAME"},
    {"sgd", "torch.optim torch.optim.sgd", OptimiserKind::Sgd, "torch.optim.sgd.SGD"},
});

bool is_one_of(std::string_view word, std::string_view words) {
  while (!words.empty()) {
    const size_t space = std::min(words.find(' '), words.size());
    if (words.substr(0, space) == word) return true;
    words.remove_prefix(std::min(space + 1, words.size()));
  }
  return false;
}

const NamedOptimiser& find_optimiser(const std::string& type) {
  std::string lower(trimmed(type));
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower.empty()) lower = "adamw";
  const size_t dot = lower.rfind('.');
  const std::string name = dot == std::string::npos ? lower : lower.substr(dot + 1);
  const std::string module = dot == std::string::npos ? "" : lower.substr(0, dot);
  for (const NamedOptimiser& known : kNamedOptimisers)
    if (name == known.name && (module.empty() || is_one_of(module, known.module))) return known;
  const std::string near = nearest_word(name, optimiser_names());
  throw Error(ErrorCode::InvalidArgument,
              fmt::format("optimizer_type: \"{}\" is not one of: {}", printable(type), fmt::join(optimiser_names(), ", ")),
              near.empty() ? Hint() : Hint("did you mean {0}?", {set_option("optimizer_type", near)}));
}

// relative_step is on by default, and warmup_init needs it.
bool has_relative_step(PythonOptions& args) { return args.flag("warmup_init", false) || args.flag("relative_step", true); }

}  // namespace

const std::vector<std::string>& optimiser_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const NamedOptimiser& known : kNamedOptimisers)
      if (!std::string_view(known.name).starts_with("paged") && std::find(names.begin(), names.end(), known.name) == names.end())
        names.emplace_back(known.name);
    return names;
  }();
  return kNames;
}

OptimiserKind optimiser_named(const std::string& type) { return find_optimiser(type).kind; }

std::string optimiser_text(const std::string& type, const std::vector<std::string>& args) {
  const NamedOptimiser& known = find_optimiser(type);
  PythonOptions options("optimizer_args", args);
  std::string text = options.str();
  // The Python trainer passes relative_step on even where nobody gave it.
  if (known.kind == OptimiserKind::Adafactor && !options.has("relative_step"))
    text += std::string(text.empty() ? "" : ",") + "relative_step=True";
  return text.empty() ? known.python : fmt::format("{}({})", known.python, text);
}

bool chooses_its_rate(const std::string& type, const std::vector<std::string>& args) {
  if (optimiser_named(type) != OptimiserKind::Adafactor) return false;
  PythonOptions options("optimizer_args", args);
  return has_relative_step(options);
}

bool takes_schedule(const std::string& type) { return optimiser_named(type) != OptimiserKind::ScheduleFree; }

std::vector<std::string> optimiser_warnings(const std::string& type, const std::vector<std::string>& args,
                                            const std::string& lr_scheduler, double max_grad_norm) {
  std::vector<std::string> out;
  const OptimiserKind kind = optimiser_named(type);
  PythonOptions options("optimizer_args", args);
  if (kind == OptimiserKind::Adafactor) {
    if (options.flag("warmup_init", false) && !options.flag("relative_step", true))
      out.emplace_back("Adafactor: warmup_init needs relative_step, which is switched on.");
    if (has_relative_step(options))
      out.emplace_back("Adafactor chooses its own learning rate (relative_step), so the given one is not used.");
    else {
      if (lr_scheduler != "constant_with_warmup")
        out.push_back(
            fmt::format("Adafactor without relative_step is usually run with the schedule constant_with_warmup, not {}.",
                        printable(lr_scheduler)));
      if (max_grad_norm != 0) out.emplace_back("Adafactor clips its updates itself; clipping gradients as well is unusual.");
    }
  }
  if (kind == OptimiserKind::ScheduleFree && lr_scheduler != "constant")
    out.push_back(fmt::format("A schedule-free optimiser needs no schedule, so {} is not used.", printable(lr_scheduler)));
  return out;
}

}  // namespace flux2
