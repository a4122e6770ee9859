#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>

// Everything the program prints goes through this file. A test checks that no other file writes to standard output or standard
// error, so texts from files, prompts and servers reach a terminal or a log in one form only: without control sequences.
namespace flux2 {

enum class Channel { Result, Message };  // standard output and standard error

int descriptor_of(Channel channel);
bool is_terminal(Channel channel);
int terminal_columns(Channel channel);  // 0 if the channel is not a terminal, or if the terminal does not tell its width

// Writes a text with its control sequences escaped (visible_text()).
void write_text(Channel channel, std::string_view text);

// Writes the last message of a program that ends at once. For signal handlers: it allocates nothing and only calls write().
void write_last_words(std::string_view text) noexcept;

// Writes sequences that flux2 itself makes, unescaped: colours, cursor movements, images in the terminal.
void write_sequence(Channel channel, std::string_view bytes);

// Writes the bytes of a file or image to standard output, unchanged. Throws CannotWrite.
void write_result_bytes(std::span<const std::byte> bytes);

// The file that messages are appended to.
class LogFile {
 public:
  bool open(const std::filesystem::path& path);  // false if it cannot be written
  bool is_open() const { return file_.is_open(); }
  void line(std::string_view text);  // does nothing if no file is open

 private:
  std::ofstream file_;
};

}  // namespace flux2
