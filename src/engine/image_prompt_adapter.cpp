#include "engine/image_prompt_adapter.h"

namespace flux2 {

void use_image_prompt(ModelSession& session, const std::filesystem::path& file) {
  if (file.empty()) {
    session.image_prompt = nullptr;
    return;
  }
  in_context("loading the image-prompt adapter", [&] {
    std::error_code unknown;
    const LoadedPart::File found{file, std::filesystem::last_write_time(file, unknown),
                                 std::filesystem::file_size(file, unknown)};
    if (session.image_prompt && session.image_prompt_file == found) return;
    const auto weights = open_weights(file, session.log);
    const ImagePromptConfig config = detect_image_prompt(*weights);
    check_image_prompt(config, session.models.transformer.config());
    session.image_prompt =
        std::make_shared<const ImagePromptNetwork>(load_image_prompt(*weights, config, *session.stream, session.activations));
    session.image_prompt_file = found;
  });
}

}  // namespace flux2
