#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/context.h"
#include "app/incoming_folder.h"
#include "hub/registry/copy_files.h"
#include "hub/registry/describe.h"
#include "hub/remote/fetch.h"

namespace flux2 {

// A download. What a file at a plain address is becomes known once it is here, so such a download knows more than its plan.
struct AddressDownload {
  FetchPlan plan;
  std::unique_ptr<IncomingFolder> incoming = nullptr;  // nothing: it goes to a folder that was named
  std::string revision = {};                           // as far as the server tells it
  std::vector<ModelRecord> before = {};                // what this address gave the last time
  bool is_here = false;                                // that is still the same
};

// Asks the server of a plain address what it has, and compares that with what the address gave before. Without
// options.local_dir, the file goes to an IncomingFolder. A file in `from_start` is downloaded again in any case.
AddressDownload plan_address(const Source& source, FetchOptions options, const std::vector<std::string>& from_start,
                             const AppContext& context);

// Moves a downloaded file to the role folder of what it turned out to be, or over its older revision, and says what it is. Throws
// if it cannot be used.
std::vector<Described> moved_into_place(FetchedFile& file, const std::vector<ModelRecord>& before, const CopyProgress& copying,
                                        const AppContext& context);

}  // namespace flux2
