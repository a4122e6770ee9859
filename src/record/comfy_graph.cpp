#include "record/comfy_graph.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "record/field_values.h"
#include "record/request_fields.h"

namespace flux2 {

namespace {

struct Node {
  struct Input {
    std::string name, type;
    int from = 0;  // node id; every node used here has one output
  };
  std::string type;
  std::vector<Input> inputs;
  std::vector<std::pair<std::string, Json>> widgets;
  std::string output;  // its type; empty for the last node
};

using Nodes = std::vector<Node>;  // ids count from 1

int add(Nodes& nodes, Node node) {
  nodes.push_back(std::move(node));
  return static_cast<int>(nodes.size());
}

Nodes nodes_of(const GenerationRecord& r) {
  Nodes nodes;
  const int model =
      add(nodes, {"UNETLoader", {}, {{"unet_name", r.model + ".safetensors"}, {"weight_dtype", "default"}}, "MODEL"});
  const int clip = add(
      nodes, {"CLIPLoader", {}, {{"clip_name", "text_encoder.safetensors"}, {"type", "flux2"}, {"device", "default"}}, "CLIP"});
  const int vae = add(nodes, {"VAELoader", {}, {{"vae_name", "flux2-vae.safetensors"}}, "VAE"});
  int positive = add(nodes, {"CLIPTextEncode", {{"clip", "CLIP", clip}}, {{"text", r.used_prompt()}}, "CONDITIONING"});
  if (r.embedded_guidance)
    positive = add(nodes, {"FluxGuidance",
                           {{"conditioning", "CONDITIONING", positive}},
                           {{"guidance", r.request.guidance.value_or(1.0)}},
                           "CONDITIONING"});
  int guider = 0;
  if (r.request.cfg) {
    const int negative =
        add(nodes, {"CLIPTextEncode", {{"clip", "CLIP", clip}}, {{"text", r.request.negative.value_or("")}}, "CONDITIONING"});
    guider =
        add(nodes, {"CFGGuider",
                    {{"model", "MODEL", model}, {"positive", "CONDITIONING", positive}, {"negative", "CONDITIONING", negative}},
                    {{"cfg", *r.request.cfg}},
                    "GUIDER"});
  } else {
    guider = add(nodes, {"BasicGuider", {{"model", "MODEL", model}, {"conditioning", "CONDITIONING", positive}}, {}, "GUIDER"});
  }
  const int noise = add(nodes, {"RandomNoise", {}, {{"noise_seed", r.seed()}}, "NOISE"});
  const int sampler = add(nodes, {"KSamplerSelect", {}, {{"sampler_name", r.request.sampler.value_or("euler")}}, "SAMPLER"});
  const int sigmas = add(
      nodes,
      {"Flux2Scheduler", {}, {{"steps", r.request.steps.value_or(0)}, {"width", r.width()}, {"height", r.height()}}, "SIGMAS"});
  const int latent =
      add(nodes, {"EmptyFlux2LatentImage", {}, {{"width", r.width()}, {"height", r.height()}, {"batch_size", 1}}, "LATENT"});
  const int samples = add(nodes, {"SamplerCustomAdvanced",
                                  {{"noise", "NOISE", noise},
                                   {"guider", "GUIDER", guider},
                                   {"sampler", "SAMPLER", sampler},
                                   {"sigmas", "SIGMAS", sigmas},
                                   {"latent_image", "LATENT", latent}},
                                  {},
                                  "LATENT"});
  const int picture = add(nodes, {"VAEDecode", {{"samples", "LATENT", samples}, {"vae", "VAE", vae}}, {}, "IMAGE"});
  add(nodes, {"SaveImage", {{"images", "IMAGE", picture}}, {{"filename_prefix", "flux2"}}, ""});
  return nodes;
}

Json api_form(const Nodes& nodes) {
  Json api = Json::object();
  for (size_t i = 0; i < nodes.size(); ++i) {
    Json inputs = Json::object();
    for (const auto& [name, value] : nodes[i].widgets) inputs[name] = value;
    for (const Node::Input& input : nodes[i].inputs) inputs[input.name] = Json::array({std::to_string(input.from), 0});
    api[std::to_string(i + 1)] = {{"class_type", nodes[i].type}, {"inputs", std::move(inputs)}};
  }
  return api;
}

Json ui_form(const Nodes& nodes) {
  constexpr int kColumn = 340, kRow = 220, kPerColumn = 3;
  Json boxes = Json::array(), links = Json::array();
  std::vector<Json> leaving(nodes.size(), Json::array());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int id = static_cast<int>(i) + 1, place = static_cast<int>(i);
    Json inputs = Json::array(), widgets = Json::array();
    for (size_t slot = 0; slot < nodes[i].inputs.size(); ++slot) {
      const Node::Input& input = nodes[i].inputs[slot];
      const auto link = static_cast<int>(links.size()) + 1;
      links.push_back({link, input.from, 0, id, slot, input.type});
      leaving[static_cast<size_t>(input.from) - 1].push_back(link);
      inputs.push_back({{"name", input.name}, {"type", input.type}, {"link", link}});
    }
    for (const auto& [name, value] : nodes[i].widgets) widgets.push_back(value);
    if (nodes[i].type == "RandomNoise") widgets.push_back("fixed");  // the page's control of what follows a run
    boxes.push_back({{"id", id},
                     {"type", nodes[i].type},
                     {"pos", {place / kPerColumn * kColumn, place % kPerColumn * kRow}},
                     {"size", {300, 180}},
                     {"flags", Json::object()},
                     {"order", place},
                     {"mode", 0},
                     {"inputs", std::move(inputs)},
                     {"outputs", Json::array()},
                     {"properties", Json::object()},
                     {"widgets_values", std::move(widgets)}});
  }
  for (size_t i = 0; i < nodes.size(); ++i)
    if (!nodes[i].output.empty())
      boxes[i]["outputs"].push_back(
          {{"name", nodes[i].output}, {"type", nodes[i].output}, {"links", leaving[i]}, {"slot_index", 0}});
  return {
      {"last_node_id", nodes.size()}, {"last_link_id", links.size()}, {"nodes", std::move(boxes)}, {"links", std::move(links)},
      {"groups", Json::array()},      {"config", Json::object()},     {"extra", Json::object()},   {"version", 0.4}};
}

// Looks for a plain value under one of `keys`, in a node and then in the nodes that feed it, through `through` first.
class Upstream {
 public:
  explicit Upstream(const Json& api) {
    for (const auto& [id, node] : api.items())
      if (node.is_object())
        if (const auto inputs = node.find("inputs"); inputs != node.end() && inputs->is_object())
          inputs_of_.emplace(id, &*inputs);
  }

