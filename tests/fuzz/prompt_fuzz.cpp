#include <cstdlib>
#include <string>

#include "app/prompts.h"
#include "app/wildcards.h"
#include "base/error.h"
#include "tests/fuzz/target.h"

// A prompt file: its lines with their own options, adapters in prompts, wildcards.
FUZZ_TARGET(prompt) {
  using namespace flux2;
  const std::string_view text = flux2_fuzz::text_of(data, size);
  try {
    Wildcards wildcards({});
    Wildcards::used_in(text);
    if (wildcards.expand(text, 7).size() > (2 << 20)) std::abort();
  } catch (const Error&) {}
  auto lines = parse_prompt_file(text);
  take_lora_tags(lines, {});
  for (const PromptLine& line : lines)
    if (line.prompt.size() > size) std::abort();
}
