#include "hub/remote/hash_behind.h"

#include <openssl/evp.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/file_hash.h"
#include "base/start_thread.h"

namespace flux2 {

namespace fs = std::filesystem;

constexpr size_t kPiece = 1 << 20;  // bytes read at a time

// Without a thread, finish() reads everything.
HashBehind::HashBehind(const PartialFile& file)
    : file_(file), thread_(start_thread_if_possible([this](std::stop_token stop) { follow(stop); })) {}

void HashBehind::follow(const std::stop_token& stop) {
  try {
    while (!stop.stop_requested()) {
      const PartialFile::Front front = file_.front();
      if (front.bytes > done_ || front.attempt != attempt_) advance(front, stop);
      else std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  } catch (...) {
    thrown_ = std::current_exception();
  }
}

void HashBehind::advance(PartialFile::Front front, const std::stop_token& stop) {
  if (front.attempt != attempt_) {
    hash_ = Sha256();
    done_ = 0;
    attempt_ = front.attempt;
  }
  std::vector<std::byte> piece(kPiece);
  while (done_ < front.bytes && !stop.stop_requested()) {
    const size_t n = file_.read(done_, std::span(piece).first(std::min<uint64_t>(kPiece, front.bytes - done_)));
    if (n == 0) return;  // started again meanwhile
    hash_.add(std::span(piece).first(n));
    done_ += n;
  }
}

std::string HashBehind::finish(uint64_t size) {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  if (thrown_) std::rethrow_exception(thrown_);
  const int attempt = file_.front().attempt;
  advance({size, attempt}, {});
  if (done_ != size) fail(ErrorCode::BadFile, "{} ends at {} bytes of {}", file_.path().string(), done_, size);
  return hash_.hex();
}

std::string git_blob_id(const fs::path& path) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  const auto done = [](bool ok) { require(ok, "SHA-1 is not available"); };
  done(context && EVP_DigestInit_ex(context.get(), EVP_sha1(), nullptr) == 1);
  const std::string head = fmt::format("blob {}", fs::file_size(path));
  done(EVP_DigestUpdate(context.get(), head.c_str(), head.size() + 1) == 1);
  read_pieces(path,
              [&](std::span<const std::byte> bytes) { done(EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()) == 1); });
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  done(EVP_DigestFinal_ex(context.get(), digest, &size) == 1);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace flux2
