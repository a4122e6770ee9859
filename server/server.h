#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "app/context.h"
#include "app/settings.h"
#include "server/api/settings_file.h"
#include "server/http/access.h"
#include "server/http/listener.h"
#include "server/storage_options.h"

namespace flux2 {

struct ServerOptions {
  ListenOptions listen;
  StorageOptions storage;                          // the database and the images
  std::vector<AccessKey> keys;                     // none: nobody needs a key
  bool insecure = false;                           // listen on a public address without a key
  std::vector<std::string> cors;                   // origins whose pages may use this server
  std::vector<std::string> host_names;             // names of this machine that clients may use besides localhost
  int64_t queue = 100;                             // jobs that may wait or run
  KeyLimits key_limits;                            // for keys without limits of their own
  std::function<void(const Json& line)> log_line;  // called for each request and each change of a job; from any thread
  std::chrono::seconds idle_unload{0};
  int max_batch = 0;                        // images of several jobs in one batch; 0: 4, or up to 16 small ones
  std::chrono::milliseconds batch_wait{5};  // how long a job waits for others to share its batch
  size_t max_models = 4;                    // kept in memory, if they fit
  bool run_jobs = true;                     // false: only other processes run jobs
  bool preload = false;                     // load the model before the first job
  bool no_page = false;                     // do not serve the web page
  std::filesystem::path page;               // folder to read the web page's files from; empty: the embedded ones
  SettingsFile settings = {};               // empty: clients see no settings
  // Folders whose files a request may name, besides the model folders and the data folder.
  std::vector<std::filesystem::path> model_roots;
  // A training run that was interrupted for an image continues after this time without another such request.
  std::chrono::milliseconds preempt_wait{30'000};
  std::string mask_service = "http://127.0.0.1:8001";  // makes masks from points and words; empty: none
  std::chrono::hours trash_kept{24 * 30};              // deleted images and projects can be restored for this time
};

// Whether this build has everything that a server needs: Boost and SQLite.
bool server_available();
bool server_knows_postgres();  // whether it can keep its data in PostgreSQL

// The whole server: storage, queue, worker, routes and listener.
class Server {
 public:
  // `defaults` are the settings that jobs do not set themselves.
  Server(AppContext context, Settings defaults, ServerOptions options);
  ~Server();

  void start();             // returns when the server listens; throws if it cannot
  std::string url() const;  // "http://127.0.0.1:8190"
  // Accepts no more connections and gives the running job back to the queue. Takes about ten seconds at most.
  void stop();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace flux2
