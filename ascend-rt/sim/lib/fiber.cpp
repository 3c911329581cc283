// SPDX-License-Identifier: MIT OR Apache-2.0

#include "fiber.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace ascend_twin {

namespace {

// Stacks that ended fibers of this thread left behind: mapping one costs more than a short kernel.
struct Stacks {
    std::vector<void *> free;
    ~Stacks()
    {
        for (void *s : free) {
            munmap(s, Fiber::kStack);
        }
    }
};
thread_local Stacks stacks;

void *take_stack()
{
    if (!stacks.free.empty()) {
        void *s = stacks.free.back();
        stacks.free.pop_back();
        return s;
    }
    void *s = mmap(nullptr, Fiber::kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s == MAP_FAILED) {
        fputs("ascend-sim: no memory for the stack of a core\n", stderr);
        abort();
    }
    // A kernel that recurses without end faults here and does not write over another stack.
    mprotect(s, static_cast<size_t>(sysconf(_SC_PAGESIZE)), PROT_NONE);
    return s;
}

} // namespace

#if defined(__x86_64__)

// Saves what the System V ABI lets a callee expect to be kept, puts the stack pointer into *from and goes on at `to`.
extern "C" void ascend_twin_switch(void **from, void *to);
__asm__(".text\n"
        ".p2align 4\n"
        ".hidden ascend_twin_switch\n"
        ".globl ascend_twin_switch\n"
        ".type ascend_twin_switch,@function\n"
        "ascend_twin_switch:\n"
        "  pushq %rbp\n"
        "  pushq %rbx\n"
        "  pushq %r12\n"
        "  pushq %r13\n"
        "  pushq %r14\n"
        "  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n"
        "  popq %r14\n"
        "  popq %r13\n"
        "  popq %r12\n"
        "  popq %rbx\n"
        "  popq %rbp\n"
        "  ret\n"
        ".size ascend_twin_switch,.-ascend_twin_switch\n");

#elif defined(__aarch64__)

extern "C" void ascend_twin_switch(void **from, void *to);
__asm__(".text\n"
        ".p2align 2\n"
        ".hidden ascend_twin_switch\n"
        ".globl ascend_twin_switch\n"
        ".type ascend_twin_switch,%function\n"
        "ascend_twin_switch:\n"
        "  sub sp, sp, #160\n"
        "  stp x19, x20, [sp, #0]\n"
        "  stp x21, x22, [sp, #16]\n"
        "  stp x23, x24, [sp, #32]\n"
        "  stp x25, x26, [sp, #48]\n"
        "  stp x27, x28, [sp, #64]\n"
        "  stp x29, x30, [sp, #80]\n"
        "  stp d8, d9, [sp, #96]\n"
        "  stp d10, d11, [sp, #112]\n"
        "  stp d12, d13, [sp, #128]\n"
        "  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n"
        "  str x9, [x0]\n"
        "  mov sp, x1\n"
        "  ldp x19, x20, [sp, #0]\n"
        "  ldp x21, x22, [sp, #16]\n"
        "  ldp x23, x24, [sp, #32]\n"
        "  ldp x25, x26, [sp, #48]\n"
        "  ldp x27, x28, [sp, #64]\n"
        "  ldp x29, x30, [sp, #80]\n"
        "  ldp d8, d9, [sp, #96]\n"
        "  ldp d10, d11, [sp, #112]\n"
        "  ldp d12, d13, [sp, #128]\n"
        "  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n"
        "  ret\n"
        ".size ascend_twin_switch,.-ascend_twin_switch\n");

#endif

namespace {

// The fiber that is being entered for the first time: its first code takes it from here.
thread_local Fiber *entering = nullptr;

[[noreturn]] void first()
{
    Fiber *f = entering;
    f->entry_(f->data_);
    abort();
}

} // namespace

#if defined(__x86_64__) || defined(__aarch64__)

void Fiber::start(void (*entry)(void *), void *data)
{
    entry_ = entry;
    data_ = data;
    if (stack_ == nullptr) {
        stack_ = take_stack();
    }
    auto top = reinterpret_cast<uintptr_t>(stack_) + kStack;
    top &= ~static_cast<uintptr_t>(15);
#if defined(__x86_64__)
    auto *sp = reinterpret_cast<uint64_t *>(top);
    // At its first instruction a function expects the stack to be 8 beyond a multiple of 16, as after a call.
    *--sp = 0;
    *--sp = reinterpret_cast<uint64_t>(&first);
    for (int i = 0; i < 6; i++) {
        *--sp = 0;
    }
    own_ = sp;
#else
    auto *sp = reinterpret_cast<uint64_t *>(top) - 20;
    for (int i = 0; i < 20; i++) {
        sp[i] = 0;
    }
    sp[11] = reinterpret_cast<uint64_t>(&first); // x30
    own_ = sp;
#endif
}

void Fiber::resume()
{
    entering = this;
    ascend_twin_switch(&caller_, own_);
}

void Fiber::suspend() { ascend_twin_switch(&own_, caller_); }

Fiber::~Fiber()
{
    if (stack_ != nullptr) {
        stacks.free.push_back(stack_);
    }
}

#else

void Fiber::start(void (*entry)(void *), void *data)
{
    entry_ = entry;
    data_ = data;
    if (stack_ == nullptr) {
        stack_ = take_stack();
        own_ = new ucontext_t;
        caller_ = new ucontext_t;
    }
    auto *c = static_cast<ucontext_t *>(own_);
    getcontext(c);
    c->uc_stack.ss_sp = stack_;
    c->uc_stack.ss_size = kStack;
    c->uc_link = nullptr;
    makecontext(c, &first, 0);
}

void Fiber::resume()
{
    entering = this;
    swapcontext(static_cast<ucontext_t *>(caller_), static_cast<ucontext_t *>(own_));
}

void Fiber::suspend() { swapcontext(static_cast<ucontext_t *>(own_), static_cast<ucontext_t *>(caller_)); }

Fiber::~Fiber()
{
    if (stack_ != nullptr) {
        stacks.free.push_back(stack_);
        delete static_cast<ucontext_t *>(own_);
        delete static_cast<ucontext_t *>(caller_);
    }
}

#endif

} // namespace ascend_twin
