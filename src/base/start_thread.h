#pragma once

#include <exception>
#include <thread>
#include <utility>

#include "base/error.h"

// Threads are created here, or in a ThreadPool. The system may refuse to create one (a limit on processes, no memory for a
// stack), and code that waits for a thread that was never created waits for ever.
namespace flux2 {

// Starts a thread. If the system allows no more threads, the result is not joinable and nothing runs: the caller does the work
// itself or without it.
template <class F>
std::jthread start_thread_if_possible(F&& body) {
  try {
    return std::jthread(std::forward<F>(body));
  } catch (const std::exception&) {  // system_error, or bad_alloc
    return {};
  }
}

// Starts a thread that is needed. Throws OutOfMemory, with `purpose` in the message, if the system allows no more.
template <class F>
std::jthread start_thread(const char* purpose, F&& body) {
  std::jthread thread = start_thread_if_possible(std::forward<F>(body));
  if (!thread.joinable())
    throw Error(ErrorCode::OutOfMemory, fmt::format("the system allows no more threads; one is needed for {}", purpose),
                "end other programs, or raise the limit on processes (ulimit -u)");
  return thread;
}

}  // namespace flux2
