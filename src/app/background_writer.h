#pragma once

#include <deque>
#include <functional>
#include <future>
#include <string>

#include "app/picture_writer.h"

namespace flux2 {

// Encodes images on threads of their own while the next ones are generated: on a fast GPU, encoding a PNG takes longer than
// generating its image. Images are written in the order in which they were added, by the calling thread, inside its calls.
class BackgroundWriter {
 public:
  struct Calls {
    // `picture` comes without its decoded image.
    std::function<void(const Picture& picture, const WrittenPicture& written)> written;
    std::function<void(const Error& error)> failed;  // an image that could not be encoded or written; it may throw
  };

  // The writer must outlive this object.
  BackgroundWriter(PictureWriter& writer, Calls calls) : writer_(writer), calls_(std::move(calls)) {}

  // How many images are encoded at a time; 0: add() returns when the image is written. That is better on a CPU, which has no time
  // to spare and may need minutes until the next call.
  void set_threads(size_t threads) { threads_ = threads; }

  void add(const Picture& picture, GenerationRecord record, const std::string& target, const Finish& finish = {});
  void write_ready();  // what is encoded already; to be called now and then
  void flush();        // returns after every image was written

 private:
  struct Pending {
    Picture picture;
    std::string target;
    std::future<EncodedPicture> encoded;
  };

  bool is_first_ready() const;
  void write_first();

  PictureWriter& writer_;
  Calls calls_;
  size_t threads_ = 4;
  std::deque<Pending> pending_;
};

}  // namespace flux2
