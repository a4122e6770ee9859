#include "train/log/run_history.h"

#include <algorithm>

#include "base/error.h"
#include "train/log/text_lines.h"

namespace flux2 {

namespace {

// Lines may come from anybody, so a member of an unexpected type counts as absent.
double number_in(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number() ? at->get<double>() : kUnknown;
}

int64_t count_in(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number_integer() ? at->get<int64_t>() : 0;
}

std::string text_in(const Json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end()) return {};
  return at->is_string() ? at->get<std::string>() : at->is_number() ? at->dump() : std::string();
}

std::vector<std::pair<std::string, double>> numbers_in(const Json& object, const char* key) {
  std::vector<std::pair<std::string, double>> numbers;
  const auto at = object.find(key);
  if (at == object.end() || !at->is_object()) return numbers;
  for (const auto& [name, value] : at->items())
    if (value.is_number()) numbers.emplace_back(name, value.get<double>());
  return numbers;
}

RunHistory::Step step_in(const Json& event) {
  RunHistory::Step s;
  s.step = count_in(event, "step");
  s.epoch = count_in(event, "epoch");
  s.time = number_in(event, "time");
  s.loss = number_in(event, "loss");
  s.average = number_in(event, "loss_avg");
  s.grad_norm = number_in(event, "grad_norm");
  s.it_per_s = number_in(event, "it_per_s");
  s.tokens_per_s = number_in(event, "tokens_per_s");
  s.device_gib = number_in(event, "device_gib");
  s.host_gib = number_in(event, "host_gib");
  s.lr = numbers_in(event, "lr");
  s.by_t.fill(std::numeric_limits<float>::quiet_NaN());
  for (const auto& [name, loss] : numbers_in(event, "loss_by_t"))
    if (name.size() == 2 && name[0] >= '0' && name[0] <= '9')
      s.by_t[static_cast<size_t>(name[0] - '0')] = static_cast<float>(loss);
  return s;
}

RunHistory::File file_in(const Json& event, const char* key) {
  RunHistory::File f;
  f.step = count_in(event, "step");
  f.epoch = count_in(event, "epoch");
  f.file = text_in(event, key);
  f.sha256 = text_in(event, "sha256");
  f.bytes = static_cast<uint64_t>(std::max<int64_t>(0, count_in(event, "bytes")));
  return f;
}

// What belongs to steps that are trained again.
template <class T>
void drop_after(std::vector<T>& entries, int64_t step) {
  std::erase_if(entries, [&](const T& e) { return e.step > step; });
}

}  // namespace

void RunHistory::add(const Json& event) {
  if (!event.is_object()) return;
  const std::string kind = text_in(event, "event");
  if (kind == "start") {
    const int64_t resumed = count_in(event, "resumed_step");
    drop_after(steps, resumed);
    drop_after(validations, resumed);
    drop_after(samples, resumed);
    drop_after(checkpoints, resumed);
    drop_after(states, resumed);
    drop_after(warnings, resumed);
    end_reason.clear();
    end_message.clear();
    start = event;
    ++starts;
  } else if (kind == "step") {
    Step s = step_in(event);
    while (!steps.empty() && steps.back().step >= s.step) steps.pop_back();
    steps.push_back(std::move(s));
  } else if (kind == "validation") {
    std::erase_if(validations, [&](const Validation& v) { return v.step == count_in(event, "step"); });
    validations.push_back({count_in(event, "step"), number_in(event, "loss"), numbers_in(event, "by_t")});
  } else if (kind == "sample") {
    Sample s{count_in(event, "step"), count_in(event, "epoch"), count_in(event, "index"),
             text_in(event, "file"),  text_in(event, "prompt"), text_in(event, "seed")};
    std::erase_if(samples, [&](const Sample& old) { return old.step == s.step && old.index == s.index; });
    samples.push_back(std::move(s));
  } else if (kind == "checkpoint" || kind == "state") {
    auto& files = kind == "state" ? states : checkpoints;
    File f = file_in(event, kind == "state" ? "folder" : "file");
    std::erase_if(files, [&](const File& old) { return old.file == f.file; });
    files.push_back(std::move(f));
  } else if (kind == "removed") {
    for (auto* files : {&checkpoints, &states})
      for (File& f : *files) f.removed = f.removed || f.file == text_in(event, "file");
  } else if (kind == "warning") {
    warnings.push_back({count_in(event, "step"), text_in(event, "text")});
  } else if (kind == "end") {
    end_reason = text_in(event, "reason");
    end_message = text_in(event, "message");
  }
  if (const double elapsed = number_in(event, "elapsed_s"); std::isfinite(elapsed)) elapsed_s = elapsed;
}

RunHistory read_history(const std::filesystem::path& jsonl) {
  RunHistory history;
  int64_t events = 0;
  read_lines(jsonl, [&](std::string_view line) {
    const auto event = try_parse_json(line);
    if (!event || !event->is_object() || !event->contains("event")) return;
    history.add(*event);
    ++events;
  });
  if (events == 0) fail(ErrorCode::BadFile, "{} is not the log of a training run: no line describes an event", jsonl.string());
  return history;
}

}  // namespace flux2
