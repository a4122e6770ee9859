#include "server/http/errors.h"

#include <algorithm>

namespace flux2 {
namespace {

struct StatusAndCode {
  int status;
  const char* code;
};

StatusAndCode status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidArgument: return {400, "invalid_value"};
    case ErrorCode::NotFound: return {404, "not_found"};
    case ErrorCode::BadFile: return {400, "invalid_file"};
    case ErrorCode::Incompatible: return {400, "incompatible"};
    case ErrorCode::OutOfMemory: return {503, "out_of_memory"};
    case ErrorCode::Device: return {500, "device_failure"};
    case ErrorCode::CannotWrite: return {500, "cannot_write"};
    case ErrorCode::Network: return {502, "network"};
    case ErrorCode::Refused: return {400, "content_policy_violation"};
    case ErrorCode::Cancelled: return {409, "cancelled"};
    case ErrorCode::Internal: break;
  }
  return {500, "internal"};
}

// Clients set members of JSON, not options of a command.
std::string spelled_for_clients(const Suggestion& suggestion) {
  switch (suggestion.kind) {
    case Suggestion::Set:
      return suggestion.value.empty() ? "\"" + suggestion.name + "\""
                                      : "\"" + suggestion.name + "\": \"" + suggestion.value + "\"";
    case Suggestion::Unset: return "leaving out \"" + suggestion.name + "\"";
    case Suggestion::Run: return "`flux2 " + suggestion.name + "` on the server";
  }
  return suggestion.name;
}

std::string text_with_hint(const HttpError& error) {
  return error.hint.empty() ? std::string(error.what()) : std::string(error.what()) + "; " + error.hint;
}

HttpResponse native_error(const HttpError& error, const std::string& request_id) {
  Json body = {{"code", error.code}, {"message", error.what()}};
  Json fields = Json::array();
  for (const auto& field : error.fields) fields.push_back({{"path", field.path}, {"message", field.message}});
  if (fields.empty() && !error.param.empty()) {
    std::string message = error.what();
    if (message.starts_with(error.param + ": ")) message.erase(0, error.param.size() + 2);
    fields.push_back({{"path", error.param}, {"message", std::move(message)}});
  }
  if (!fields.empty()) body["fields"] = std::move(fields);
  if (!error.hint.empty()) body["hint"] = error.hint;
  body["request_id"] = request_id;
  return HttpResponse::json({{"error", std::move(body)}}, error.status);
}

// The official clients of this family send a request again after 408, 409, 429 and 5xx. Doing the same work twice helps only when
// the server is stopping or full.
HttpResponse openai_error(const HttpError& error) {
  const int status = error.status == 409 ? 400 : error.status;
  const std::string code = error.code == "internal" ? "internal_error" : error.code;
  const char* type = status == 429 ? "rate_limit_error" : status >= 500 ? "server_error" : "invalid_request_error";
  HttpResponse response = HttpResponse::json({{"error",
                                               {{"message", text_with_hint(error)},
                                                {"type", type},
                                                {"param", error.param.empty() ? Json() : Json(error.param)},
                                                {"code", code.empty() ? Json() : Json(code)}}}},
                                             status);
  if (status >= 500 && code != "shutting_down" && code != "database_unavailable")
    response.headers.emplace_back("x-should-retry", "false");
  return response;
}

HttpResponse a1111_error(const HttpError& error) {
  const std::string text = text_with_hint(error);
  return HttpResponse::json({{"error", error.code}, {"detail", text}, {"body", ""}, {"errors", text}}, error.status);
}

HttpResponse body_of(Family family, const HttpError& error, const std::string& request_id) {
  switch (family) {
    case Family::Native: return native_error(error, request_id);
    case Family::OpenAi: return openai_error(error);
    case Family::A1111: return a1111_error(error);
    case Family::Dj: return HttpResponse::json({{"detail", text_with_hint(error)}}, error.status);
    case Family::Page: break;  // nobody is meant to read these: programs ask for health and figures
  }
  return native_error(error, request_id);
}

}  // namespace

HttpError http_error_of(const Error& error) {
  const auto [status, code] = status_of(error.code());
  HttpError out(status, code, error.what());
  out.hint = error.hint().spelled(spelled_for_clients);
  return out;
}

HttpError http_error_of(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const HttpError& e) {
    return e;
  } catch (const Error& e) {
    return http_error_of(e);
  } catch (const std::bad_alloc&) {
    return HttpError(503, "out_of_memory", "The server has no memory left for this request.");
  } catch (...) {
    // What other libraries say about their own mistakes is for the log, not for clients.
    return HttpError(500, "internal", "The server failed to answer this request. Its log has the reason.");
  }
}

HttpResponse error_response(Family family, const HttpError& error, const std::string& request_id) {
  HttpResponse response = body_of(family, error, request_id);
  response.headers.insert(response.headers.end(), error.headers.begin(), error.headers.end());
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(response.headers, [&](const auto& header) { return header.first == name; });
  };
  if (response.status == 429 && !has("retry-after")) response.headers.emplace_back("retry-after", "2");
  if (!has("cache-control")) response.headers.emplace_back("cache-control", "no-store");
  return response;
}

}  // namespace flux2
