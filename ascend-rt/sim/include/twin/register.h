// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the generated wrapper around a kernel's source uses to describe its entries:
//
//   #include "/path/kernel.cpp"
//   #include "twin/register.h"
//   ASCEND_TWIN_BEGIN
//   ASCEND_TWIN_KERNEL(my_kernel, ASCEND_TWIN_MIX_1_2)
//   ASCEND_TWIN_END

#ifndef ASCEND_TWIN_REGISTER_H
#define ASCEND_TWIN_REGISTER_H

#include <utility>

#include "machine.h"

namespace ascend_twin {

struct Entry {
    AscendTwinKernel kernel;
    void (*call)(const uint8_t *args);
};

// Defined by the library.
const AscendTwinImage *make_image(const Entry *entries, size_t count, uint32_t arch);

template <class... A> struct Parameters {
    static constexpr size_t kCount = sizeof...(A);
    // Every parameter lies at the next multiple of its alignment, as in a C struct; the block's length is that struct's.
    static const AscendTwinParameter *table(uint32_t &bytes)
    {
        static AscendTwinParameter all[kCount + 1];
        uint32_t at = 0, i = 0, most = 1;
        auto one = [&](uint32_t size, uint32_t align, bool pointer) {
            at = (at + align - 1) / align * align;
            all[i++] = AscendTwinParameter{at, size, pointer ? 1u : 0u};
            at += size;
            most = align > most ? align : most;
        };
        (one(sizeof(A), alignof(A), std::is_pointer<A>::value), ...);
        bytes = (at + most - 1) / most * most;
        return all;
    }
    template <size_t... I>
    static void call(void (*f)(A...), const uint8_t *args, std::index_sequence<I...>)
    {
        uint32_t bytes = 0;
        const AscendTwinParameter *p = table(bytes);
        (void)p;
        (void)args;
        f(load<A>(args + p[I].offset)...);
    }
    template <class T> static T load(const uint8_t *from)
    {
        alignas(T) unsigned char raw[sizeof(T)];
        memcpy(raw, from, sizeof(T));
        return *reinterpret_cast<T *>(raw);
    }
};

template <class F> struct Describe;
template <class... A> struct Describe<void (*)(A...)> {
    using P = Parameters<std::remove_cv_t<A>...>;
};

#define ASCEND_TWIN_BEGIN                                                                                              \
    static const ::ascend_twin::Entry *ascend_twin_entries(size_t &count)                                              \
    {                                                                                                                  \
        static ::ascend_twin::Entry all[256];                                                                          \
        static size_t n = 0;                                                                                           \
        if (n == 0) {

#define ASCEND_TWIN_KERNEL(entry, task_kind)                                                                           \
    {                                                                                                                  \
        using P = typename ::ascend_twin::Describe<decltype(&entry)>::P;                                               \
        if (n == sizeof(all) / sizeof(all[0])) {                                                                       \
            __builtin_trap(); /* an image has at most 256 kernels */                                                   \
        }                                                                                                              \
        ::ascend_twin::Entry &e = all[n++];                                                                            \
        e.kernel.name = #entry;                                                                                        \
        e.kernel.task = task_kind;                                                                                     \
        e.kernel.parameters = P::table(e.kernel.args_bytes);                                                           \
        e.kernel.parameter_count = P::kCount;                                                                          \
        e.call = [](const uint8_t *args) { P::call(&entry, args, std::make_index_sequence<P::kCount>()); };            \
    }

#define ASCEND_TWIN_END                                                                                                \
    }                                                                                                                  \
    count = n;                                                                                                         \
    return all;                                                                                                        \
    }                                                                                                                  \
    extern "C" __attribute__((visibility("default"))) const AscendTwinImage *ascend_twin_image(void)                   \
    {                                                                                                                  \
        size_t count = 0;                                                                                              \
        const ::ascend_twin::Entry *entries = ascend_twin_entries(count);                                              \
        return ::ascend_twin::make_image(entries, count, __NPU_ARCH__);                                                \
    }

} // namespace ascend_twin

#endif
