// Threads and memory.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
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
// threads do not wait for one another. The first exception of any is the caller's, when all are done.
template <class F>
void InParallel(ffi::ThreadPool& pool, Index shares, F f) {
  struct State {
    std::atomic<Index> next{0};
    std::mutex mutex;
    std::condition_variable all;
    Index done = 0;
    std::exception_ptr failed;
  };
  auto state = std::make_shared<State>();
  auto work = [state, shares, f] {
    for (Index share; (share = state->next.fetch_add(1)) < shares;) {
      std::exception_ptr failed;
      try {
        f(share);
      } catch (...) {
        failed = std::current_exception();
      }
      std::lock_guard<std::mutex> lock(state->mutex);
      if (!state->failed) state->failed = failed;
      if (++state->done == shares) state->all.notify_all();
    }
  };
  for (Index helper = 1; helper < std::min<Index>(pool.num_threads(), shares); ++helper) pool.Schedule(std::function<void()>(work));
  work();
  std::unique_lock<std::mutex> lock(state->mutex);
  state->all.wait(lock, [&] { return state->done == shares; });
  if (state->failed) std::rethrow_exception(state->failed);
}

inline Index Threads(const ffi::ThreadPool& pool) { return std::max<Index>(1, pool.num_threads()); }

// Room for so many numbers, at the beginning of a cache line.
class Numbers {
 public:
  explicit Numbers(Index count) {
    void* room = nullptr;
    if (posix_memalign(&room, 64, count * sizeof(float) + 64)) throw std::bad_alloc();
    numbers_.reset(static_cast<float*>(room));
  }
  operator float*() const { return numbers_.get(); }

 private:
  struct Free {
    void operator()(float* numbers) const { std::free(numbers); }
  };
  std::unique_ptr<float, Free> numbers_;
};

}  // namespace jaxcnn
