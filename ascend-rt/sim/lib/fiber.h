// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Stackful coroutines, one per simulated core. All fibers of a launch run on the thread that runs the launch.

#ifndef ASCEND_TWIN_FIBER_H
#define ASCEND_TWIN_FIBER_H

#include <stddef.h>

namespace ascend_twin {

class Fiber {
public:
    Fiber() = default;
    ~Fiber();
    Fiber(const Fiber &) = delete;
    Fiber &operator=(const Fiber &) = delete;

    // `entry` must never return; it leaves by `suspend`.
    void start(void (*entry)(void *), void *data);
    // Runs it until it suspends.
    void resume();
    // From inside: back to whoever resumed it.
    void suspend();

    static constexpr size_t kStack = 512 * 1024;

    // What the entry is called with.
    void (*entry_)(void *) = nullptr;
    void *data_ = nullptr;

private:
    void *stack_ = nullptr;
    void *own_ = nullptr; // saved context of the fiber
    void *caller_ = nullptr; // saved context of the resumer
};

} // namespace ascend_twin

#endif
