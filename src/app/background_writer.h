#pragma once

#include <deque>
#include <functional>
#include <future>
#include <string>

#include "app/picture_writer.h"

namespace flux2 {

// Encodes images on threads of their own while the next ones are generated: on a fast GPU, encoding a PNG takes longer than
// generating its image. Images are written in the order in which they were added, by the calling thread, inside add() and
// flush().
class BackgroundWriter {
 public:
  struct Calls {
    // `picture` comes without its decoded image.
    std::function<void(const Picture& picture, const WrittenPicture& written)> written;
    std::function<void(const Error& error)> failed;  // an image that could not be encoded or written; it may throw
  };

  // The writer must outlive this object. `at_once` images are encoded at a time.
  BackgroundWriter(PictureWriter& writer, Calls calls, size_t at_once = 4)
      : writer_(writer), calls_(std::move(calls)), at_once_(at_once) {}

  void add(const Picture& picture, GenerationRecord record, const std::string& target, const Finish& finish = {});
  void flush();  // returns after every image was written

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
  size_t at_once_;
  std::deque<Pending> pending_;
};

}  // namespace flux2
