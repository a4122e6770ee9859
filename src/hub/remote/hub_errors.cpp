#include "hub/remote/hub_errors.h"

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "hub/remote/retry.h"
#include "net/hide_token.h"

namespace flux2 {

namespace {

// The hub's own words.
std::string words_of(const HttpAnswer& answer) {
  std::string words = answer.header("X-Error-Message").value_or("");
  if (words.empty() && answer.body.starts_with("{")) {
    try {
      const Json body = parse_json(answer.body);
      if (body.contains("error") && body["error"].is_string()) words = body["error"].get<std::string>();
    } catch (const Error&) {
      words.clear();  // an answer of something else than the hub
    }
  }
  return printable(words);
}

std::string told(const std::string& words) { return words.empty() ? std::string() : fmt::format(" (the hub says: {})", words); }

const char* const kSetToken = "set HF_TOKEN to a token with read access, or log in with the Python library";

[[noreturn]] void throw_error_of(const HttpAnswer& answer, const HubQuestion& q) {
  const std::string code = answer.header("X-Error-Code").value_or(""), words = words_of(answer),
                    page = q.endpoint + "/" + q.repository;
  const auto error = [&](ErrorCode kind, const std::string& sentence, const std::string& hint) {
    return Error(kind, sentence + told(words), hint);
  };
  if (answer.failed())
    throw Error(ErrorCode::Network, fmt::format("cannot reach {}: {}", q.endpoint, printable(answer.failure)),
                "check the connection, the certificates (SSL_CERT_FILE) and HF_ENDPOINT");
  if (answer.status == 404) {
    if (code == "RevisionNotFound")
      throw error(ErrorCode::NotFound, fmt::format("{} has no revision {}", q.repository, printable(q.revision)),
                  fmt::format("see {}/tree/main for its branches and tags", page));
    if (code == "EntryNotFound")
      throw error(ErrorCode::NotFound, fmt::format("{} has no file {}", q.repository, printable(q.path)),
                  fmt::format("see {}/tree/{}", page, printable(q.revision)));
    throw error(
        ErrorCode::NotFound,
        fmt::format("{} is not known to {}", q.path.empty() ? q.repository : q.repository + "/" + printable(q.path), q.endpoint),
        "check owner and name");
  }
  const bool gated = code == "GatedRepo";
  if (answer.status == 401 && gated)
    throw error(ErrorCode::Network, fmt::format("{} is gated: its licence has to be accepted first", q.repository),
                fmt::format("accept it at {}, then {}", page, kSetToken));
  if (answer.status == 403 && gated)
    throw error(ErrorCode::Network,
                fmt::format("{} is gated and the account of this token has no access to it yet", q.repository),
                fmt::format("accept the licence at {} with that account, or wait for the approval", page));
  if (answer.status == 401 && words.find("Invalid credentials") != words.npos)
    throw error(ErrorCode::Network, "the hub does not accept this token: it is wrong or has expired",
                "make a new one and set HF_TOKEN");
  if (answer.status == 401)
    throw error(ErrorCode::Network, fmt::format("{} does not exist or is private", q.repository),
                q.token.empty() ? fmt::format("check the name; if it is private, {}", kSetToken)
                                : "check the name, and that the token's account may see it");
  if (answer.status == 403 && words.find("is disabled") != words.npos)
    throw error(ErrorCode::Network, fmt::format("{} was disabled by the hub", q.repository),
                "look for another source of the model");
  if (answer.status == 403)
    throw error(ErrorCode::Network, fmt::format("this token may not read {}", q.repository),
                "a fine-grained token needs \"read access to public gated repositories\"");
  if (answer.status == 429)
    throw error(ErrorCode::Network, "the hub has had too many requests from here", "wait a while, or set HF_TOKEN");
  throw error(ErrorCode::Network,
              fmt::format("{} answers {} for {}", q.endpoint, answer.status, q.path.empty() ? q.repository : printable(q.path)),
              "try again later");
}

}  // namespace

bool is_entry_missing(const HttpAnswer& answer) {
  return answer.status == 404 && answer.header("X-Error-Code") == "EntryNotFound";
}

void fail_hub(const HttpAnswer& answer, const HubQuestion& question) {
  try {
    throw_error_of(answer, question);
  } catch (const Error& e) {
    throw without_token(e, question.token);
  }
}

}  // namespace flux2
