#include "train/network_args.h"

#include "base/error.h"
#include "train/optimiser/python_literals.h"

namespace flux2 {

namespace {

AdapterForm form_of(const std::string& module) {
  const std::string name = module.substr(module.rfind('.') == std::string::npos ? 0 : module.rfind('.') + 1);
  if (name == "lora_flux_2" || name == "lora") return AdapterForm::Lora;
  if (name == "loha") return AdapterForm::Loha;
  if (name == "lokr") return AdapterForm::Lokr;
  fail(ErrorCode::InvalidArgument,
       "network_module: \"{}\" is not supported; use networks.lora_flux_2, networks.loha or networks.lokr", module);
}

}  // namespace

NetworkArguments parse_network_args(const TrainOptions& options) {
  NetworkArguments result;
  AdapterOptions& a = result.adapter;
  a.form = form_of(options.network_module);
  a.dim = options.network_dim;
  a.alpha = options.network_alpha;
  a.dropout.element = options.network_dropout;

  PythonOptions args("network_args", options.network_args);
  a.dropout.rank = args.number("rank_dropout", 0);
  a.dropout.module = args.number("module_dropout", 0);
  a.factor = args.integer("factor", -1);
  a.dora = args.flag("dora", false);
  a.rank_stabilised = args.flag("rs_lora", false);
  a.exclude = args.texts("exclude_patterns");
  a.include = args.texts("include_patterns");
  result.lora_plus_ratio = args.number("loraplus_lr_ratio", 0);
  result.verbose = args.flag("verbose", false);
  args.ignore({"conv_dim", "conv_alpha"});  // FLUX.2's transformer has no convolutions
  args.finish();

  check(result.lora_plus_ratio >= 0, "loraplus_lr_ratio must not be negative");
  check(a.factor == -1 || a.factor > 0, "factor must be positive, or -1");
  // As musubi-tuner: these two settings have a meaning for LoRA only.
  if (a.form != AdapterForm::Lora) {
    result.lora_plus_ratio = 0;
    a.dropout.element = 0;
  }
  return result;
}

Json network_args_json(const TrainOptions& options) {
  if (options.network_args.empty()) return nullptr;
  Json json = Json::object();
  for (const std::string& word : options.network_args) {
    const size_t equals = word.find('=');
    json[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
  }
  return json;
}

}  // namespace flux2
