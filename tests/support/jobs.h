#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/fake_hub.h"
#include "tests/support/program.h"

namespace flux2::test {

// Commands that write files, and how to see that what they leave is right. They are interrupted by the tests: killed, or made to
// fail at a chosen call. Everything a command writes lies in three folders: out, home and hf.
class JobTest : public Cli {
 protected:
  struct Job {
    std::string name;
    std::vector<std::string> words;
    bool adds = false;  // each run adds files to those that are there
    int printed = 0;    // entries of its JSON output; 0: it prints none
  };

  void SetUp() override;

  static const std::vector<std::string>& names();  // of all jobs
  Job job(const std::string& name);

  Start start_of(const Job& job) const;
  void begin_anew() const;
  // Runs the job to its end and remembers what it makes. Call it once, before the others.
  void learn(const Job& job);

  // What is wrong with the files that an interrupted run left; empty if nothing is. A file under its final name must be complete.
  // A run that ended by itself also leaves no temporary file.
  std::string problem_after_interruption(const Job& job, bool ended_by_itself) const;
  // The same after a run to the end, which leaves nothing but its results.
  std::string problem_after_success(const Job& job, const Finished& done) const;

 private:
  std::map<std::string, std::string> contents(const std::string& folder) const;
  bool is_one_of_the_pictures(const std::string& content) const;
  std::string wrong_results(const Job& job) const;
  std::vector<std::string> leftovers(bool resumable_too) const;

  std::unique_ptr<FakeHub> hub_;
  std::map<std::string, std::string> expected_;  // by name
};

}  // namespace flux2::test
