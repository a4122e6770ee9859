#include <string>

#include "base/error.h"
#include "net/http.h"
#include "net/url.h"
#include "tests/fuzz/target.h"

// Addresses and headers: an address that is accepted has a host and no control characters, and reads the same again.
FUZZ_TARGET(http) {
  using namespace flux2;
  const std::string text(flux2_fuzz::text_of(data, size));
  HttpAnswer answer{
      .status = 206, .url = "https://a.example/b/c", .headers = {{"Content-Range", text}, {"Content-Length", text}}};
  content_range(answer);
  whole_size(answer);
  bare_etag(text);
  url_unquoted(url_quoted(text));
  if (url_unquoted(url_quoted(text)) != text) flux2_fuzz::broken();
  try {
    parse_url(resolve_location("https://a.example/b/c?d", text));
  } catch (const Error&) {}
  const Url url = parse_url(text);
  if (url.host.empty() || url.port < 1 || url.port > 65535 || url.target.empty() || url.target.front() != '/')
    flux2_fuzz::broken();
  for (const unsigned char c : url.text())
    if (c < 0x20) flux2_fuzz::broken();
  if (parse_url(url.text()).text() != url.text()) flux2_fuzz::broken();
  file_name_of(url);
}
