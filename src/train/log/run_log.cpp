#include "train/log/run_log.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/path_exists.h"
#include "image/read_image.h"
#include "image/write_image.h"
#include "train/log/event_file.h"
#include "train/log/jsonl_file.h"
#include "train/log/output_names.h"
#include "train/log/report.h"
#include "train/log/step_figures.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

double system_seconds() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// Milliseconds are enough, and short lines are easier to read.
double rounded(double value, double parts_per_unit = 1000) { return std::round(value * parts_per_unit) / parts_per_unit; }

Json optional_json(const std::optional<double>& value) { return value && std::isfinite(*value) ? Json(*value) : Json(); }

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? kUnknown : sum / static_cast<double>(values.size());
}

std::string table_cell(const Json& value) {
  std::string cell;
  for (const char c : value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace))
    cell += c == '|' ? "\\|" : c == '\n' ? std::string(" ") : std::string(1, c);
  return cell;
}

std::string bin_name(size_t bin) { return fmt::format("{:02}", bin * 10); }

Json named_numbers(const std::vector<std::pair<std::string, double>>& numbers) {
  Json json = Json::object();
  for (const auto& [name, value] : numbers) json[name] = value;
  return json;
}

}  // namespace

const char* name_of(RunEndReason reason) {
  switch (reason) {
    case RunEndReason::Done: return "done";
    case RunEndReason::Interrupted: return "interrupted";
    case RunEndReason::Nan: return "nan";
    case RunEndReason::Time: return "time";
    case RunEndReason::Error: return "error";
  }
  return "error";
}

Json options_without_secrets(const Json& options) {
  constexpr std::string_view kHidden[] = {"wandb_api_key", "huggingface_token", "dit",        "vae",        "text_encoder",
                                          "base_weights",  "network_weights",   "output_dir", "logging_dir"};
  Json shown = Json::object();
  if (!options.is_object()) return shown;
  for (const auto& [name, value] : options.items())
    if (std::find(std::begin(kHidden), std::end(kHidden), name) == std::end(kHidden)) shown[name] = value;
  return shown;
}

struct RunLog::Parts {
  explicit Parts(RunLogOptions given) : options(std::move(given)), names{options.output_dir, options.output_name} {}

  RunLogOptions options;
  OutputNames names;
  std::vector<std::unique_ptr<JsonlFile>> lines;
  std::unique_ptr<EventFile> events;
  RunHistory history;
  SpeedMeter speed;
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  int64_t last_step = 0;  // of the plan
  bool failing = false;   // a log could not be written, and the user knows

  double now() const { return options.now ? options.now() : system_seconds(); }

  // A run of ten hours does not end because a log cannot be written.
  template <class F>
  void guarded(F&& write) {
    try {
      write();
      failing = false;
    } catch (const Error& e) {
      if (!std::exchange(failing, true)) options.log.warn("{}; training goes on without this entry", e.what());
    }
  }

  Json event(const char* kind) const {
    Json json;
    json["event"] = kind;
    json["time"] = rounded(now());
    return json;
  }

  void tell(const Json& json) {
    for (const auto& file : lines) guarded([&] { file->append(json); });
    history.add(json);
    if (options.on_event) options.on_event(json);
  }

  void scalar(EventTime at, const std::string& tag, double value) {
    if (events) events->add(scalar_event(at, tag, static_cast<float>(value)));
  }
  void scalar(EventTime at, const std::string& tag, const std::optional<double>& value) {
    if (value) scalar(at, tag, *value);
  }
  void flush_events() {
    if (events) guarded([&] { events->flush(); });
  }

  // Relative to the output folder, so that logs stay right when the folder is moved.
  std::string shown_path(const fs::path& path) const {
    const fs::path relative = path.lexically_normal().lexically_relative(options.output_dir.lexically_normal());
    const bool inside = !relative.empty() && *relative.begin() != "..";
    return (inside ? relative : path).generic_string();
  }
};

RunLog::RunLog(RunLogOptions options) : parts_(std::make_unique<Parts>(std::move(options))) {
  Parts& p = *parts_;
  check_output_name(p.options.output_name);
  p.lines.push_back(std::make_unique<JsonlFile>(p.names.log(), p.options.resumed_step));
  if (!p.options.jsonl.empty()) {
    std::error_code different;
    if (!fs::equivalent(p.options.jsonl, p.names.log(), different) || different)
      p.lines.push_back(std::make_unique<JsonlFile>(p.options.jsonl, p.options.resumed_step));
  }
  if (p.options.resumed_step && fs::file_size(p.names.log()) > 0) p.history = read_history(p.names.log());
  if (p.options.logging_dir.empty()) return;
  const double now = p.now();
  p.events = std::make_unique<EventFile>(
      new_event_path(p.options.logging_dir, p.options.log_prefix, p.options.tracker_name, static_cast<int64_t>(now)), now);
}

