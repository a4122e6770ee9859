#pragma once

#include <string>
#include <utility>

namespace flux2 {

// A shared library opened at the first call into it. cuBLASLt alone has 400,000 relocations, which a program linked with
// it pays at every start, `flux2 --version` included; and a program linked with it does not start at all where it is missing. The
// functions we use are defined by us under their own names and forward here.
class LateLibrary {
 public:
  explicit LateLibrary(std::string file) : file_(std::move(file)) {}

  // The address of a function. Throws an error that names library and function if either is missing.
  void* symbol(const char* name) const;
  bool opens() const;

 private:
  std::string file_;
};

}  // namespace flux2
