#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "net/http.h"

namespace flux2 {

// How the hub is reached and where its files are kept, shared with Python's huggingface_hub.
struct HubSettings {
  std::string endpoint = "https://huggingface.co";  // no slash at its end
  std::string token;                                // empty: none
  std::filesystem::path cache;                      // the folder that contains models--owner--name
  bool offline = false;                             // true: no network access
  bool symlinks = true;                             // false: snapshots contain files instead of links
  double transfer_timeout_s = 10;                   // the longest time without data
  double metadata_timeout_s = 10;
  HttpSettings http;  // proxies, certificates

  // The token, if it may be sent to this URL: only to the endpoint, over https or over plain http to this machine.
  std::string token_for(const std::string& url) const;
};

// From HF_ENDPOINT, HF_TOKEN, HF_HOME and the other variables of the Python library. `token` is given explicitly by the user and
// takes precedence. An empty variable counts as unset; ~ and $NAME in paths are replaced.
HubSettings hub_settings(const std::function<const char*(const char*)>& environment, const std::string& token = {});

}  // namespace flux2
