#include "train/sample_prompts.h"

#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

template <class Number>
Number number_of(std::string_view text, std::string_view option) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size(), "sample prompt: {} \"{}\" is not a number", option, text);
  return value;
}

void set_option_of_line(SamplePrompt& p, std::string_view name, std::string_view value) {
  if (name == "w") p.width = number_of<int64_t>(value, name);
  else if (name == "h") p.height = number_of<int64_t>(value, name);
  else if (name == "s") p.steps = number_of<int64_t>(value, name);
  else if (name == "d") p.seed = number_of<uint64_t>(value, name);
  else if (name == "g") p.guidance = number_of<double>(value, name);
  else if (name == "fs") p.flow_shift = number_of<double>(value, name);
  else if (name == "n") p.negative = value;
  else if (name == "ci") p.references.emplace_back(value);
  else if (name == "ip") p.image_prompts.emplace_back(value);
  else
    check(name == "l" || name == "f" || name == "i" || name == "ei" || name == "cn" || name == "of",
          "sample prompt: unknown option \"{}\"; use w, h, s, d, g, n, fs, ci or ip", name);
}

// An option starts with " --", a letter, and is not part of the prompt itself.
SamplePrompt prompt_of_line(std::string_view text) {
  const std::string line = " " + std::string(text);  // the prompt may be empty
  SamplePrompt p;
  size_t at = line.find(" --");
  p.prompt = trimmed(std::string_view(line).substr(0, at));
  while (at != line.npos) {
    const size_t next = line.find(" --", at + 1);
    const std::string_view option = trimmed(std::string_view(line).substr(at + 3, next == line.npos ? next : next - at - 3));
    const size_t space = option.find(' ');
    set_option_of_line(p, option.substr(0, space), space == option.npos ? std::string_view{} : trimmed(option.substr(space + 1)));
    at = next;
  }
  return p;
}

void check_sample(const SamplePrompt& p) {
  check(!p.prompt.empty() || !p.image_prompts.empty(), "a sample prompt is empty");
  for (const auto& side : {p.width, p.height})
    check(!side || (*side >= 16 && *side <= 8192), "sample prompt: a side of {} pixels is not between 16 and 8192",
          side.value_or(0));
  check(!p.steps || (*p.steps >= 1 && *p.steps <= 1000), "sample prompt: {} steps are not between 1 and 1000",
        p.steps.value_or(0));
}

SamplePrompt prompt_of_object(const Json& o) {
  SamplePrompt p;
  for (const auto& [key, value] : o.items()) {
    const auto number = [&, k = key, v = value] {
      check(v.is_number(), "sample prompt: \"{}\" must be a number", k);
      return v.get<double>();
    };
    if (key == "prompt") p.prompt = value.is_string() ? value.get<std::string>() : "";
    else if (key == "negative_prompt") p.negative = value.is_string() ? value.get<std::string>() : " ";
    else if (key == "width") p.width = static_cast<int64_t>(number());
    else if (key == "height") p.height = static_cast<int64_t>(number());
    else if (key == "sample_steps") p.steps = static_cast<int64_t>(number());
    else if (key == "seed") p.seed = static_cast<uint64_t>(number());
    else if (key == "guidance_scale" || key == "cfg_scale") p.guidance = number();
    else if (key == "discrete_flow_shift") p.flow_shift = number();
    else if (key == "control_image_path" || key == "image_prompt") {
      check(value.is_string() || value.is_array(), "sample prompt: \"{}\" must be a path or a list of paths", key);
      for (const Json& path : value.is_array() ? value : Json::array({value})) {
        check(path.is_string(), "sample prompt: \"{}\" must contain paths", key);
        (key == "image_prompt" ? p.image_prompts : p.references).push_back(path.get<std::string>());
      }
    } else if (key != "frame_count" && key != "enum" && key != "subset") {
      fail(ErrorCode::InvalidArgument, "sample prompt: unknown key \"{}\"", key);
    }
  }
  return p;
}

}  // namespace

std::vector<SamplePrompt> sample_prompts_from_text(std::string_view text) {
  std::vector<SamplePrompt> prompts;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text = end == text.npos ? std::string_view{} : text.substr(end + 1);
    if (line.empty() || line.starts_with('#')) continue;
    prompts.push_back(prompt_of_line(line));
    check_sample(prompts.back());
  }
  check(!prompts.empty(), "the file of sample prompts contains no prompt");
  return prompts;
}

std::vector<SamplePrompt> sample_prompts_from_json(const Json& json) {
  std::vector<SamplePrompt> prompts;
  const auto add = [&](const Json& item) {
    check(item.is_string() || item.is_object(), "a sample prompt must be a text or an object");
    prompts.push_back(item.is_string() ? prompt_of_line(item.get<std::string>()) : prompt_of_object(item));
    check_sample(prompts.back());
  };
  if (json.is_object()) {
    check(json.contains("prompt") && json["prompt"].is_object(), "sample prompts: a table [prompt] is missing");
    const Json& common = json["prompt"];
    if (!common.contains("subset")) {
      add(common);
    } else {
      check(common["subset"].is_array(), "sample prompts: subset must be a list of tables");
      for (const Json& subset : common["subset"]) {
        check(subset.is_object(), "sample prompts: subset must be a list of tables");
        Json merged = common;
        merged.erase("subset");
        merged.update(subset);
        add(merged);
      }
    }
  } else {
    check(json.is_array(), "sample prompts must be a list");
    for (const Json& item : json) add(item);
  }
  check(!prompts.empty(), "the file of sample prompts contains no prompt");
  return prompts;
}

}  // namespace flux2
