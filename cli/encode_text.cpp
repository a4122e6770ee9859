#include <fmt/format.h>

#include "app/model_choice.h"
#include "app/picture_maker.h"
#include "cli/command.h"
#include "cli/prepare.h"
#include "cli/progress_display.h"
#include "pipeline/text_states.h"
#include "weights/safetensors_writer.h"

namespace flux2 {

int run_encode_text(Invocation& run) {
  const RequestSpec spec = run.spec();
  const std::string output = spec.output.value_or("");
  check(!output.empty() && output != "-", "encode-text needs -o FILE");
  const std::vector<PromptLine> prompts = read_prompts(run, false);
  const ModelFiles files = choose_model(spec, run);
  const bool guided = files.defaults.guidance_kind == ModelDefaults::TrueCfg;

  ProgressDisplay display(run.console);
  const Engine engine(engine_options(spec, run));
  const auto session = engine.open(files, display.progress(), {.transformer = false, .vae = false});
  std::vector<std::pair<std::string, Tensor>> tensors;
  const auto add = [&](const std::string& name, const std::string& prompt) {
    const Tensor states = text_states(*session, prompt, name, display.progress());
    const std::vector<float> values = states.to_floats();
    tensors.emplace_back(name + ".embeddings", Tensor::host_copy(values.data(), DType::F32, {states.dim(1), states.dim(2)}));
  };
  add("text", prompts.at(0).prompt);
  if (guided || spec.negative) add("negative", spec.negative.value_or(""));
  save_tensors(output, tensors, {{"prompt", prompts.at(0).prompt}, {"model", files.id}});
  display.finish();
  if (run.console.json()) {
    Json shapes = Json::object();
    for (const auto& [name, tensor] : tensors) shapes[name] = {tensor.dim(0), tensor.dim(1)};
    run.console.result(Json{{"path", output}, {"tensors", shapes}, {"warnings", run.console.warnings()}}.dump(
        -1, ' ', false, Json::error_handler_t::replace));
  } else {
    run.console.result(output);
  }
  return 0;
}

}  // namespace flux2
