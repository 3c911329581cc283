// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Small programs on one core, each after a numeric example of the API's documentation:
//
//   EXAMPLE(brcb_half, "Brcb") {
//       auto src = gm.in<half>({...});            // in GM, defined
//       auto dst = gm.out<half>(16);              // in GM, zeroed
//       LocalTensor<half> a(TPosition::VECCALC, 0, 64); ...
//       finish();                                 // PipeBarrier<PIPE_ALL>
//       expect(dst, {1, 1, 1, ...});
//   }
//   EXAMPLES_END
//
// The word after the name is the page that the numbers come from. An example runs on a vector core; CUBE_EXAMPLE on a cube core;
// CORES_EXAMPLE on blocks of any kind. A page "!rule" means that the program must be stopped with that rule ("!a|b": with
// one of them; which side of a race is met first depends on the order). The first 1 MiB of
// its memory is a buffer, the second MiB a workspace, so CORES_EXAMPLEs agree on places by `gm.raw` in the same order.

#ifndef ASCEND_SIM_EXAMPLE_H
#define ASCEND_SIM_EXAMPLE_H

#include <cmath>
#include <cstdio>
#include <initializer_list>

#include "kernel_operator.h"
#include "twin/register.h"

namespace example {

// GM of an example, handed out piece by piece. Every piece starts at a multiple of 512 B.
class Scratch {
public:
    explicit Scratch(const uint8_t *args)
    {
        memcpy(&next_, args, sizeof(next_));
        base_ = next_;
    }
    template <class T> T *raw(size_t count)
    {
        T *p = reinterpret_cast<T *>(next_);
        next_ += (count * sizeof(T) + 511) / 512 * 512;
        return p;
    }
    template <class T, class V> AscendC::GlobalTensor<T> in(std::initializer_list<V> values)
    {
        T *p = raw<T>(values.size());
        size_t i = 0;
        for (V v : values) {
            p[i++] = static_cast<T>(v);
        }
        return tensor(p, values.size());
    }
    // Values by a function of the index.
    template <class T, class F> AscendC::GlobalTensor<T> fill(size_t count, F f)
    {
        T *p = raw<T>(count);
        for (size_t i = 0; i < count; i++) {
            p[i] = static_cast<T>(f(i));
        }
        return tensor(p, count);
    }
    template <class T> AscendC::GlobalTensor<T> out(size_t count)
    {
        T *p = raw<T>(count);
        memset(static_cast<void *>(p), 0, count * sizeof(T));
        return tensor(p, count);
    }
    template <class T> static AscendC::GlobalTensor<T> tensor(T *p, size_t count)
    {
        AscendC::GlobalTensor<T> t;
        t.SetGlobalBuffer(p, count);
        return t;
    }

    // The second MiB: a workspace.
    uint64_t workspace() const { return reinterpret_cast<uint64_t>(base_) + (1u << 20); }

private:
    uint8_t *next_;
    uint8_t *base_;
};

inline void finish(ascend_twin::Site site = ascend_twin::Site::here())
{
    ascend_twin::pipe_barrier(ascend_twin::Pipe::All, "finish", site);
}

template <class T> double number(T v) { return static_cast<double>(static_cast<float>(v)); }
inline double number(double v) { return v; }
inline double number(int32_t v) { return v; }
inline double number(uint32_t v) { return v; }
inline double number(int64_t v) { return static_cast<double>(v); }
inline double number(uint64_t v) { return static_cast<double>(v); }

// Compares what is in GM with values, from the first on; NaN equals NaN. `within` is absolute.
template <class T, class V>
void expect(const AscendC::GlobalTensor<T> &got, std::initializer_list<V> want, double within = 0,
            ascend_twin::Site site = ascend_twin::Site::here())
{
    if (!ascend_twin::effects()) {
        return;
    }
    const T *p = got.GetPhyAddr();
    size_t i = 0;
    for (V w : want) {
        double a = number(p[i]), b = number(w);
        if (!(a == b || (a != a && b != b) || std::fabs(a - b) <= within)) {
            ascend_twin::fail(ascend_twin::Rule::Assert, "expect", nullptr, site, "element %zu: expected %.9g, found %.9g", i, b, a);
        }
        i++;
    }
}

template <class T, class F>
void expect_each(const AscendC::GlobalTensor<T> &got, size_t count, F want, double within = 0,
                 ascend_twin::Site site = ascend_twin::Site::here())
{
    if (!ascend_twin::effects()) {
        return;
    }
    const T *p = got.GetPhyAddr();
    for (size_t i = 0; i < count; i++) {
        double a = number(p[i]), b = number(want(i));
        if (!(a == b || (a != a && b != b) || std::fabs(a - b) <= within)) {
            ascend_twin::fail(ascend_twin::Rule::Assert, "expect", nullptr, site, "element %zu: expected %.9g, found %.9g", i, b, a);
        }
    }
}

struct Listed {
    Listed(const char *name, const char *page, uint32_t task, uint32_t blocks, void (*call)(const uint8_t *))
        : name(name), page(page), task(task), blocks(blocks), call(call), next(first())
    {
        first() = this;
    }
    static Listed *&first()
    {
        static Listed *list = nullptr;
        return list;
    }
    const char *name;
    const char *page;
    uint32_t task;
    uint32_t blocks;
    void (*call)(const uint8_t *);
    Listed *next;
};

inline const AscendTwinImage *image()
{
    static ascend_twin::Entry entries[512];
    static AscendTwinParameter scratch{0, 8, 1};
    static size_t n = 0;
    if (n == 0) {
        for (Listed *l = Listed::first(); l != nullptr; l = l->next) {
            ascend_twin::Entry &e = entries[n++];
            // "name @ page @ blocks": the harness splits it.
            static char names[512][256];
            snprintf(names[n - 1], sizeof names[0], "%s @ %s @ %u", l->name, l->page, l->blocks);
            e.kernel.name = names[n - 1];
            e.kernel.task = l->task;
            e.kernel.args_bytes = 8;
            e.kernel.parameters = &scratch;
            e.kernel.parameter_count = 1;
            e.call = l->call;
        }
    }
    return ascend_twin::make_image(entries, n, __NPU_ARCH__);
}

} // namespace example

#define ASCEND_SIM_EXAMPLE(name, page, task, blocks)                                                                           \
    static void name(example::Scratch &gm);                                                                            \
    static example::Listed listed_##name(#name, page, task, blocks, [](const uint8_t *args) {                          \
        example::Scratch gm(args);                                                                                     \
        name(gm);                                                                                                      \
    });                                                                                                                \
    static void name([[maybe_unused]] example::Scratch &gm)

#define EXAMPLE(name, page) ASCEND_SIM_EXAMPLE(name, page, ASCEND_TWIN_AIV_ONLY, 1)
#define CUBE_EXAMPLE(name, page) ASCEND_SIM_EXAMPLE(name, page, ASCEND_TWIN_AIC_ONLY, 1)
#define CORES_EXAMPLE(name, page, task, blocks) ASCEND_SIM_EXAMPLE(name, page, task, blocks)

using namespace AscendC;
using example::expect;
using example::expect_each;
using example::finish;

#define EXAMPLES_END                                                                                                   \
    extern "C" __attribute__((visibility("default"))) const AscendTwinImage *ascend_twin_image(void)                   \
    {                                                                                                                  \
        return example::image();                                                                                       \
    }

#endif
