#include "server/blobs/s3_listing.h"

#include <fmt/format.h>

#include <charconv>
#include <ctime>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

constexpr size_t kDeepest = 16, kLongestText = 4096;

[[noreturn]] void bad_xml(const char* why) {
  fail(ErrorCode::BadFile, "the image store sent a listing that cannot be read: {}", why);
}

void append_utf8(std::string& text, uint32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xC0 | (c >> 6));
    text += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    text += static_cast<char>(0xE0 | (c >> 12));
    text += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    text += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    text += static_cast<char>(0xF0 | (c >> 18));
    text += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    text += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    text += static_cast<char>(0x80 | (c & 0x3F));
  }
}

// "a&amp;b" → "a&b". XML knows five names; everything else is a number.
std::string without_entities(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t begin = text.find('&');
    out += text.substr(0, begin);
    if (begin == text.npos) break;
    text.remove_prefix(begin + 1);
    const size_t end = text.substr(0, 12).find(';');
    if (end == text.npos) bad_xml("an entity does not end");
    const std::string_view name = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (name == "amp") out += '&';
    else if (name == "lt") out += '<';
    else if (name == "gt") out += '>';
    else if (name == "quot") out += '"';
    else if (name == "apos") out += '\'';
    else {
      const bool hex = name.starts_with("#x");
      const std::string_view digits = name.substr(std::min<size_t>(hex ? 2 : 1, name.size()));
      uint32_t code = 0;
      const auto [stop, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), code, hex ? 16 : 10);
      const bool whole = failure == std::errc() && stop == digits.data() + digits.size() && !digits.empty();
      if (!name.starts_with('#') || !whole || code == 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        bad_xml("an entity is unknown");
      append_utf8(out, code);
    }
  }
  return out;
}

// Walks through a document and calls back at the end of each element with its path ("ListBucketResult/Contents/Key") and the text
// directly before its end. Attributes and comments are skipped; a document type is refused.
template <class Call>
void walk_xml(std::string_view xml, Call&& call) {
  std::vector<std::string> open;
  std::string path;
  std::string_view text;
  const auto skip_past = [&](std::string_view end) {
    const size_t at = xml.find(end);
    if (at == xml.npos) bad_xml("it ends early");
    xml.remove_prefix(at + end.size());
  };
  while (true) {
    const size_t tag = xml.find('<');
    text = xml.substr(0, tag);
    if (tag == xml.npos) break;
    xml.remove_prefix(tag + 1);
    if (xml.starts_with('?')) {
      skip_past("?>");
    } else if (xml.starts_with("!--")) {
      skip_past("-->");
    } else if (xml.starts_with('!')) {
      bad_xml("it has a document type or a section of raw text");
    } else {
      const size_t end = xml.find('>');
      if (end == xml.npos) bad_xml("it ends early");
      std::string_view inside = xml.substr(0, end);
      xml.remove_prefix(end + 1);
      const bool closes = inside.starts_with('/'), empty = inside.ends_with('/');
      if (closes) inside.remove_prefix(1);
      const std::string name(inside.substr(0, inside.find_first_of(" \t\r\n/")));
      if (name.empty() || name.size() > 128) bad_xml("an element has no name, or a very long one");
      if (!closes) {
        if (open.size() == kDeepest) bad_xml("its elements are nested too deeply");
        open.push_back(name);
        path += (path.empty() ? "" : "/") + name;
        if (!empty) continue;
        text = {};
      }
      if (open.empty() || open.back() != name) bad_xml("its elements do not match");
      if (text.size() > kLongestText) bad_xml("a text is too long");
      call(path, text);
      open.pop_back();
      path.resize(path.size() - name.size() - (open.empty() ? 0 : 1));
    }
  }
  if (!open.empty()) bad_xml("it ends early");
}

// "2026-11-16T12:00:00.000Z"
int64_t ms_of(const std::string& text) {
  std::tm date{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &date);
  if (!rest) bad_xml("a time is not a time");
  if (date.tm_year < 70 || date.tm_year > 8000) bad_xml("a time is not a time");
  return static_cast<int64_t>(::timegm(&date)) * 1000;
}

}  // namespace

S3Listing read_s3_listing(std::string_view xml) {
  S3Listing listing;
  Blob object;
  bool is_listing = false, truncated = false;
  walk_xml(xml, [&](const std::string& path, std::string_view text) {
    constexpr std::string_view kRoot = "ListBucketResult", kObject = "ListBucketResult/Contents";
    is_listing |= path == kRoot;
    if (path == "ListBucketResult/IsTruncated") truncated = trimmed(text) == "true";
    if (path == "ListBucketResult/NextContinuationToken") listing.next = without_entities(text);
    if (!path.starts_with(kObject)) return;
    const std::string_view field = std::string_view(path).substr(kObject.size());
    if (field == "/Key") object.name = without_entities(text);
    if (field == "/LastModified") object.modified = ms_of(without_entities(trimmed(text)));
    if (field == "/Size") {
      const std::string_view digits = trimmed(text);
      const auto [stop, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), object.bytes);
      if (failure != std::errc() || stop != digits.data() + digits.size()) bad_xml("a size is not a number");
    }
    if (field.empty()) {
      if (object.name.empty()) bad_xml("an object has no name");
      listing.objects.push_back(std::exchange(object, {}));
    }
  });
  if (!is_listing) bad_xml("it is something else");
  if (truncated && listing.next.empty()) bad_xml("it does not say where the next page begins");
  if (!truncated) listing.next.clear();
  return listing;
}

std::string s3_error_field(std::string_view xml, std::string_view element) {
  std::string found;
  try {
    walk_xml(xml, [&](const std::string& path, std::string_view text) {
      if (path == fmt::format("Error/{}", element)) found = without_entities(text);
    });
  } catch (const Error&) {
    return {};  // not XML: a proxy's page, say
  }
  return printable(found);
}

}  // namespace flux2
