#include "server/http/router.h"

#include <algorithm>

#include "base/error.h"

namespace flux2 {
namespace {

using Captured = std::vector<std::pair<std::string, std::string>>;

std::vector<std::string> segments_of(std::string_view path) {
  std::vector<std::string> segments;
  size_t begin = 1;  // behind the first slash
  while (true) {
    const size_t end = path.find('/', begin);
    segments.emplace_back(path.substr(begin, end - begin));
    if (end == path.npos) return segments;
    begin = end + 1;
  }
}

bool is_capture(const std::string& segment) { return segment.size() > 2 && segment.front() == '{' && segment.back() == '}'; }
bool is_rest(const std::string& segment) { return is_capture(segment) && segment.ends_with("...}"); }

// Orders patterns that match the same path: the first segment in which they differ decides, literal before {name} before
// {name...}.
std::string rank_of(const std::vector<std::string>& pattern) {
  std::string rank;
  for (const std::string& segment : pattern) rank += is_rest(segment) ? '2' : is_capture(segment) ? '1' : '0';
  return rank;
}

bool matches_pattern(const std::vector<std::string>& pattern, const std::vector<std::string>& path) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (is_rest(pattern[i])) return true;
    if (i >= path.size()) return false;
    if (is_capture(pattern[i]) ? path[i].empty() : pattern[i] != path[i]) return false;
  }
  return pattern.size() == path.size();
}

Captured captured_by(const std::vector<std::string>& pattern, const std::vector<std::string>& path) {
  Captured captured;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string& segment = pattern[i];
    if (is_rest(segment)) {
      std::string rest;
      for (size_t j = i; j < path.size(); ++j) rest += (j > i ? "/" : "") + path[j];
      captured.emplace_back(segment.substr(1, segment.size() - 5), std::move(rest));
    } else if (is_capture(segment)) {
      captured.emplace_back(segment.substr(1, segment.size() - 2), path[i]);
    }
  }
  return captured;
}

}  // namespace

void Router::add(Route route) {
  require(route.pattern.starts_with('/'), "the route {} does not begin with a slash", route.pattern);
  std::vector<std::string> segments = segments_of(route.pattern);
  for (size_t i = 0; i + 1 < segments.size(); ++i)
    require(!is_rest(segments[i]), "the route {} has segments after {}", route.pattern, segments[i]);
  for (const Route& other : routes_)
    require(other.method != route.method || other.pattern != route.pattern, "the route {} {} exists twice", route.method,
            route.pattern);
  routes_.push_back(std::move(route));
  segments_.push_back(std::move(segments));
}

Router::Match Router::find(std::string_view method, std::string_view path) const {
  Match match;
  if (!path.starts_with('/')) return match;
  const std::vector<std::string> segments = segments_of(path);
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  // The most specific pattern decides, whatever its methods: GET /jobs/cancel is not the job "cancel".
  std::string best;
  for (size_t i = 0; i < routes_.size(); ++i)
    if (matches_pattern(segments_[i], segments))
      if (std::string rank = rank_of(segments_[i]); best.empty() || rank < best) best = std::move(rank);
  for (size_t i = 0; i < routes_.size(); ++i) {
    if (!matches_pattern(segments_[i], segments) || rank_of(segments_[i]) != best) continue;
    if (routes_[i].method != wanted) {
      match.allowed.push_back(routes_[i].method);
      continue;
    }
    match.route = &routes_[i];
    match.captured = captured_by(segments_[i], segments);
    match.allowed.clear();
    return match;
  }
  if (std::ranges::find(match.allowed, "GET") != match.allowed.end()) match.allowed.emplace_back("HEAD");
  std::ranges::sort(match.allowed);
  match.allowed.erase(std::unique(match.allowed.begin(), match.allowed.end()), match.allowed.end());
  return match;
}

Family family_of(std::string_view path) {
  const std::string_view first = path.starts_with('/') ? path.substr(1, path.find('/', 1) - 1) : std::string_view();
  if (first == "v1") return Family::OpenAi;
  if (first == "sdapi") return Family::A1111;
  if (first == "api") return Family::Native;
  for (const std::string_view dj : {"generate", "status", "result", "queue", "cancel", "models", "ws"})
    if (first == dj) return Family::Dj;
  return Family::Page;
}

Handler answering(std::function<HttpResponse(const ServerRequest&)> answer) {
  return [answer = std::move(answer)](const Exchange& exchange) { exchange.respond(answer(exchange.request())); };
}

}  // namespace flux2
