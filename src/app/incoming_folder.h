#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/log.h"
#include "hub/registry/copy_files.h"
#include "hub/remote/fetch.h"
#include "hub/remote/file_lock.h"

namespace flux2 {

// Where the file of a plain address is downloaded to until it is known what it is: a folder of its own in models/.incoming of the
// data folder, so that files of the same name from other addresses do not meet it. One process at a time uses it.
class IncomingFolder {
 public:
  // Waits for another process that downloads from this address.
  IncomingFolder(const std::filesystem::path& data_folder, const std::string& url, const std::function<bool()>& cancelled,
                 const Log& log);
  IncomingFolder(const IncomingFolder&) = delete;
  IncomingFolder& operator=(const IncomingFolder&) = delete;
  ~IncomingFolder();  // deletes the folder if nothing waits in it

  const std::filesystem::path& path() const { return folder_; }

  // Before the download. A whole file of another revision is deleted, and so is one whose revision is not known. A partial file
  // that an older version left is taken over: it had one folder for all addresses.
  void prepare(PlannedFile& file, const std::string& revision) const;

 private:
  std::filesystem::path folder_;
  std::unique_ptr<FileLock> lock_;
};

// Gives a file a free name in a folder, NAME or NAME-2, NAME-3, …, which may be on another disk: people link such folders.
// `copying` reports on the copy to another disk.
std::filesystem::path moved_to_free_name(const std::filesystem::path& file, const std::filesystem::path& folder,
                                         const CopyProgress& copying);

// The same, in place of the file that has the name.
void move_over(const std::filesystem::path& file, const std::filesystem::path& target, const CopyProgress& copying);

}  // namespace flux2
