// Makes one call of the program under test fail. Loaded with LD_PRELOAD.
//
//   FLUX2_FAULT=KIND:N       the N-th call of that kind fails (1 is the first)
//   FLUX2_FAULT=KIND:N+      that call and all later ones fail, as on a full disk
//   FLUX2_FAULT=KIND:0       none fails
//   FLUX2_FAULT_COUNT=FILE   receives the number of calls of that kind; for malloc, first the numbers of those calls that come
//                            from a new place (a new chain of callers), one a line
//   FLUX2_FAULT_CALLER=NAME  only calls with a function of a library among their callers whose symbol contains this count
//   FLUX2_FAULT_TRACE=1      writes the callers of the call that fails to standard error, as addresses for addr2line
//
// Kinds: write, short (a write that takes only half), hang (a write that never returns), fsync, rename, mmap, malloc, thread.
//
// Only calls between the beginning and the end of main() count. Of allocations, those of C++ count wherever they come from, and
// those of C only when the program itself calls; how libraries in C deal with a lack of memory is theirs.
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <new>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

enum Kind { None, Write, Short, Hang, Fsync, Rename, Mmap, Malloc, Thread };

Kind g_kind = None;
long g_at = 0;
bool g_all_later = false, g_trace = false;
int g_places = -1;  // a file descriptor
const char* g_caller = nullptr;
std::atomic<bool> g_armed = false;
std::atomic<long> g_calls = 0;
uintptr_t g_begin = 0, g_end = 0;  // of the program's own code
thread_local bool t_inside = false;

void write_number(long n) {
  char text[32];
  char* end = text + sizeof text;
  char* p = end;
  *--p = '\n';
  do *--p = static_cast<char>('0' + n % 10);
  while ((n /= 10) > 0);
  syscall(SYS_write, g_places, p, static_cast<size_t>(end - p));
}

[[noreturn]] void hang() {
  for (;;) pause();
}

// Whether this chain of callers is met for the first time.
bool is_new_place() {
  constexpr size_t kSlots = 1 << 18;
  static std::atomic<uint64_t> seen[kSlots];
  void* frames[12];
  const int depth = backtrace(frames, 12);
  uint64_t hash = 1469598103934665603u;
  for (int i = 2; i < depth; ++i) hash = (hash ^ reinterpret_cast<uintptr_t>(frames[i])) * 1099511628211u;
  hash |= 1;
  for (size_t i = hash % kSlots;; i = (i + 1) % kSlots) {
    uint64_t found = seen[i];
    if (found == hash) return false;
    if (found == 0 && seen[i].compare_exchange_strong(found, hash)) return true;
  }
}

// Whether the address belongs to a function of that name. To find it out takes long, so it is remembered.
bool is_part_of(void* address, const char* name) {
  constexpr size_t kSlots = 1 << 16;
  static std::atomic<uintptr_t> seen[kSlots];  // twice the address, and 1 for yes
  const auto known = reinterpret_cast<uintptr_t>(address) << 1;
  std::atomic<uintptr_t>& slot = seen[(known * 0x9e3779b97f4a7c15u) >> 48];
  if (const uintptr_t found = slot; (found | 1) == (known | 1)) return found & 1;
  Dl_info function = {};
  const bool part = dladdr(address, &function) != 0 && function.dli_sname && strstr(function.dli_sname, name);
  slot = known | (part ? 1 : 0);
  return part;
}

bool is_called_by(const char* name) {
  void* frames[24];
  const int depth = backtrace(frames, 24);
  for (int i = 0; i < depth; ++i)
    if (is_part_of(frames[i], name)) return true;
  return false;
}

bool fails(Kind kind) {
  if (g_kind != kind || !g_armed || t_inside) return false;
  if (g_at > 0 && !g_all_later && g_places < 0 && g_calls >= g_at) return false;  // it has failed
  t_inside = true;
  if (g_caller && !is_called_by(g_caller)) {
    t_inside = false;
    return false;
  }
  const long n = ++g_calls;
  if (kind == Malloc && g_places >= 0 && is_new_place()) write_number(n);
  const bool now = g_at > 0 && (g_all_later ? n >= g_at : n == g_at);
  if (now && g_trace) {
    void* frames[40];
    backtrace_symbols_fd(frames, backtrace(frames, 40), STDERR_FILENO);
  }
  t_inside = false;
  return now;
}

int find_program(dl_phdr_info* info, size_t, void*) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || !(part.p_flags & PF_X)) continue;
    g_begin = info->dlpi_addr + part.p_vaddr;
    g_end = g_begin + part.p_memsz;
  }
  return 1;  // the first is the program
}

bool from_program(void* caller) {
  const auto at = reinterpret_cast<uintptr_t>(caller);
  return at >= g_begin && at < g_end;
}

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

