#pragma once

#include <filesystem>

// Files that this program writes under names that others can guess: NAME.partial, notes, locks, temporary files. In a folder that
// several people can write to, somebody else may have put a link or another file there.
namespace flux2 {

// Opens a regular file for reading and writing, and creates it if it is missing; the umask decides who may read it. Throws
// CannotWrite if the name belongs to a symbolic link, to anything that is not a regular file, or to a file with a second name.
// Never waits. The caller closes it.
int open_own_file(const std::filesystem::path& path);

// Opens a regular file for reading. Throws NotFound if there is none, and BadFile for a folder, a device or a pipe, without
// waiting for a writer. The caller closes it.
int open_regular_file(const std::filesystem::path& path);

// Whether the open file is still the one that has this name. A lock is worth nothing on a file that was replaced.
bool is_named(const std::filesystem::path& path, int fd);

// Whether the file is locked (flock) by another process, or by another descriptor of this one. False if the file does not exist
// or the file system has no locks. Does not follow links.
bool is_locked(const std::filesystem::path& path);

// Gives a file another name that must be free. Returns false, and changes nothing, if the name is taken. Throws CannotWrite.
bool rename_to_free_name(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace flux2
