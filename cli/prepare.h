#pragma once

#include "app/prepare.h"
#include "app/prompt_rewriting.h"
#include "cli/command.h"

namespace flux2 {

// Prepares the requests of generate, edit, inpaint, plan and the shell. Reads the prompts from the argument, -p, standard input
// or a file, and prints a note if the bundled model is used.
PreparedRun prepare_run(Invocation& run, Task task = Task::Generate, FoundModels* found = nullptr);

// Rewrites the prompts of requests that ask for it, and says where they are sent. Ctrl-C stops it.
void rewrite_requests(Invocation& run, const ModelFiles& model, std::vector<ResolvedRequest>& requests);

// Rewrites one prompt, with the images of the options, as `flux2 prompt rewrite` does. Throws if that fails.
RewrittenPrompt rewrite_alone(Invocation& run, const std::string& prompt);

// The prompts of a command line. Throws InvalidArgument when there is none or more than one source; `optional` allows none.
std::vector<PromptLine> read_prompts(const Invocation& run, bool optional);

// Runs the prepared requests, or prints their plan with --dry-run. Returns the exit status.
int run_prepared(Invocation& run, PreparedRun prepared);

}  // namespace flux2
