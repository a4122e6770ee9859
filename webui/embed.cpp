// Writes the files of the page as C++: embed OUTPUT ROOT FILE…. Runs during the build.
#include <fmt/format.h>
#include <zlib.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/sha256.h"

namespace {

constexpr int kGzipWindow = 15 + 16;  // the largest window, with a gzip header
constexpr size_t kVersionDigits = 12;
constexpr std::string_view kPlaceholder = "{{version}}";

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string compressed(const std::string& bytes) {
  z_stream stream = {};
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzipWindow, 9, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("zlib does not start");
  std::string out(deflateBound(&stream, static_cast<uLong>(bytes.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("zlib does not end");
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

const char* content_type(std::string_view path) {
  if (path.ends_with(".html")) return "text/html; charset=utf-8";
  if (path.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (path.ends_with(".css")) return "text/css; charset=utf-8";
  if (path.ends_with(".json")) return "application/json";
  if (path.ends_with(".svg")) return "image/svg+xml";
  throw std::runtime_error(fmt::format("the type of {} is unknown", path));
}

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + with.size())) text.replace(at, what.size(), with);
}

// As a string literal: compilers read those much faster than lists of numbers. Three octal digits cannot run into the next byte.
void write_array(std::FILE* out, const std::string& name, const std::string& bytes) {
  fmt::print(out, "constexpr char {}[] =", name);
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i % 40 == 0) std::fputs(i == 0 ? "\n    \"" : "\"\n    \"", out);
    fmt::print(out, "\\{:03o}", static_cast<unsigned>(static_cast<unsigned char>(bytes[i])));
  }
  fmt::print(out, "{};\n", bytes.empty() ? "\"\"" : "\"");
}

}  // namespace

int main(int count, char** words) try {
  if (count < 4) throw std::runtime_error("usage: embed OUTPUT ROOT FILE…");
  std::map<std::string, std::string> files;
  for (int i = 3; i < count; ++i) files[words[i]] = read(std::string(words[2]) + "/" + words[i]);
  flux2::Sha256 hash;
  for (const auto& [path, bytes] : files) hash.add(std::as_bytes(std::span(path))).add(std::as_bytes(std::span(bytes)));
  const std::string version = hash.hex().substr(0, kVersionDigits);
  replace_all(files.at("index.html"), kPlaceholder, version);

  std::FILE* const out = std::fopen(words[1], "wb");
  if (!out) throw std::runtime_error(fmt::format("cannot write {}", words[1]));
  fmt::print(out, "// Written by webui/embed.cpp.\n#include \"webui/files.h\"\n\nnamespace flux2 {{\nnamespace {{\n\n");
  int number = 0;
  std::string table;
  for (const auto& [path, bytes] : files) {
    const std::string gzip = compressed(bytes);
    write_array(out, fmt::format("kPlain{}", number), bytes);
    write_array(out, fmt::format("kGzip{}", number), gzip);
    table += fmt::format("    {{\"{0}\", {{kPlain{1}, {2}}}, {{kGzip{1}, {3}}}, \"{4}\"}},\n", path, number, bytes.size(),
                         gzip.size(), content_type(path));
    ++number;
  }
  fmt::print(out, "constexpr PageFile kFiles[] = {{\n{}}};\n\n}}  // namespace\n\n", table);
  fmt::print(
      out,
      "std::span<const PageFile> page_files() {{ return kFiles; }}\nstd::string_view page_version() {{ return \"{}\"; }}\n\n",
      version);
  fmt::print(out, "}}  // namespace flux2\n");
  if (std::fclose(out) != 0) throw std::runtime_error(fmt::format("cannot write {}", words[1]));
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "embed: {}\n", e.what());
  return 1;
}
