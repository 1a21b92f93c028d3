// Threads and memory.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <new>

#include "tile.h"
#include "xla/ffi/api/ffi.h"

namespace jaxcnn {

namespace ffi = xla::ffi;

// Calls f(share) for each share, on XLA's own threads, and returns when all are done.
//
// Whoever is free takes the next share, the caller too: it waits for none but shares that have begun, so callers that hold all of the pool's
// threads do not wait for one another.
template <class F>
void InParallel(ffi::ThreadPool& pool, Index shares, F f) {
  struct State {
    std::atomic<Index> next{0};
    std::mutex mutex;
    std::condition_variable all;
    Index done = 0;
  };
  auto state = std::make_shared<State>();
  auto work = [state, shares, f] {
    for (Index share; (share = state->next.fetch_add(1)) < shares;) {
      f(share);
      std::lock_guard<std::mutex> lock(state->mutex);
      if (++state->done == shares) state->all.notify_all();
    }
  };
  for (Index helper = 1; helper < std::min<Index>(pool.num_threads(), shares); ++helper) pool.Schedule(std::function<void()>(work));
  work();
  std::unique_lock<std::mutex> lock(state->mutex);
  state->all.wait(lock, [&] { return state->done == shares; });
}

inline Index Threads(const ffi::ThreadPool& pool) { return std::max<Index>(1, pool.num_threads()); }

// Numbers that are not yet any, a cache line apart from others.
class Numbers {
 public:
  explicit Numbers(Index count) : numbers_(static_cast<float*>(std::aligned_alloc(64, (count * 4 + 127) / 64 * 64))) {
    if (!numbers_) throw std::bad_alloc();
  }
  operator float*() const { return numbers_.get(); }

 private:
  struct Free {
    void operator()(float* numbers) const { std::free(numbers); }
  };
  std::unique_ptr<float, Free> numbers_;
};

}  // namespace jaxcnn
