// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Places operands of vector calls in the unified buffer and takes results out, without the copy calls of the API.

#ifndef ASCEND_SIM_EXAMPLE_VECTOR_H
#define ASCEND_SIM_EXAMPLE_VECTOR_H

#include "example.h"

namespace example {

class Bench {
public:
    explicit Bench(Scratch &gm) : gm_(gm) {}
    // Memory that nothing was written to.
    template <class T> AscendC::LocalTensor<T> room(uint32_t count)
    {
        AscendC::LocalTensor<T> t(AscendC::TPosition::VECCALC, next_, count);
        next_ += (static_cast<uint32_t>(ascend_twin::bytes_of<T>(count)) + 255) / 256 * 256;
        return t;
    }
    template <class T, class F>
    AscendC::LocalTensor<T> fill(uint32_t count, F f, ascend_twin::Site site = ascend_twin::Site::here())
    {
        return load(gm_.fill<T>(count, f), count, site);
    }
    template <class T>
    AscendC::LocalTensor<T> in(std::initializer_list<double> values, ascend_twin::Site site = ascend_twin::Site::here())
    {
        return load(gm_.in<T>(values), static_cast<uint32_t>(values.size()), site);
    }
    // The first `count` elements, in GM.
    template <class T>
    AscendC::GlobalTensor<T> out(const AscendC::LocalTensor<T> &t, uint32_t count, ascend_twin::Site site = ascend_twin::Site::here())
    {
        auto g = gm_.out<T>(count);
        finish(site);
        move(ascend_twin::Pipe::MTE3, ascend_twin::Mem::UB, t.twin_addr(), ascend_twin::Mem::GM, g.twin_addr(), count * sizeof(T), site);
        finish(site);
        return g;
    }

private:
    struct Bytes {
        uint64_t bytes;
    };
    template <class T>
    AscendC::LocalTensor<T> load(const AscendC::GlobalTensor<T> &g, uint32_t count, ascend_twin::Site site)
    {
        auto t = room<T>(count);
        move(ascend_twin::Pipe::MTE2, ascend_twin::Mem::GM, g.twin_addr(), ascend_twin::Mem::UB, t.twin_addr(), count * sizeof(T), site);
        finish(site);
        return t;
    }
    static void move(ascend_twin::Pipe pipe, ascend_twin::Mem from, uint64_t at, ascend_twin::Mem to, uint64_t at_to, uint64_t bytes,
                     ascend_twin::Site site)
    {
        using namespace ascend_twin;
        Instr i;
        i.api = "move";
        i.site = site;
        i.pipe = pipe;
        Operand &s = i.add("src", Use::Read, from, Region{at, bytes, 0, 0, 1, 1});
        s.strict = false;
        s.align = 1;
        i.add("dst", Use::Write, to, Region{at_to, bytes, 0, 0, 1, 1}).align = 1;
        i.put(Bytes{bytes});
        i.effect = [](Exec &x, const Instr &in) { memmove(x.at(in.operand[1]), x.at(in.operand[0]), in.get<Bytes>().bytes); };
        i.taint = [](Exec &x, const Instr &in) {
            const Operand &f = in.operand[0], &t = in.operand[1];
            x.define_like(t.mem, t.region.addr, f.mem, f.region.addr, in.get<Bytes>().bytes);
        };
        issue(i);
    }

    Scratch &gm_;
    uint32_t next_ = 0;
};

} // namespace example

#endif
