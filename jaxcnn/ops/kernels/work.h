// Parallel work on XLA's threads, and aligned memory.
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

// Tells the processor that the calling thread is spinning.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

inline Index ThreadCount(const ffi::ThreadPool& pool) {
  return std::max<Index>(1, pool.num_threads());
}

// The number of shares to divide the work into: several per thread, so that no thread has to wait
// long for another, but each large enough to be worth waking a thread.
inline Index ShareCount(const ffi::ThreadPool& pool, Index units, Index work_per_unit = 1 << 20) {
  constexpr Index kMinWork = 1 << 14;  // of a share
  const Index worth_waking = units * work_per_unit / kMinWork;
  return std::max<Index>(1, std::min({units, 8 * ThreadCount(pool), worth_waking}));
}

// Calls f(share) for each share on XLA's threads, and returns when all calls have ended.
//
// Every free thread takes the next share, the calling thread included. The caller only waits for
// shares that have begun, so that callers which occupy all threads of the pool do not wait for one
// another. It spins for a while before it sleeps, because waking it takes longer than most shares.
// The first exception of any share is rethrown when all have ended.
template <class F>
void ParallelFor(ffi::ThreadPool& pool, Index shares, F f) {
  constexpr int kSpins = 10000;  // tens to hundreds of microseconds, depending on the processor
  struct State {
    std::atomic<Index> next{0}, done{0};
    std::mutex mutex;
    std::condition_variable all_done;
    std::exception_ptr exception;
  };
  auto state = std::make_shared<State>();
  auto work = [state, shares, f] {
    for (Index share; (share = state->next.fetch_add(1)) < shares;) {
      std::exception_ptr exception;
      try {
        f(share);
      } catch (...) {
        exception = std::current_exception();
      }
      if (exception) {
        std::lock_guard<std::mutex> lock(state->mutex);
        if (!state->exception) state->exception = exception;
      }
      if (state->done.fetch_add(1) + 1 == shares) {
        std::lock_guard<std::mutex> lock(state->mutex);
        state->all_done.notify_all();
      }
    }
  };
  for (Index helper = 1; helper < std::min<Index>(pool.num_threads(), shares); ++helper)
    pool.Schedule(std::function<void()>(work));
  work();
  for (int spin = 0; spin < kSpins && state->done.load() < shares; ++spin) Pause();
  std::unique_lock<std::mutex> lock(state->mutex);
  state->all_done.wait(lock, [&] { return state->done.load() == shares; });
  if (state->exception) std::rethrow_exception(state->exception);
}

// Uninitialized memory for a number of floats, aligned to a cache line.
class Buffer {
 public:
  explicit Buffer(Index count) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, count * sizeof(float) + 64)) throw std::bad_alloc();
    data_.reset(static_cast<float*>(memory));
  }
  operator float*() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };
  std::unique_ptr<float, Free> data_;
};

}  // namespace jaxcnn
