#include "train/host_activations.h"

#include "base/start_thread.h"

namespace flux2 {

namespace {

constexpr size_t kLeaving = 2, kFetchedAhead = 2;

}  // namespace

// Where one tensor is. Changed by the thread that trains; the other one writes only what is marked.
struct HostActivations::Entry {
  Tensor device, host;
  DType dtype = DType::F32;
  Shape shape;
  size_t place = 0;     // in order_
  bool left = false;    // it is in host memory (set by the copying thread)
  bool coming = false;  // `device` is memory for its return
  bool back = false;    // it has returned (set by the copying thread)
  std::shared_ptr<void> ready;
};

HostActivations::HostActivations(const std::shared_ptr<Stream>& stream, Copies copies) : stream_(stream), copies_(copies) {
  if (copies_ == Copies::Counted) return;
  copy_stream_ = stream->device().open_stream();
  thread_ = start_thread("keeping activations", [this] { run(); });
}

HostActivations::~HostActivations() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::function<Tensor()> HostActivations::keep(const Tensor& x) {
  if (leaving_.size() == kLeaving) {
    await(leaving_.front()->left);
    leaving_.front()->device = {};
    leaving_.pop_front();
  }
  while (!order_.empty() && order_.back().expired()) order_.pop_back();  // of the pass before
  auto entry = std::make_shared<Entry>();
  entry->device = x.contiguous();
  entry->dtype = x.dtype();
  entry->shape = x.shape();
  entry->place = order_.size();
  order_.push_back(entry);
  leaving_.push_back(entry);
  enqueue({entry, true, stream_->mark()});
  return [this, entry] { return take(entry); };
}

Tensor HostActivations::take(const std::shared_ptr<Entry>& entry) {
  Tensor x;
  if (entry->device.defined() && !entry->coming) {
    x = entry->device;  // among the last ones: it is still there
    await(entry->left);
    const std::lock_guard lock(mutex_);
    if (entry->host.defined()) free_.emplace(entry->host.bytes(), std::move(entry->host));
  } else {
    if (!entry->coming) fetch(entry);
    await(entry->back);
    stream_->wait_for(entry->ready);
    x = entry->device;
  }
  std::erase(leaving_, entry);
  entry->device = {};
  for (size_t i = 0, place = entry->place; i < kFetchedAhead && place > 0; ++i)
    if (const auto next = order_[--place].lock(); next && !next->device.defined() && !next->back) fetch(next);
  return x;
}

void HostActivations::fetch(const std::shared_ptr<Entry>& entry) {
  entry->device = Tensor::empty(*stream_, entry->dtype, entry->shape);
  entry->coming = true;
  enqueue({entry, false, stream_->mark()});
}

void HostActivations::enqueue(Job job) {
  if (copies_ == Copies::Counted) {
    (job.to_host ? job.entry->left : job.entry->back) = true;
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void HostActivations::await(const bool& done) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

void HostActivations::run() {
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
      if (stop_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    try {
      copy(job);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
    changed_.notify_all();
  }
}

void HostActivations::copy(const Job& job) {
  Entry& entry = *job.entry;
  copy_stream_->wait_for(job.after);
  const int64_t bytes = bytes_for(entry.dtype, entry.shape.numel());
  if (job.to_host) {
    entry.host = host_memory(bytes);
    copy_stream_->download(entry.host.raw(), entry.device.raw(), static_cast<size_t>(bytes));
    const std::lock_guard lock(mutex_);
    entry.left = true;
    return;
  }
  copy_stream_->upload(entry.device.raw(), entry.host.raw(), static_cast<size_t>(bytes));
  auto ready = copy_stream_->mark();
  const std::lock_guard lock(mutex_);
  free_.emplace(bytes, std::move(entry.host));
  entry.ready = std::move(ready);
  entry.back = true;
}

// Memory is used again in the next step: fresh pages would cost more time than the copies.
Tensor HostActivations::host_memory(int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = free_.find(bytes); found != free_.end()) {
      Tensor memory = std::move(found->second);
      free_.erase(found);
      return memory;
    }
    host_bytes_ += bytes;
  }
  return Tensor::host_empty(DType::U8, {bytes});
}

int64_t HostActivations::host_bytes() const {
  const std::lock_guard lock(mutex_);
  return host_bytes_;
}

}  // namespace flux2
