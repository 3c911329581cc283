// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Memories that no kernel can read or write: instructions of the tests themselves.

#ifndef ASCEND_SIM_PEEK_H
#define ASCEND_SIM_PEEK_H

#include "example.h"

namespace example {

using Value = double (*)(size_t);

struct Peek {
    uint64_t bytes;
    Value value;
};

// Bytes of an on-chip memory to GM, whether they are defined or not.
inline void peek_bytes(ascend_twin::Mem mem, uint64_t addr, uint64_t to, uint64_t bytes,
                       ascend_twin::Peer peer = ascend_twin::Peer::Self, ascend_twin::Site site = ascend_twin::Site::here())
{
    using namespace ascend_twin;
    Instr i;
    i.api = "peek";
    i.site = site;
    i.pipe = Pipe::MTE3;
    Operand &s = i.add("src", Use::Read, mem, Region{addr, bytes, 0, 0, 1, 1});
    s.strict = false;
    s.align = 1;
    s.peer = peer;
    i.add("dst", Use::Write, Mem::GM, Region{to, bytes, 0, 0, 1, 1});
    i.put(Peek{bytes, nullptr});
    i.effect = [](Exec &x, const Instr &instr) { memcpy(x.at(instr.operand[1]), x.at(instr.operand[0]), instr.get<Peek>().bytes); };
    i.taint = [](Exec &x, const Instr &instr) { x.define(Mem::GM, instr.operand[1].region.addr, instr.get<Peek>().bytes, true); };
    issue(i);
}

template <class T> void peek(const AscendC::GlobalTensor<T> &g, const AscendC::LocalTensor<T> &l, uint32_t count,
                             ascend_twin::Site site = ascend_twin::Site::here())
{
    peek_bytes(l.twin_mem(), l.twin_addr(), g.twin_addr(), count * ascend_twin::ElementBits<T>::value / 8, ascend_twin::Peer::Self, site);
}

// A byte per byte of the tensor: 1 where it is defined.
template <class T> void peek_defined(const AscendC::GlobalTensor<uint8_t> &g, const AscendC::LocalTensor<T> &l, uint32_t bytes,
                                     ascend_twin::Site site = ascend_twin::Site::here())
{
    using namespace ascend_twin;
    Instr i;
    i.api = "peek";
    i.site = site;
    i.pipe = Pipe::MTE3;
    Operand &s = i.add("src", Use::Read, l.twin_mem(), Region{l.twin_addr(), bytes, 0, 0, 1, 1});
    s.strict = false;
    s.align = 1;
    i.add("dst", Use::Write, Mem::GM, Region{g.twin_addr(), bytes, 0, 0, 1, 1});
    i.put(Peek{bytes, nullptr});
    i.effect = [](Exec &x, const Instr &instr) {
        const Operand &from = instr.operand[0];
        for (uint64_t b = 0; b < instr.get<Peek>().bytes; b++) {
            x.at(instr.operand[1])[b] = x.defined(from.mem, from.region.addr + b, 1) ? 1 : 0;
        }
    };
    i.taint = [](Exec &x, const Instr &instr) { x.define(Mem::GM, instr.operand[1].region.addr, instr.get<Peek>().bytes, true); };
    issue(i);
}

// Values by a function of the index, written to any memory.
template <class T> void poke(const AscendC::LocalTensor<T> &l, uint32_t count, Value f, ascend_twin::Site site = ascend_twin::Site::here())
{
    using namespace ascend_twin;
    Instr i;
    i.api = "poke";
    i.site = site;
    i.pipe = is_cube() ? Pipe::M : Pipe::V;
    i.add("dst", Use::Write, l.twin_mem(), Region{l.twin_addr(), count * sizeof(T), 0, 0, 1, 1}).align = 1;
    i.put(Peek{count, f});
    i.effect = [](Exec &x, const Instr &instr) {
        uint8_t *to = x.at(instr.operand[0]);
        for (uint64_t k = 0; k < instr.get<Peek>().bytes; k++) {
            const T v = static_cast<T>(instr.get<Peek>().value(k));
            memcpy(to + k * sizeof(T), &v, sizeof(T));
        }
    };
    issue(i);
}

} // namespace example

#endif
