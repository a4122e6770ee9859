#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/command.h"
#include "hub/registry/describe.h"
#include "hub/registry/registry.h"

namespace flux2 {

// The actions of `flux2 models`, each a command of its own.
const std::vector<Command>& model_actions();

int run_models_list(Invocation& run);
int run_models_info(Invocation& run);
int run_models_scan(Invocation& run);
int run_models_identify(Invocation& run);
int run_models_install(Invocation& run);
int run_models_edit(Invocation& run);
int run_models_relate(Invocation& run);
int run_models_relocate(Invocation& run);
int run_models_remove(Invocation& run);
int run_models_verify(Invocation& run);
int run_models_missing(Invocation& run);
int run_models_orphans(Invocation& run);
int run_models_starter(Invocation& run);
int run_models_synth(Invocation& run);
int run_models_create(Invocation& run);
int run_models_cache(Invocation& run);

// What they share.
void refuse_arguments(const Invocation& run);        // throws InvalidArgument when there are any
std::string origin_text(const ModelRecord& record);  // "hub owner/repo@1a2b3c4d", "in place", "copied from …"
std::vector<std::string> described_row(const Described& part);
std::string variant_text(const ModelRecord& record);

// A CopyProgress that shows how far reading or copying is, and stops at Ctrl-C.
bool show_bytes(Invocation& run, const std::string& what, uint64_t done, uint64_t total);

}  // namespace flux2
