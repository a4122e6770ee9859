#pragma once

#include <filesystem>
#include <string>

#include "train/log/run_history.h"

namespace flux2 {

// A training run as one HTML page that needs nothing else: style and charts are inside, images too. `folder` is the one that
// contains the JSON lines; sample images are read from there. Every text that comes from the log is escaped, and the page forbids
// scripts.
std::string report_html(const RunHistory& history, const std::filesystem::path& folder);

void write_report(const RunHistory& history, const std::filesystem::path& folder, const std::filesystem::path& html);

// From the JSON lines alone, at any time, also while the run goes on.
void write_report(const std::filesystem::path& jsonl, const std::filesystem::path& html);

}  // namespace flux2
