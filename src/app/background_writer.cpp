#include "app/background_writer.h"

#include <chrono>
#include <system_error>

namespace flux2 {

void BackgroundWriter::add(const Picture& picture, GenerationRecord record, const std::string& target, const Finish& finish) {
  while (!pending_.empty() && pending_.size() >= threads_) write_first();
  Picture kept{.decoded = {},
               .seed = picture.seed,
               .variation = picture.variation,
               .index = picture.index,
               .decoded_in_f32 = picture.decoded_in_f32,
               .rows = picture.rows,
               .columns = picture.columns,
               .latents = picture.latents,
               .cache = picture.cache};
  const auto encode = [this, kept, image = writer_.image_of(picture), record = std::move(record), target, finish] {
    return writer_.encoded(kept, image, record, target, finish);
  };
  std::future<EncodedPicture> encoded;
  try {
    encoded = std::async(threads_ > 0 ? std::launch::async : std::launch::deferred, encode);
  } catch (const std::system_error&) {  // the system allows no more threads
    encoded = std::async(std::launch::deferred, encode);
  }
  pending_.push_back({std::move(kept), target, std::move(encoded)});
  write_ready();
}

void BackgroundWriter::write_ready() {
  while (!pending_.empty() && is_first_ready()) write_first();
}

void BackgroundWriter::flush() {
  while (!pending_.empty()) write_first();
}

// Also if nobody else will encode it.
bool BackgroundWriter::is_first_ready() const {
  return pending_.front().encoded.wait_for(std::chrono::seconds(0)) != std::future_status::timeout;
}

void BackgroundWriter::write_first() {
  Pending first = std::move(pending_.front());
  pending_.pop_front();
  WrittenPicture written;
  try {
    written = writer_.write(first.encoded.get(), first.picture, first.target);
  } catch (const Error& e) {
    return calls_.failed(e);
  }
  calls_.written(first.picture, written);
}

}  // namespace flux2
