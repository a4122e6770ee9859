#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>

namespace flux2 {

// A real PostgreSQL server for tests: in a temporary folder, reached by a Unix socket, so it needs no port. As root it runs as
// another user, because PostgreSQL refuses root.
class TestPostgres {
 public:
  // Why there can be none here; empty if there can.
  static std::string missing() {
    if (programs().empty()) return "PostgreSQL is not installed (package postgresql)";
    if (::geteuid() == 0 && user().empty()) return "PostgreSQL refuses root, and there is no user postgres or nobody";
    return {};
  }

  TestPostgres() : owner_(::getpid()) {
    std::string pattern = "/tmp/flux2_pg_XXXXXX";  // short: the name of a socket may have 107 bytes
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder for PostgreSQL");
    folder_ = pattern;
    if (const passwd* entry = ::geteuid() == 0 ? ::getpwnam(user().c_str()) : nullptr)
      if (::chown(folder_.c_str(), entry->pw_uid, entry->pw_gid) != 0)
        throw std::runtime_error("the folder cannot be given away");
    run(fmt::format("{}/initdb -D {}/data -A trust -U flux2 -E UTF8 --locale=C.UTF-8 --no-sync", programs().string(),
                    folder_.string()));
    {
      // A restart brings back what was committed, as with fsync: only a crash of the whole machine would not.
      std::ofstream config(folder_ / "data" / "postgresql.conf", std::ios::app);
      config << "fsync = off\nlisten_addresses = ''\nunix_socket_directories = '" << folder_.string()
             << "'\nshared_buffers = 16MB\nmax_connections = 80\n";
    }
    start_watchdog();
    start();
  }
  TestPostgres(const TestPostgres&) = delete;
  TestPostgres& operator=(const TestPostgres&) = delete;
  ~TestPostgres() {
    if (::getpid() != owner_) return;  // a forked child
    ::close(alive_);
    int status = 0;
    ::waitpid(watchdog_, &status, 0);
  }

  void start() { control("-w -t 60 -l " + (folder_ / "log").string() + " start"); }
  void stop() { control("-w -m fast stop"); }
  void crash() { control("-w -m immediate stop"); }  // as kill -9 of all its processes
  void restart() {
    crash();
    start();
  }

  const std::filesystem::path& folder() const { return folder_; }  // of the socket .s.PGSQL.5432

  // The address of a database, which is created when it is asked for first. Names: small letters, digits and _.
  std::string url(const std::string& database = "flux2") {
    if (made_.insert(database).second)
      run(fmt::format("{}/psql -q -h {} -U flux2 -d postgres -c 'CREATE DATABASE {}'", programs().string(), folder_.string(),
                      database));
    return url_in(folder_, database);
  }
  static std::string url_in(const std::filesystem::path& socket_folder, const std::string& database) {
    return fmt::format("postgres://flux2@/{}?host={}", database, socket_folder.string());
  }

 private:
  static std::filesystem::path programs() {
    namespace fs = std::filesystem;
    std::error_code none;
    fs::path newest;
    for (fs::directory_iterator version("/usr/lib/postgresql", none), end; !none && version != end; version.increment(none))
      if (fs::exists(version->path() / "bin" / "initdb") && version->path() > newest) newest = version->path();
    if (!newest.empty()) return newest / "bin";
    for (const char* folder : {"/usr/local/pgsql/bin", "/usr/local/bin", "/usr/bin"})
      if (fs::exists(fs::path(folder) / "initdb")) return folder;
    return {};
  }

  static std::string user() {
    for (const char* name : {"postgres", "nobody"})
      if (::getpwnam(name)) return name;
    return {};
  }

  // Stops the server and removes its folder when this process ends, also when it is killed: the pipe closes then.
  void start_watchdog() {
    const std::string line =
        fmt::format("cat > /dev/null; {}; rm -rf {}",
                    as_user(fmt::format("{}/pg_ctl -s -D {}/data -m immediate stop", programs().string(), folder_.string())),
                    folder_.string());
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe for PostgreSQL");
    watchdog_ = ::fork();
    if (watchdog_ == 0) {
      ::setsid();  // a signal for the whole test must not end it
      const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
      ::dup2(ends[0], 0), ::dup2(nothing, 1), ::dup2(nothing, 2);
      ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(ends[0]);
    alive_ = ends[1];
  }

  static std::string as_user(const std::string& command) {
    if (::geteuid() != 0) return command;
    return fmt::format("setpriv --reuid={0} --regid=$(id -g {0}) --clear-groups -- {1}", user(), command);
  }

  void control(const std::string& words) const {
    run(fmt::format("{}/pg_ctl -s -D {}/data {}", programs().string(), folder_.string(), words));
  }

  void run(const std::string& command) const {
    const std::string line =
        fmt::format("cd {} && {} > {}/output 2>&1 < /dev/null", folder_.string(), as_user(command), folder_.string());
    if (std::system(line.c_str()) == 0) return;
    std::ifstream output(folder_ / "output"), log(folder_ / "log");
    throw std::runtime_error(fmt::format("{} failed: {} {}", command, std::string(std::istreambuf_iterator<char>(output), {}),
                                         std::string(std::istreambuf_iterator<char>(log), {})));
  }

  std::filesystem::path folder_;
  std::set<std::string> made_;
  pid_t owner_, watchdog_ = -1;
  int alive_ = -1;
};

// The server of this test program, which starts when it is needed first.
inline TestPostgres& test_postgres() {
  static TestPostgres server;
  return server;
}

}  // namespace flux2

#define SKIP_WITHOUT_POSTGRES() \
  if (const std::string why = ::flux2::TestPostgres::missing(); !why.empty()) GTEST_SKIP() << why