RunLog::~RunLog() = default;

void RunLog::start(const RunStart& s) {
  Parts& p = *parts_;
  p.last_step = s.steps;
  Json json = p.event("start");
  json["name"] = p.options.output_name;
  json["model"] = s.model;
  json["modules"] = s.modules;
  json["parameters"] = s.parameters;
  json["items"] = s.items;
  json["batches_per_epoch"] = s.batches_per_epoch;
  json["epochs"] = s.epochs;
  json["steps"] = s.steps;
  if (p.options.resumed_step) json["resumed_step"] = *p.options.resumed_step;
  if (s.plan)
    json["plan"] = {{"device_gib", s.plan->device_gib}, {"host_gib", s.plan->host_gib}, {"s_per_step", s.plan->s_per_step}};
  if (!s.program.empty()) json["program"] = s.program;
  if (!s.device.empty()) json["device"] = s.device;
  json["options"] = options_without_secrets(s.options);
  p.tell(json);
  if (p.events && p.options.log_config) {
    std::string table = "|option|value|\n|-|-|\n";  // TensorBoard shows Markdown
    for (const auto& [name, value] : json["options"].items())
      table += fmt::format("|{}|{}|\n", table_cell(name), table_cell(value));
    p.events->add(text_event({p.now(), p.options.resumed_step.value_or(0)}, "config", table));
  }
  p.flush_events();
}

void RunLog::step(const RunStep& s) {
  Parts& p = *parts_;
  for (size_t i = 0; i < s.losses.size(); ++i) p.options.losses.record(s.micro_in_epoch + static_cast<int64_t>(i), s.losses[i]);
  p.speed.add(s.seconds, s.tokens);
  const double loss = mean_of(s.losses), average = p.options.losses.average();
  const auto by_t = loss_by_timestep(s.samples);
  const auto rate = p.speed.steps_per_s(), token_rate = p.speed.tokens_per_s();

  Json json = p.event("step");
  json["step"] = s.step;
  json["epoch"] = s.epoch;
  json["loss"] = optional_json(loss);
  json["loss_avg"] = average;
  json["lr"] = named_numbers(s.lr);
  if (!s.d_lr.empty()) json["d_lr"] = named_numbers(s.d_lr);
  json["grad_norm"] = optional_json(s.grad_norm);
  if (!s.samples.empty()) {
    double sum = 0;
    for (const auto& sample : s.samples) sum += sample.t;
    json["t_mean"] = sum / static_cast<double>(s.samples.size());
  }
  json["it_per_s"] = optional_json(rate);
  if (token_rate) json["tokens_per_s"] = rounded(*token_rate, 10);
  json["device_gib"] = optional_json(s.device_gib);
  if (s.host_gib) json["host_gib"] = *s.host_gib;
  json["eta_s"] = rate ? Json(rounded(static_cast<double>(std::max<int64_t>(0, p.last_step - s.step)) / *rate, 10)) : Json();
  for (size_t bin = 0; bin < kTimestepBins; ++bin)
    if (std::isfinite(by_t[bin])) json["loss_by_t"][bin_name(bin)] = by_t[bin];
  if (s.ema_decay) json["ema_decay"] = *s.ema_decay;
  if (s.norm_limit)
    json["max_norm"] = {{"keys_scaled", s.norm_limit->keys_scaled},
                        {"average_key_norm", s.norm_limit->average},
                        {"max_key_norm", s.norm_limit->maximum}};
  if (s.skipped) json["skipped"] = true;
  json["elapsed_s"] = rounded(elapsed_s());
  p.tell(json);

  const EventTime at{p.now(), s.step};
  p.scalar(at, "loss/current", loss);
  p.scalar(at, "loss/average", average);
  for (const auto& [group, value] : s.lr) p.scalar(at, "lr/" + group, value);
  for (const auto& [group, value] : s.d_lr) p.scalar(at, "lr/d*lr/" + group, value);
  for (size_t bin = 0; bin < kTimestepBins; ++bin)
    if (std::isfinite(by_t[bin])) p.scalar(at, "loss/t_" + bin_name(bin), by_t[bin]);
  p.scalar(at, "grad/norm", s.grad_norm);
  p.scalar(at, "speed/it_per_s", rate);
  p.scalar(at, "speed/tokens_per_s", token_rate);
  p.scalar(at, "memory/device_gib", s.device_gib);
  p.scalar(at, "memory/host_gib", s.host_gib);
  p.scalar(at, "ema/decay", s.ema_decay);
  if (s.norm_limit) {
    p.scalar(at, "max_norm/keys_scaled", static_cast<double>(s.norm_limit->keys_scaled));
    p.scalar(at, "max_norm/average_key_norm", s.norm_limit->average);
    p.scalar(at, "max_norm/max_key_norm", s.norm_limit->maximum);
  }
  p.flush_events();
}

