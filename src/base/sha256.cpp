#include "base/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "base/error.h"

namespace flux2 {

namespace {

EVP_MD_CTX* context(const std::shared_ptr<void>& state) { return static_cast<EVP_MD_CTX*>(state.get()); }

std::shared_ptr<void> new_state() {
  return {EVP_MD_CTX_new(), [](void* p) { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(p)); }};
}

void require(bool done) {
  if (!done) fail(ErrorCode::Internal, "SHA-256 is not available");
}

}  // namespace

Sha256::Sha256() : state_(new_state()) { require(state_ && EVP_DigestInit_ex(context(state_), EVP_sha256(), nullptr) == 1); }

Sha256& Sha256::add(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(context(state_), bytes.data(), bytes.size()) == 1);
  return *this;
}

std::string Sha256::hex() const {
  const auto copy = new_state();
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  require(copy && EVP_MD_CTX_copy_ex(context(copy), context(state_)) == 1 &&
          EVP_DigestFinal_ex(context(copy), digest.data(), &size) == 1);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string sha256(std::span<const std::byte> bytes) { return Sha256().add(bytes).hex(); }

}  // namespace flux2