  // Depth first, with a stack of its own: a graph from a stranger may be a chain of any length.
  const Json* find(const std::string& node, const std::vector<std::string>& keys, const std::string& through = {}) const {
    struct Step {
      std::string_view id;
      bool through;  // only along the input of that name
    };
    std::vector<Step> steps = {{node, !through.empty()}};
    std::unordered_set<std::string_view> visited;
    while (!steps.empty()) {
      const Step step = steps.back();
      steps.pop_back();
      const auto at = inputs_of_.find(step.id);
      if (at == inputs_of_.end() || !visited.insert(at->first).second) continue;
      const Json& inputs = *at->second;
      if (!step.through)
        for (const std::string& key : keys)
          if (const auto value = inputs.find(key); value != inputs.end() && value->is_primitive()) return &*value;
      const size_t first = steps.size();
      for (const auto& [name, value] : inputs.get_ref<const Json::object_t&>()) {
        if (!value.is_array() || value.empty() || !value[0].is_string()) continue;
        if (step.through && name != through && name != "guider") continue;
        steps.push_back({value[0].get_ref<const std::string&>(), step.through && name != through});
      }
      std::reverse(steps.begin() + static_cast<std::ptrdiff_t>(first), steps.end());  // the first input is followed first
    }
    return nullptr;
  }

 private:
  std::unordered_map<std::string_view, const Json*> inputs_of_;
};

}  // namespace

ComfyGraphs comfy_graphs(const GenerationRecord& record) {
  const Nodes nodes = nodes_of(record);
  return {api_form(nodes), ui_form(nodes)};
}

GenerationRecord record_from_comfy(const Json& api) {
  std::string sampler;
  if (api.is_object())
    for (const auto& [id, node] : api.items()) {
      if (!node.is_object() || !node.contains("class_type") || !node["class_type"].is_string()) continue;
      const std::string type = node["class_type"].get<std::string>();
      if (type.starts_with("KSampler") && type != "KSamplerSelect") sampler = id;
      if (type.starts_with("SamplerCustom")) sampler = id;
    }
  if (sampler.empty()) fail(ErrorCode::BadFile, "no sampler in this ComfyUI graph");

  const Upstream graph(api);
  GenerationRecord r;
  r.app = "ComfyUI";
  const auto text = [&](const Json* value) { return value && value->is_string() ? value->get<std::string>() : std::string(); };
  // A number that breaks the rules of its field is another program's idea of it.
  const auto take = [&](const char* name, const Json* value) {
    if (!value || !value->is_number()) return;
    try {
      set_value(r.request, field(name), value_from_json(field(name), *value, name));
    } catch (const Error&) {}
  };
  const Json* prompt = graph.find(sampler, {"text", "t5xxl", "clip_l"}, "positive");
  if (!prompt) prompt = graph.find(sampler, {"text", "t5xxl", "clip_l"}, "conditioning");
  r.request.prompt = text(prompt);
  r.request.negative = text(graph.find(sampler, {"text"}, "negative"));
  take("seed", graph.find(sampler, {"seed", "noise_seed"}));
  take("steps", graph.find(sampler, {"steps"}));
  take("width", graph.find(sampler, {"width"}, "latent_image"));
  take("height", graph.find(sampler, {"height"}, "latent_image"));
  if (const std::string name = text(graph.find(sampler, {"sampler_name"})); !name.empty()) r.request.sampler = name;
  r.model = text(graph.find(sampler, {"unet_name", "ckpt_name"}));
  if (const Json* cfg = graph.find(sampler, {"cfg"}); cfg && cfg->is_number() && cfg->get<double>() != 1.0)
    r.request.cfg = cfg->get<double>();
  if (const Json* guidance = graph.find(sampler, {"guidance"}); guidance && guidance->is_number()) {
    r.request.guidance = guidance->get<double>();
    r.embedded_guidance = true;
  }
  return r;
}

}  // namespace flux2
