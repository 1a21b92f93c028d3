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

// Tells the processor that a loop only waits.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

inline Index Threads(const ffi::ThreadPool& pool) { return std::max<Index>(1, pool.num_threads()); }

// Into how many shares work is cut: so many that none is waited for long, each worth a thread's waking.
inline Index Shares(const ffi::ThreadPool& pool, Index units, Index numbers_of_a_unit = 1 << 20) {
  constexpr Index kWorth = 1 << 14;
  return std::max<Index>(1, std::min({units, 8 * Threads(pool), units * numbers_of_a_unit / kWorth}));
}

// Calls f(share) for each share, on XLA's own threads, and returns when all are done.
//
// Whoever is free takes the next share, the caller too: it waits for none but shares that have begun, so callers that hold all of the pool's
// threads do not wait for one another. It looks for their end a while before it sleeps, as waking it takes longer than most of them. The first
// exception of any is the caller's, when all are done.
template <class F>
void InParallel(ffi::ThreadPool& pool, Index shares, F f) {
  constexpr int kLooks = 10000;  // tens to hundreds of microseconds, by processor
  struct State {
    std::atomic<Index> next{0}, done{0};
    std::mutex mutex;
    std::condition_variable all;
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
      if (failed) {
        std::lock_guard<std::mutex> lock(state->mutex);
        if (!state->failed) state->failed = failed;
      }
      if (state->done.fetch_add(1) + 1 == shares) {
        std::lock_guard<std::mutex> lock(state->mutex);
        state->all.notify_all();
      }
    }
  };
  for (Index helper = 1; helper < std::min<Index>(pool.num_threads(), shares); ++helper) pool.Schedule(std::function<void()>(work));
  work();
  for (int look = 0; look < kLooks && state->done.load() < shares; ++look) Pause();
  std::unique_lock<std::mutex> lock(state->mutex);
  state->all.wait(lock, [&] { return state->done.load() == shares; });
  if (state->failed) std::rethrow_exception(state->failed);
}

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