__attribute__((constructor)) void begin() {
  const char* what = getenv("FLUX2_FAULT");
  if (!what) return;
  const char* names[] = {"", "write", "short", "hang", "fsync", "rename", "mmap", "malloc", "thread"};
  const char* colon = strchr(what, ':');
  for (int i = 1; colon && i < 9; ++i)
    if (strlen(names[i]) == static_cast<size_t>(colon - what) && strncmp(what, names[i], strlen(names[i])) == 0)
      g_kind = static_cast<Kind>(i);
  if (g_kind == None) abort();
  g_at = strtol(colon + 1, nullptr, 10);
  g_all_later = what[strlen(what) - 1] == '+';
  g_caller = getenv("FLUX2_FAULT_CALLER");
  if (const char* file = getenv("FLUX2_FAULT_COUNT")) {
    g_places = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    void* frames[2];
    backtrace(frames, 2);  // loads what it needs
  }
  g_trace = getenv("FLUX2_FAULT_TRACE") != nullptr;
  dl_iterate_phdr(find_program, nullptr);
  unsetenv("LD_PRELOAD");
}

int (*g_main)(int, char**, char**) = nullptr;

void disarm() {
  if (g_armed.exchange(false) && g_places >= 0) write_number(g_calls);
}

int watched_main(int argc, char** argv, char** environment) {
  g_armed = true;
  const int status = g_main(argc, argv, environment);
  disarm();
  return status;
}

}  // namespace

extern "C" {

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(), void (*fini)(),
                      void (*rtld_fini)(), void* stack_end) {
  g_main = main;
  return next<decltype(__libc_start_main)>("__libc_start_main")(watched_main, argc, argv, init, fini, rtld_fini, stack_end);
}

ssize_t write(int fd, const void* bytes, size_t size) {
  if (fails(Write)) return errno = ENOSPC, -1;
  if (fails(Hang)) hang();
  if (size > 1 && fails(Short)) size /= 2;
  return syscall(SYS_write, fd, bytes, size);
}

ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t at) {
  if (fails(Write)) return errno = ENOSPC, -1;
  if (fails(Hang)) hang();
  if (size > 1 && fails(Short)) size /= 2;
  return syscall(SYS_pwrite64, fd, bytes, size, at);
}
ssize_t pwrite(int fd, const void* bytes, size_t size, off_t at) { return pwrite64(fd, bytes, size, at); }

int fsync(int fd) {
  if (fails(Fsync)) return errno = EIO, -1;
  return static_cast<int>(syscall(SYS_fsync, fd));
}
int fdatasync(int fd) {
  if (fails(Fsync)) return errno = EIO, -1;
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  if (fails(Rename)) return errno = EIO, -1;
  return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}
int rename(const char* from, const char* to) noexcept { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return renameat2(from_folder, from, to_folder, to, 0);
}
int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  if (fails(Rename)) return errno = EIO, -1;
  return static_cast<int>(syscall(SYS_linkat, from_folder, from, to_folder, to, flags));
}
int link(const char* from, const char* to) noexcept { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
int symlink(const char* target, const char* name) noexcept {
  if (fails(Rename)) return errno = EIO, -1;
  return static_cast<int>(syscall(SYS_symlinkat, target, AT_FDCWD, name));
}

void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
  if (fails(Mmap)) return errno = ENOMEM, MAP_FAILED;
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, size, protection, flags, fd, offset));
}
void* mmap64(void* at, size_t size, int protection, int flags, int fd, off64_t offset) noexcept {
  return mmap(at, size, protection, flags, fd, offset);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) noexcept {
  static const auto real = next<decltype(pthread_create)>("pthread_create");
  if (fails(Thread)) return EAGAIN;
  return real(thread, attributes, body, argument);
}

void* malloc(size_t size) noexcept {
  if (from_program(__builtin_return_address(0)) && fails(Malloc)) return errno = ENOMEM, nullptr;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) noexcept {
  if (from_program(__builtin_return_address(0)) && fails(Malloc)) return errno = ENOMEM, nullptr;
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) noexcept {
  if (from_program(__builtin_return_address(0)) && fails(Malloc)) return errno = ENOMEM, nullptr;
  return __libc_realloc(memory, size);
}
void* aligned_alloc(size_t alignment, size_t size) noexcept {
  if (from_program(__builtin_return_address(0)) && fails(Malloc)) return errno = ENOMEM, nullptr;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) noexcept {
  if (from_program(__builtin_return_address(0)) && fails(Malloc)) return ENOMEM;
  *memory = __libc_memalign(alignment, size);
  return *memory ? 0 : ENOMEM;
}

void _exit(int status) {
  disarm();
  for (;;) syscall(SYS_exit_group, status);
}

}  // extern "C"

// As the standard says: the handler first.
[[noreturn]] static void fail_new() {
  if (const std::new_handler handler = std::get_new_handler()) handler();
  throw std::bad_alloc();
}

void* operator new(size_t size) {
  if (fails(Malloc)) fail_new();
  if (void* memory = __libc_malloc(size == 0 ? 1 : size)) return memory;
  fail_new();
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return fails(Malloc) ? nullptr : __libc_malloc(size == 0 ? 1 : size);
}
void* operator new[](size_t size, const std::nothrow_t& tag) noexcept { return operator new(size, tag); }
void* operator new(size_t size, std::align_val_t alignment) {
  if (fails(Malloc)) fail_new();
  if (void* memory = __libc_memalign(static_cast<size_t>(alignment), size == 0 ? 1 : size)) return memory;
  fail_new();
}
void* operator new[](size_t size, std::align_val_t alignment) { return operator new(size, alignment); }
void operator delete(void* memory) noexcept { free(memory); }
void operator delete[](void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
void operator delete[](void* memory, size_t) noexcept { free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { free(memory); }