void RunLog::epoch(const RunEpoch& e) {
  Parts& p = *parts_;
  const double average = p.options.losses.average();
  Json json = p.event("epoch");
  json["step"] = e.step;
  json["epoch"] = e.epoch;
  json["loss"] = average;
  p.tell(json);
  p.scalar({p.now(), e.epoch}, "loss/epoch", average);  // musubi-tuner counts epochs on the axis of steps
  p.scalar({p.now(), e.step}, "loss/epoch_by_step", average);
  p.flush_events();
}

void RunLog::validation(const RunValidation& v) {
  Parts& p = *parts_;
  Json json = p.event("validation");
  json["step"] = v.step;
  json["loss"] = optional_json(v.loss);
  json["by_t"] = Json::object();
  const EventTime at{p.now(), v.step};
  p.scalar(at, "loss/validation", v.loss);
  for (const auto& [t, loss] : v.by_t) {
    json["by_t"][fmt::format("{:.6g}", t)] = optional_json(loss);
    p.scalar(at, fmt::format("loss/validation_t{:03}", std::lround(t * 1000)), loss);
  }
  p.tell(json);
  p.flush_events();
}

void RunLog::sample(const RunSample& s) {
  Parts& p = *parts_;
  Json json = p.event("sample");
  json["step"] = s.step;
  json["epoch"] = s.epoch;
  json["index"] = s.index;
  json["file"] = p.shown_path(s.file);
  json["prompt"] = s.prompt;
  json["seed"] = s.seed;
  p.tell(json);
  if (!p.events) return;
  p.guarded([&] {
    const Image image = to_rgb(read_image(s.file));
    const auto png = encode_png(image);
    p.events->add(image_event({p.now(), s.step}, fmt::format("sample/{}", s.index), {image.width, image.height, png}));
  });
  p.flush_events();
}

void RunLog::checkpoint(const RunCheckpoint& c) {
  Parts& p = *parts_;
  Json json = p.event("checkpoint");
  json["step"] = c.step;
  json["epoch"] = c.epoch;
  json["file"] = p.shown_path(c.file);
  json["sha256"] = c.sha256;
  json["bytes"] = c.bytes;
  p.tell(json);
}

void RunLog::state(const RunState& s) {
  Parts& p = *parts_;
  Json json = p.event("state");
  json["step"] = s.step;
  json["epoch"] = s.epoch;
  json["folder"] = p.shown_path(s.folder);
  p.tell(json);
}

void RunLog::removed(const RunRemoval& r) {
  Json json = parts_->event("removed");
  json["step"] = r.step;
  json["file"] = parts_->shown_path(r.file);
  parts_->tell(json);
}

void RunLog::warning(const RunWarning& w) {
  Json json = parts_->event("warning");
  json["step"] = w.step;
  json["text"] = w.text;
  parts_->tell(json);
  parts_->options.log.warn("{}", w.text);
}

void RunLog::end(const RunEnd& e) {
  Parts& p = *parts_;
  Json json = p.event("end");
  json["reason"] = name_of(e.reason);
  json["step"] = e.step;
  if (!e.message.empty()) json["message"] = e.message;
  json["elapsed_s"] = rounded(elapsed_s());
  p.tell(json);
  p.flush_events();
  if (p.options.report) p.guarded([&] { write_report(p.history, p.options.output_dir, report_path()); });
}

const LossWindow& RunLog::losses() const { return parts_->options.losses; }

double RunLog::elapsed_s() const {
  return parts_->options.elapsed_s + std::chrono::duration<double>(std::chrono::steady_clock::now() - parts_->begun).count();
}

const RunHistory& RunLog::history() const { return parts_->history; }
fs::path RunLog::jsonl_path() const { return parts_->names.log(); }
fs::path RunLog::report_path() const { return parts_->names.report(); }
fs::path RunLog::event_file_path() const { return parts_->events ? parts_->events->path() : fs::path(); }

}  // namespace flux2
