#pragma once

#include "base/json.h"
#include "train/adapters/adapter_network.h"
#include "train/train_options.h"

namespace flux2 {

// What network_module, network_dim, network_alpha, network_dropout and network_args say together.
struct NetworkArguments {
  AdapterOptions adapter;
  double lora_plus_ratio = 0;  // learning rate of lora_up over that of lora_down; 0: the same
  bool verbose = false;        // list the modules
};

// Throws InvalidArgument for a module that is not supported and for unknown keys, naming the nearest.
NetworkArguments parse_network_args(const TrainOptions& options);

// network_args as the object that files store; null if none are given.
Json network_args_json(const TrainOptions& options);

}  // namespace flux2
