#pragma once

#include "cli/options.h"

namespace flux2 {

std::vector<OptionGroup> models_plain_options();  // messages alone
std::vector<OptionGroup> models_list_options();
std::vector<OptionGroup> models_scan_options();
std::vector<OptionGroup> models_install_options();
std::vector<OptionGroup> models_edit_options();
std::vector<OptionGroup> models_relate_options();
std::vector<OptionGroup> models_orphans_options();
std::vector<OptionGroup> models_remove_options();
std::vector<OptionGroup> models_verify_options();
std::vector<OptionGroup> models_synth_options();
std::vector<OptionGroup> models_create_options();

}  // namespace flux2
