// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Comparison, selection, gathering, filling by blocks, quantisation, and the mask registers.

#include <math.h>

#include "vector_common.h"

namespace ascend_twin {

namespace {

uint32_t lanes_of(const VecArg &a) { return kRepeat * 8 / static_cast<uint32_t>(type_bits(a.type)); }

template <class T> bool holds(uint8_t mode, T a, T b)
{
    switch (static_cast<AscendC::CMPMODE>(mode)) {
    case AscendC::CMPMODE::LT:
        return a < b;
    case AscendC::CMPMODE::GT:
        return a > b;
    case AscendC::CMPMODE::EQ:
        return a == b;
    case AscendC::CMPMODE::LE:
        return a <= b;
    case AscendC::CMPMODE::GE:
        return a >= b;
    case AscendC::CMPMODE::NE:
        return a != b;
    }
    return false;
}

template <class T> T load(const uint8_t *p)
{
    T v;
    memcpy(&v, p, sizeof(T));
    return v;
}

bool compare_one(uint8_t type, uint8_t mode, const uint8_t *a, const uint8_t *b)
{
    switch (type) {
    case ASCEND_TWIN_F32:
        return holds(mode, load<float>(a), load<float>(b));
    case ASCEND_TWIN_F16:
        return holds(mode, f16_to_f32(load<uint16_t>(a)), f16_to_f32(load<uint16_t>(b)));
    case ASCEND_TWIN_BF16:
        return holds(mode, bf16_to_f32(load<uint16_t>(a)), bf16_to_f32(load<uint16_t>(b)));
    case ASCEND_TWIN_I8:
        return holds(mode, load<int8_t>(a), load<int8_t>(b));
    case ASCEND_TWIN_U8:
        return holds(mode, load<uint8_t>(a), load<uint8_t>(b));
    case ASCEND_TWIN_I16:
        return holds(mode, load<int16_t>(a), load<int16_t>(b));
    case ASCEND_TWIN_U16:
        return holds(mode, load<uint16_t>(a), load<uint16_t>(b));
    case ASCEND_TWIN_I32:
        return holds(mode, load<int32_t>(a), load<int32_t>(b));
    case ASCEND_TWIN_U32:
        return holds(mode, load<uint32_t>(a), load<uint32_t>(b));
    case ASCEND_TWIN_I64:
        return holds(mode, load<int64_t>(a), load<int64_t>(b));
    default:
        return holds(mode, load<uint64_t>(a), load<uint64_t>(b));
    }
}

struct CompareWork {
    uint8_t type;
    uint8_t mode;
    bool scalar;
    Shape shape;
    Track a, b;
    uint64_t dst;
    uint64_t value;
};

void run_compare(Exec &x, const Instr &in)
{
    const CompareWork &p = in.get<CompareWork>();
    uint8_t *ub = x.at(Mem::UB, 0);
    const Shape &s = p.shape;
    const uint8_t *value = reinterpret_cast<const uint8_t *>(&p.value);
    uint64_t bytes = (static_cast<uint64_t>(s.repeats) * s.lanes + s.tail) / 8;
    if (p.type == ASCEND_TWIN_F32 && p.a.row_dense() && (p.scalar || p.b.row_dense()) && s.full() && !p.b.single) {
        // The usual case, a byte of eight results at a time.
        float x8[8], y8[8];
        for (float &y : y8) {
            y = load<float>(value);
        }
        auto run = [&](auto holds_one) {
            for (uint64_t i = 0; i < bytes; i++) {
                uint32_t repeat = static_cast<uint32_t>(i * 8 / s.lanes), lane = static_cast<uint32_t>(i * 8 % s.lanes);
                memcpy(x8, ub + p.a.at(repeat, lane), 32);
                if (!p.scalar) {
                    memcpy(y8, ub + p.b.at(repeat, lane), 32);
                }
                uint32_t r = 0;
                for (uint32_t j = 0; j < 8; j++) {
                    r |= static_cast<uint32_t>(holds_one(x8[j], y8[j])) << j;
                }
                ub[p.dst + i] = static_cast<uint8_t>(r);
            }
        };
        switch (static_cast<AscendC::CMPMODE>(p.mode)) {
        case AscendC::CMPMODE::LT:
            return run([](float a, float b) { return a < b; });
        case AscendC::CMPMODE::GT:
            return run([](float a, float b) { return a > b; });
        case AscendC::CMPMODE::EQ:
            return run([](float a, float b) { return a == b; });
        case AscendC::CMPMODE::LE:
            return run([](float a, float b) { return a <= b; });
        case AscendC::CMPMODE::GE:
            return run([](float a, float b) { return a >= b; });
        case AscendC::CMPMODE::NE:
            return run([](float a, float b) { return a != b; });
        }
    }
    for (uint64_t i = 0; i < bytes; i++) {
        uint32_t r = 0;
        for (uint32_t j = 0; j < 8; j++) {
            uint32_t repeat = static_cast<uint32_t>((i * 8 + j) / s.lanes), lane = static_cast<uint32_t>((i * 8 + j) % s.lanes);
            if (s.on(repeat, lane)) {
                r |= static_cast<uint32_t>(compare_one(p.type, p.mode, ub + p.a.at(repeat, lane), p.scalar ? value : ub + p.b.at(repeat, lane))) << j;
            }
        }
        ub[p.dst + i] = static_cast<uint8_t>(r);
    }
}

void run_compare_register(Exec &x, const Instr &in)
{
    const CompareWork &p = in.get<CompareWork>();
    uint8_t *ub = x.at(Mem::UB, 0);
    CoreState &core = x.state();
    memset(core.cmpmask, 0, 16);
    for (uint32_t lane = 0; lane < p.shape.lanes; lane++) {
        if (p.shape.on(0, lane) && compare_one(p.type, p.mode, ub + p.a.at(0, lane), ub + p.b.at(0, lane))) {
            core.cmpmask[lane / 8] = static_cast<uint8_t>(core.cmpmask[lane / 8] | (1u << (lane % 8)));
        }
    }
    core.cmpmask_defined = true;
}

} // namespace

void vector_compare(const MoveCall &call)
{
    check_local(call.arg[0], "dst", call.api, call.site);
    check_local(call.arg[1], "src0", call.api, call.site);
    if (call.args > 2) {
        check_local(call.arg[2], "src1", call.api, call.site);
    }
    uint32_t lanes = lanes_of(call.arg[1]);
    CompareWork p{};
    VecMask mask = call.mask;
    bool count = mask.kind == VecMask::Count;
    if (count && mask.n * static_cast<int64_t>(type_bits(call.arg[1].type) / 8) % kRepeat != 0) {
        fail(Rule::Alignment, call.api, "count", call.site, "%lld elements take %lld bytes, which is no multiple of 256",
             static_cast<long long>(mask.n), static_cast<long long>(mask.n) * (type_bits(call.arg[1].type) / 8));
    }
    if (!count && arch() == 2201 && !state().counter_mode) {
        // The mask argument is reserved on this chip: all elements are compared.
        Shape ignored;
        if (!resolve(mask, lanes, call.api, call.site, ignored)) {
            return;
        }
        p.shape = ignored;
        p.shape.prefix = lanes;
        p.shape.bits[0] = p.shape.bits[1] = 0;
    } else if (!resolve(mask, lanes, call.api, call.site, p.shape)) {
        return;
    }
    if (p.shape.tail % 8 != 0) {
        fail(Rule::Alignment, call.api, "mask", call.site, "%llu elements do not fill whole bytes of the result",
             static_cast<unsigned long long>(p.shape.elements()));
    }
    for (int i = 1; !count && i < call.args; i++) {
        check_stride(call.arg[i].blk, call.n[0] == 0 ? 255 : 65535, "srcBlkStride", call.api, call.site);
        check_stride(call.arg[i].rep, 255, "srcRepStride", call.api, call.site);
    }
    p.type = call.arg[1].type;
    p.mode = call.mode;
    p.scalar = call.n[0] == 1;
    p.a = count ? flat_track(call.arg[1], lanes) : track(call.arg[1]);
    if (!p.scalar) {
        p.b = count ? flat_track(call.arg[2], lanes) : track(call.arg[2]);
    }
    p.value = call.scalar;
    p.dst = call.arg[0].addr;
    Instr in;
    vector_instr(in, call.api, call.site, p.type, static_cast<uint32_t>(type_bits(p.type)) / 8, p.shape.elements(), p.shape.rows());
    touch_run(in, "dst", Use::Write, call.arg[0], p.dst, (static_cast<uint64_t>(p.shape.repeats) * lanes + p.shape.tail) / 8);
    touch(in, p.scalar ? "src" : "src0", Use::Read, call.arg[1], p.a, p.shape);
    if (!p.scalar) {
        touch(in, "src1", Use::Read, call.arg[2], p.b, p.shape);
    }
    in.put(p);
    in.effect = run_compare;
    issue(in);
}

void vector_compare_register(const MoveCall &call)
{
    check_local(call.arg[0], "src0", call.api, call.site);
    check_local(call.arg[1], "src1", call.api, call.site);
    CompareWork p{};
    if (!resolve(call.mask, lanes_of(call.arg[0]), call.api, call.site, p.shape)) {
        return;
    }
    if (p.shape.rows() > 1) {
        fail(Rule::Range, call.api, "mask", call.site, "the comparison mask register holds the results of one repeat");
    }
    p.type = call.arg[0].type;
    p.mode = call.mode;
    p.a = track(call.arg[0]);
    p.b = track(call.arg[1]);
    Instr in;
    vector_instr(in, call.api, call.site, p.type, static_cast<uint32_t>(type_bits(p.type)) / 8, p.shape.elements(), 1);
    touch(in, "src0", Use::Read, call.arg[0], p.a, p.shape);
    touch(in, "src1", Use::Read, call.arg[1], p.b, p.shape);
    in.put(p);
    in.effect = run_compare_register;
    issue(in);
}

void vector_set_cmpmask(const MoveCall &call)
{
    check_local(call.arg[0], "src", call.api, call.site);
    Instr in;
    vector_instr(in, call.api, call.site, call.arg[0].type, 1, 16, 1);
    touch_run(in, "src", Use::Read, call.arg[0], call.arg[0].addr, call.arg[0].bytes < 16 && call.arg[0].bytes != 0 ? 8 : 16);
    in.effect = [](Exec &x, const Instr &i) {
        CoreState &core = x.state();
        memset(core.cmpmask, 0, 16);
        memcpy(core.cmpmask, x.at(i.operand[0]), static_cast<size_t>(i.operand[0].region.bytes));
        core.cmpmask_defined = true;
    };
    issue(in);
}

void vector_get_cmpmask(const MoveCall &call)
{
    check_local(call.arg[0], "dst", call.api, call.site);
    if (call.arg[0].bytes != 0 && call.arg[0].bytes < 128) {
        fail(Rule::Bounds, call.api, "dst", call.site, "the tensor has %llu bytes, it must have 128",
             static_cast<unsigned long long>(call.arg[0].bytes));
    }
    Instr in;
    vector_instr(in, call.api, call.site, call.arg[0].type, 1, 16, 1);
    touch_run(in, "dst", Use::Write, call.arg[0], call.arg[0].addr, 16);
    in.effect = [](Exec &x, const Instr &i) {
        if (!x.state().cmpmask_defined) {
            x.fail(Rule::ReadBeforeWrite, "the comparison mask register was never set");
        }
        memcpy(x.at(i.operand[0]), x.state().cmpmask, 16);
    };
    issue(in);
}

namespace {

struct SelectWork {
    uint8_t mode;
    bool reg; // the bits (mode 0) or the scalar (mode 1) are in the register
    bool tensor; // the second source
    Shape shape;
    Track dst, a, b;
    uint64_t mask;
    uint64_t value;
};

bool select_bit(Exec &x, const SelectWork &p, uint32_t repeat, uint32_t lane)
{
    bool same = p.mode == 0;
    uint64_t bit = same ? lane : static_cast<uint64_t>(repeat) * p.shape.lanes + lane;
    const uint8_t *bits = p.reg && same ? x.state().cmpmask : x.at(Mem::UB, p.mask + bit / 8) - bit / 8;
    return ((bits[bit / 8] >> (bit % 8)) & 1) != 0;
}

void run_select(Exec &x, const Instr &in)
{
    const SelectWork &p = in.get<SelectWork>();
    uint8_t *ub = x.at(Mem::UB, 0);
    const Shape &s = p.shape;
    size_t size = p.dst.bits / 8u;
    if (p.reg && !x.state().cmpmask_defined) {
        x.fail(Rule::ReadBeforeWrite, "the comparison mask register was never set");
    }
    uint64_t value = p.value;
    if (p.reg && p.mode == 1) {
        memcpy(&value, x.state().cmpmask, 8);
    }
    bool dense = p.dst.row_dense() && p.a.row_dense() && (!p.tensor || p.b.row_dense()) && (size == 4 || size == 2);
    for (uint32_t r = 0; r < s.rows(); r++) {
        uint32_t first = r < s.repeats ? s.prefix : s.tail;
        if (dense && first != 0) {
            const uint8_t *bits = p.reg && p.mode == 0 ? x.state().cmpmask : ub + p.mask + (p.mode == 0 ? 0 : r * (s.lanes / 8));
            uint8_t *to = ub + p.dst.at(r, 0);
            const uint8_t *a = ub + p.a.at(r, 0), *b = p.tensor ? ub + p.b.at(r, 0) : nullptr;
            auto run = [&](auto zero) {
                using T = decltype(zero);
                T fixed = load<T>(reinterpret_cast<const uint8_t *>(&value));
                for (uint32_t lane = 0; lane < first; lane++) {
                    T u = load<T>(a + lane * sizeof(T)), v = b != nullptr ? load<T>(b + lane * sizeof(T)) : fixed;
                    T chosen = (bits[lane / 8] >> (lane % 8)) & 1 ? u : v;
                    memcpy(to + lane * sizeof(T), &chosen, sizeof(T));
                }
            };
            size == 4 ? run(uint32_t{}) : run(uint16_t{});
            continue;
        }
        for (uint32_t lane = 0; lane < s.lanes; lane++) {
            if (!s.on(r, lane)) {
                continue;
            }
            const uint8_t *from = select_bit(x, p, r, lane) ? ub + p.a.at(r, lane)
                                  : p.tensor                ? ub + p.b.at(r, lane)
                                                            : reinterpret_cast<const uint8_t *>(&value);
            memcpy(ub + p.dst.at(r, lane), from, size);
        }
    }
}

// The chosen element decides; an undefined choice is an error.
void taint_select(Exec &x, const Instr &in)
{
    const SelectWork &p = in.get<SelectWork>();
    const Shape &s = p.shape;
    size_t size = p.dst.bits / 8u;
    for (uint32_t r = 0; r < s.rows(); r++) {
        for (uint32_t lane = 0; lane < s.lanes; lane++) {
            if (!s.on(r, lane)) {
                continue;
            }
            uint64_t bit = p.mode == 0 ? lane : static_cast<uint64_t>(r) * s.lanes + lane;
            if (!(p.reg && p.mode == 0) && !x.defined(Mem::UB, p.mask + bit / 8, 1)) {
                x.fail(Rule::Undefined, "the mask that chooses element %llu has no defined value", static_cast<unsigned long long>(bit));
            }
            bool known = select_bit(x, p, r, lane) ? x.defined(Mem::UB, p.a.at(r, lane), size)
                                                   : !p.tensor || x.defined(Mem::UB, p.b.at(r, lane), size);
            x.define(Mem::UB, p.dst.at(r, lane), size, known);
        }
    }
}

} // namespace

void vector_select(const MoveCall &call)
{
    bool reg = call.n[0] != 0;
    SelectWork p{};
    p.mode = call.mode;
    p.reg = reg;
    p.tensor = call.args == 4;
    if (call.mode > 2 || (p.tensor ? call.mode == 1 : call.mode != 1)) {
        fail(Rule::Usage, call.api, "selMode", call.site,
             p.tensor ? "two tensors are chosen from with VSEL_CMPMASK_SPR or VSEL_TENSOR_TENSOR_MODE"
                      : "a tensor and a scalar are chosen from with VSEL_TENSOR_SCALAR_MODE");
    }
    check_local(call.arg[0], "dst", call.api, call.site);
    check_local(call.arg[2], "src0", call.api, call.site);
    if (p.tensor) {
        check_local(call.arg[3], "src1", call.api, call.site);
    }
    uint32_t lanes = lanes_of(call.arg[0]);
    bool count = call.mask.kind == VecMask::Count;
    if (!resolve(call.mask, lanes, call.api, call.site, p.shape)) {
        return;
    }
    for (int i = 0; !count && i < 4; i++) {
        if (i != 1) {
            check_stride(call.arg[i].blk, 255, "blkStride", call.api, call.site);
            check_stride(call.arg[i].rep, 255, "repStride", call.api, call.site);
        }
    }
    p.dst = count ? flat_track(call.arg[0], lanes) : track(call.arg[0]);
    p.a = count ? flat_track(call.arg[2], lanes) : track(call.arg[2]);
    if (p.tensor) {
        p.b = count ? flat_track(call.arg[3], lanes) : track(call.arg[3]);
    }
    p.mask = call.arg[1].addr;
    p.value = call.scalar;
    const Shape &s = p.shape;
    Instr in;
    vector_instr(in, call.api, call.site, call.arg[0].type, p.dst.bits / 8u, s.elements(), s.rows());
    in.a[3] = call.mode;
    touch(in, "dst", Use::Write, call.arg[0], p.dst, s);
    if (!(reg && call.mode == 0)) {
        check_local(call.arg[1], "selMask", call.api, call.site);
        // The bits of the lanes that take part.
        if (call.mode == 0) {
            uint32_t last = s.repeats != 0 ? (s.prefix != 0 ? s.prefix : lanes) : s.tail;
            touch_run(in, "selMask", Use::Read, call.arg[1], p.mask, (last + 7) / 8);
        } else {
            uint32_t last = s.tail != 0 ? s.tail : s.prefix != 0 ? s.prefix : lanes;
            uint64_t bits = static_cast<uint64_t>(s.rows() - 1) * lanes + last;
            Operand &o = touch_run(in, "selMask", Use::Read, call.arg[1], p.mask, (bits + 7) / 8);
            o.strict = s.full(); // else lanes in between are skipped
        }
    }
    touch(in, "src0", Use::Read, call.arg[2], p.a, s, 0, false);
    if (p.tensor) {
        touch(in, "src1", Use::Read, call.arg[3], p.b, s, 0, false);
    }
    in.put(p);
    in.effect = run_select;
    in.taint = taint_select;
    issue(in);
}

namespace {

struct GatherWork {
    Shape shape;
    Track near; // the operand whose elements follow the lanes
    Track offsets;
    uint64_t far; // address of the other one
    uint64_t limit; // bytes of it
    uint64_t base;
    bool scatter;
};

uint64_t gather_at(Exec &x, const GatherWork &p, uint32_t r, uint32_t lane)
{
    uint32_t offset;
    memcpy(&offset, x.at(Mem::UB, p.offsets.at(r, lane)), 4);
    uint64_t at = p.base + offset, size = p.near.bits / 8u;
    if (at % size != 0) {
        x.fail(Rule::Alignment, "offset %llu of element %u is no multiple of the element's %llu bytes", static_cast<unsigned long long>(at),
               r * p.shape.lanes + lane, static_cast<unsigned long long>(size));
    }
    if (at + size > p.limit) {
        x.fail(Rule::Bounds, "offset %llu of element %u leaves the tensor, which has %llu bytes", static_cast<unsigned long long>(at),
               r * p.shape.lanes + lane, static_cast<unsigned long long>(p.limit));
    }
    return p.far + at;
}

template <class F> void each_lane(const Shape &s, F f)
{
    for (uint32_t r = 0; r < s.rows(); r++) {
        for (uint32_t lane = 0; lane < s.lanes; lane++) {
            if (s.on(r, lane)) {
                f(r, lane);
            }
        }
    }
}

void run_gather(Exec &x, const Instr &in)
{
    const GatherWork &p = in.get<GatherWork>();
    uint8_t *ub = x.at(Mem::UB, 0);
    size_t size = p.near.bits / 8u;
    auto run = [&](auto zero) {
        using T = decltype(zero);
        each_lane(p.shape, [&](uint32_t r, uint32_t lane) {
            uint64_t at = p.base + load<uint32_t>(ub + p.offsets.at(r, lane));
            if (at % sizeof(T) != 0 || at + sizeof(T) > p.limit) {
                gather_at(x, p, r, lane); // says what is wrong
            }
            uint8_t *near = ub + p.near.at(r, lane), *far = ub + p.far + at;
            p.scatter ? memcpy(far, near, sizeof(T)) : memcpy(near, far, sizeof(T));
        });
    };
    size == 1 ? run(uint8_t{}) : size == 2 ? run(uint16_t{}) : size == 4 ? run(uint32_t{}) : run(uint64_t{});
}

void taint_gather(Exec &x, const Instr &in)
{
    const GatherWork &p = in.get<GatherWork>();
    size_t size = p.near.bits / 8u;
    each_lane(p.shape, [&](uint32_t r, uint32_t lane) {
        if (!x.defined(Mem::UB, p.offsets.at(r, lane), 4)) {
            x.fail(Rule::Undefined, "the offset of element %u has no defined value", r * p.shape.lanes + lane);
        }
        uint64_t at = gather_at(x, p, r, lane), near = p.near.at(r, lane);
        if (p.scatter) {
            x.define(Mem::UB, at, size, x.defined(Mem::UB, near, size));
        } else {
            x.define(Mem::UB, near, size, x.defined(Mem::UB, at, size));
        }
    });
}

void gather(const MoveCall &call, bool scatter)
{
    int near = scatter ? 1 : 0, far = scatter ? 0 : 1;
    check_local(call.arg[0], "dst", call.api, call.site);
    check_local(call.arg[1], "src", call.api, call.site);
    check_local(call.arg[2], "offsets", call.api, call.site);
    uint32_t lanes = lanes_of(call.arg[near]);
    GatherWork p{};
    if (!resolve(call.mask, lanes, call.api, call.site, p.shape)) {
        return;
    }
    bool count = call.mask.kind == VecMask::Count;
    if (!count) {
        check_stride(call.arg[near].rep, scatter ? 255 : 65535, scatter ? "srcRepStride" : "dstRepStride", call.api, call.site);
    }
    uint64_t size = static_cast<uint64_t>(type_bits(call.arg[near].type)) / 8;
    if (static_cast<uint64_t>(call.n[0]) % size != 0) {
        fail(Rule::Alignment, call.api, scatter ? "dstBaseAddr" : "srcBaseAddr", call.site, "%lld is no multiple of the element's %llu bytes",
             static_cast<long long>(call.n[0]), static_cast<unsigned long long>(size));
    }
    p.near = count ? flat_track(call.arg[near], lanes) : track(call.arg[near]);
    p.offsets = track(call.arg[2]);
    p.offsets.rep = lanes * 4;
    p.far = call.arg[far].addr;
    p.base = static_cast<uint64_t>(call.n[0]);
    p.scatter = scatter;
    const VecArg &f = call.arg[far];
    uint64_t end = f.buffer.bytes != 0 ? f.buffer.base + f.buffer.bytes : capacity(Mem::UB);
    p.limit = f.bytes != 0 ? f.bytes : end > f.addr ? end - f.addr : 0;
    // A tensor that was cut from a buffer reaches to its end: what is touched of it ends at the latest where another operand
    // begins.
    uint64_t region = p.limit;
    for (int i = 0; i < 3; i++) {
        if (i != far && call.arg[i].addr > p.far && call.arg[i].addr - p.far < region) {
            region = call.arg[i].addr - p.far;
        }
    }
    check_apart(call.arg[near], p.near.at(p.shape.rows() - 1, lanes - 1) + size - p.near.addr, f, region, "src", call.api, call.site);
    Instr in;
    vector_instr(in, call.api, call.site, call.arg[near].type, static_cast<uint32_t>(size), p.shape.elements(), p.shape.rows());
    touch(in, scatter ? "src" : "dst", scatter ? Use::Read : Use::Write, call.arg[near], p.near, p.shape, 0, !scatter);
    touch(in, "offsets", Use::Read, call.arg[2], p.offsets, p.shape);
    // Which elements of the other one are touched is known when it runs.
    Operand &o = touch_run(in, scatter ? "dst" : "src", scatter ? Use::Update : Use::Read, f, p.far, region);
    o.strict = false;
    in.put(p);
    in.effect = run_gather;
    in.taint = taint_gather;
    issue(in);
}

} // namespace

void vector_gather(const MoveCall &call) { gather(call, false); }
void vector_scatter(const MoveCall &call) { gather(call, true); }

namespace {

struct BlocksWork {
    uint64_t dst, src, offsets;
    uint64_t limit;
    uint32_t blk, rep;
    uint32_t repeats;
    uint32_t size;
};

uint64_t block_at(Exec &x, const BlocksWork &p, uint32_t i)
{
    uint32_t offset;
    memcpy(&offset, x.at(Mem::UB, p.offsets + 4ull * i), 4);
    if ((p.src + offset) % kBlock != 0) {
        x.fail(Rule::Alignment, "offset %u of block %u does not lead to a multiple of 32 bytes", offset, i);
    }
    if (static_cast<uint64_t>(offset) + kBlock > p.limit) {
        x.fail(Rule::Bounds, "offset %u of block %u leaves the tensor, which has %llu bytes", offset, i, static_cast<unsigned long long>(p.limit));
    }
    return p.src + offset;
}

} // namespace

void vector_gatherb(const MoveCall &call)
{
    check_local(call.arg[0], "dst", call.api, call.site);
    check_local(call.arg[1], "src", call.api, call.site);
    check_local(call.arg[2], "offset", call.api, call.site);
    check_repeat(call.n[0], call.api, call.site);
    check_stride(call.arg[0].blk, 255, "dstBlkStride", call.api, call.site);
    check_stride(call.arg[0].rep, 65535, "dstRepStride", call.api, call.site);
    if (call.n[0] == 0) {
        return;
    }
    const VecArg &f = call.arg[1];
    uint64_t end = f.buffer.bytes != 0 ? f.buffer.base + f.buffer.bytes : capacity(Mem::UB);
    BlocksWork p{};
    p.dst = call.arg[0].addr;
    p.src = f.addr;
    p.offsets = call.arg[2].addr;
    p.limit = f.bytes != 0 ? f.bytes : end > f.addr ? end - f.addr : 0;
    p.blk = call.arg[0].blk * kBlock;
    p.rep = call.arg[0].rep * kBlock;
    p.repeats = static_cast<uint32_t>(call.n[0]);
    p.size = static_cast<uint32_t>(type_bits(f.type)) / 8;
    Instr in;
    vector_instr(in, call.api, call.site, f.type, p.size, static_cast<uint64_t>(p.repeats) * kRepeat / p.size, p.repeats);
    Shape s;
    s.lanes = s.prefix = kRepeat / p.size;
    s.repeats = p.repeats;
    touch(in, "dst", Use::Write, call.arg[0], track(call.arg[0]), s);
    touch_run(in, "offset", Use::Read, call.arg[2], p.offsets, 32ull * p.repeats);
    uint64_t region = p.limit;
    for (int i = 0; i < 3; i += 2) {
        if (call.arg[i].addr > p.src && call.arg[i].addr - p.src < region) {
            region = call.arg[i].addr - p.src;
        }
    }
    Operand &o = touch_run(in, "src", Use::Read, f, p.src, region);
    o.strict = false;
    in.put(p);
    in.effect = [](Exec &x, const Instr &i) {
        const BlocksWork &w = i.get<BlocksWork>();
        uint8_t *ub = x.at(Mem::UB, 0);
        for (uint32_t b = 0; b < 8 * w.repeats; b++) {
            memcpy(ub + w.dst + static_cast<uint64_t>(b / 8) * w.rep + static_cast<uint64_t>(b % 8) * w.blk, ub + block_at(x, w, b), kBlock);
        }
    };
    in.taint = [](Exec &x, const Instr &i) {
        const BlocksWork &w = i.get<BlocksWork>();
        for (uint32_t b = 0; b < 8 * w.repeats; b++) {
            if (!x.defined(Mem::UB, w.offsets + 4ull * b, 4)) {
                x.fail(Rule::Undefined, "the offset of block %u has no defined value", b);
            }
            x.define_like(Mem::UB, w.dst + static_cast<uint64_t>(b / 8) * w.rep + static_cast<uint64_t>(b % 8) * w.blk, Mem::UB,
                          block_at(x, w, b), kBlock);
        }
    };
    issue(in);
}

void vector_brcb(const MoveCall &call)
{
    check_local(call.arg[0], "dst", call.api, call.site);
    check_local(call.arg[1], "src", call.api, call.site);
    check_repeat(call.n[0], call.api, call.site);
    check_stride(call.arg[0].blk, 65535, "dstBlkStride", call.api, call.site);
    check_stride(call.arg[0].rep, 65535, "dstRepStride", call.api, call.site);
    if (call.n[0] == 0) {
        return;
    }
    if (call.arg[0].blk == 0) {
        fail(Rule::Range, call.api, "dstBlkStride", call.site, "a dstBlkStride of 0 is not allowed");
    }
    BlocksWork p{};
    p.dst = call.arg[0].addr;
    p.src = call.arg[1].addr;
    p.blk = call.arg[0].blk * kBlock;
    p.rep = call.arg[0].rep * kBlock;
    p.repeats = static_cast<uint32_t>(call.n[0]);
    p.size = static_cast<uint32_t>(type_bits(call.arg[0].type)) / 8;
    Instr in;
    vector_instr(in, call.api, call.site, call.arg[0].type, p.size, static_cast<uint64_t>(p.repeats) * kRepeat / p.size, p.repeats);
    Shape s;
    s.lanes = s.prefix = kRepeat / p.size;
    s.repeats = p.repeats;
    touch(in, "dst", Use::Write, call.arg[0], track(call.arg[0]), s);
    touch_run(in, "src", Use::Read, call.arg[1], p.src, 8ull * p.size * p.repeats);
    check_apart(call.arg[0], (p.repeats - 1ull) * p.rep + 7ull * p.blk + kBlock, call.arg[1], 8ull * p.size * p.repeats, "src", call.api, call.site);
    in.put(p);
    in.effect = [](Exec &x, const Instr &i) {
        const BlocksWork &w = i.get<BlocksWork>();
        uint8_t *ub = x.at(Mem::UB, 0);
        for (uint32_t b = 0; b < 8 * w.repeats; b++) {
            uint8_t *to = ub + w.dst + static_cast<uint64_t>(b / 8) * w.rep + static_cast<uint64_t>(b % 8) * w.blk;
            auto run = [&](auto zero) {
                using T = decltype(zero);
                T v = load<T>(ub + w.src + static_cast<uint64_t>(b) * sizeof(T));
                for (uint32_t k = 0; k < kBlock; k += sizeof(T)) {
                    memcpy(to + k, &v, sizeof(T));
                }
            };
            w.size == 1 ? run(uint8_t{}) : w.size == 2 ? run(uint16_t{}) : w.size == 4 ? run(uint32_t{}) : run(uint64_t{});
        }
    };
    in.taint = [](Exec &x, const Instr &i) {
        const BlocksWork &w = i.get<BlocksWork>();
        for (uint32_t b = 0; b < 8 * w.repeats; b++) {
            x.define(Mem::UB, w.dst + static_cast<uint64_t>(b / 8) * w.rep + static_cast<uint64_t>(b % 8) * w.blk, kBlock,
                     x.defined(Mem::UB, w.src + static_cast<uint64_t>(b) * w.size, w.size));
        }
    };
    issue(in);
}

namespace {

struct GatherMaskWork {
    Shape shape; // of one repeat of `shape.lanes` elements, which may be more than 256 B in counter mode
    uint32_t repeats;
    uint32_t lanes; // elements of a repeat
    uint32_t pattern; // 0: in a tensor
    Track src;
    uint64_t bits; // address of the pattern
    uint32_t bits_rep;
    uint64_t dst;
    uint64_t most; // elements that may be kept
    uint64_t room; // bytes of the destination
};

// Element `i` of a repeat: in counter mode a repeat may be longer than 256 B; then its blocks go on with the block stride.
bool gather_mask_bit(Exec &x, const GatherMaskWork &p, uint32_t repeat, uint32_t i)
{
    switch (p.pattern) {
    case 0: {
        const uint8_t *bits = x.at(Mem::UB, p.bits + static_cast<uint64_t>(repeat) * p.bits_rep + i / 8);
        return ((*bits >> (i % 8)) & 1) != 0;
    }
    case 1:
        return i % 2 == 0;
    case 2:
        return i % 2 == 1;
    case 7:
        return true;
    default:
        return i % 4 == p.pattern - 3;
    }
}

void run_gather_mask(Exec &x, const Instr &in)
{
    const GatherMaskWork &p = in.get<GatherMaskWork>();
    uint8_t *ub = x.at(Mem::UB, 0);
    size_t size = p.src.bits / 8u;
    uint64_t n = 0;
    if (p.pattern != 0 && p.most * size <= p.room) {
        uint32_t begin = p.pattern == 1 || p.pattern == 7 ? 0 : p.pattern == 2 ? 1 : p.pattern - 3;
        uint32_t step = p.pattern == 7 ? 1 : p.pattern <= 2 ? 2 : 4;
        auto run = [&](auto zero) {
            using T = decltype(zero);
            for (uint32_t r = 0; r < p.repeats; r++) {
                for (uint32_t i = begin; i < p.lanes; i += step) {
                    T v = load<T>(ub + p.src.at(r, i));
                    memcpy(ub + p.dst + n * sizeof(T), &v, sizeof(T));
                    n++;
                }
            }
        };
        size == 1 ? run(uint8_t{}) : size == 2 ? run(uint16_t{}) : run(uint32_t{});
        x.state().reserved_count = n;
        return;
    }
    for (uint32_t r = 0; r < p.repeats; r++) {
        for (uint32_t i = 0; i < p.lanes; i++) {
            if (gather_mask_bit(x, p, r, i)) {
                if ((n + 1) * size > p.room) {
                    x.fail(Rule::Bounds, "more elements are kept than the destination has room for (%llu bytes)",
                           static_cast<unsigned long long>(p.room));
                }
                memmove(ub + p.dst + n * size, ub + p.src.at(r, i), size);
                n++;
            }
        }
    }
    x.state().reserved_count = n;
}

void taint_gather_mask(Exec &x, const Instr &in)
{
    const GatherMaskWork &p = in.get<GatherMaskWork>();
    size_t size = p.src.bits / 8u;
    uint64_t n = 0;
    for (uint32_t r = 0; r < p.repeats; r++) {
        for (uint32_t i = 0; i < p.lanes; i++) {
            if (p.pattern == 0 && !x.defined(Mem::UB, p.bits + static_cast<uint64_t>(r) * p.bits_rep + i / 8, 1)) {
                x.fail(Rule::Undefined, "the pattern for element %u of repeat %u has no defined value", i, r);
            }
            if (gather_mask_bit(x, p, r, i)) {
                x.define(Mem::UB, p.dst + n * size, size, x.defined(Mem::UB, p.src.at(r, i), size));
                n++;
            }
        }
    }
}

} // namespace

uint64_t vector_gather_mask(const MoveCall &call)
{
    check_local(call.arg[0], "dst", call.api, call.site);
    check_local(call.arg[1], "src0", call.api, call.site);
    uint32_t size = static_cast<uint32_t>(type_bits(call.arg[0].type)) / 8;
    bool tensor = call.args > 2, counter = call.n[1] != 0;
    GatherMaskWork p{};
    p.pattern = tensor ? 0 : static_cast<uint32_t>(call.n[0]);
    if (!tensor && (call.n[0] < 1 || call.n[0] > 7)) {
        fail(Rule::Range, call.api, "src1Pattern", call.site, "pattern %lld, there are 1 to 7", static_cast<long long>(call.n[0]));
    }
    check_stride(call.arg[1].blk, 255, "src0BlockStride", call.api, call.site);
    check_stride(call.arg[1].rep, 65535, "src0RepeatStride", call.api, call.site);
    check_stride(static_cast<uint64_t>(call.n[3]), 65535, "repeatTimes", call.api, call.site);
    p.repeats = static_cast<uint32_t>(call.n[3]);
    p.lanes = counter ? static_cast<uint32_t>(call.n[2]) : kRepeat / size;
    if (arch() == 2201) {
        // The call works in a mode of its own and leaves normal mode.
        state().counter_mode = false;
        state().mask[0] = state().mask[1] = ~0ull;
        state().mask_dirty = false;
    }
    uint64_t elements = static_cast<uint64_t>(p.repeats) * p.lanes;
    if (elements == 0) {
        return 0;
    }
    if (elements > (1u << 20)) {
        fail(Rule::Range, call.api, "mask", call.site, "%llu elements are more than the unified buffer holds", static_cast<unsigned long long>(elements));
    }
    p.src = track(call.arg[1]);
    p.dst = call.arg[0].addr;
    if (tensor) {
        check_local(call.arg[2], "src1Pattern", call.api, call.site);
        check_stride(call.arg[2].rep, 255, "src1RepeatStride", call.api, call.site);
        p.bits = call.arg[2].addr;
        p.bits_rep = call.arg[2].rep * kBlock;
    }
    // How many are kept, where that is known.
    uint64_t row = p.pattern == 0 || p.pattern == 7 ? p.lanes
                   : p.pattern == 1               ? (p.lanes + 1) / 2
                   : p.pattern == 2               ? p.lanes / 2
                                                  : (p.lanes + 3 - (p.pattern - 3)) / 4;
    p.most = row * p.repeats;
    Shape s;
    s.lanes = s.prefix = p.lanes;
    s.repeats = p.repeats;
    Instr in;
    vector_instr(in, call.api, call.site, call.arg[0].type, size, elements, static_cast<uint32_t>((elements * size + kRepeat - 1) / kRepeat));
    const VecArg &d = call.arg[0];
    uint64_t end = d.buffer.bytes != 0 ? d.buffer.base + d.buffer.bytes : capacity(Mem::UB);
    p.room = d.bytes != 0 ? d.bytes : end > d.addr ? end - d.addr : 0;
    if (p.most != 0) {
        uint64_t bytes = p.most * size;
        if (p.pattern != 0) {
            touch_run(in, "dst", Use::Write, d, p.dst, bytes);
        } else {
            // How many are kept is known when it runs: no more than fit before another operand, and what is not written stays.
            bytes = p.room < bytes ? p.room : bytes;
            for (int i = 1; i < 3; i++) {
                if (call.arg[i].addr > p.dst && call.arg[i].addr - p.dst < bytes) {
                    bytes = call.arg[i].addr - p.dst;
                }
            }
            touch_run(in, "dst", Use::Update, d, p.dst, bytes).strict = false;
        }
    }
    touch(in, "src0", Use::Read, call.arg[1], p.src, s, 0, p.pattern == 7);
    if (tensor) {
        uint64_t bytes = (p.lanes + 7) / 8;
        Region r;
        r.addr = p.bits;
        r.bytes = bytes;
        r.n2 = p.bits_rep == 0 ? 1 : p.repeats;
        r.pitch2 = p.bits_rep;
        Operand &o = in.add("src1Pattern", Use::Read, call.arg[2].mem, r, call.arg[2].buffer);
        o.strict = true;
    }
    in.put(p);
    in.effect = run_gather_mask;
    in.taint = taint_gather_mask;
    issue(in);
    // The count comes back to the scalar unit, which waits for it.
    drain(Pipe::V, call.api, call.site);
    return effects() ? state().reserved_count : p.most;
}

namespace {

struct DeqWork {
    uint8_t to;
    bool vector;
    bool half_block;
    Overflow overflow;
    Shape shape;
    Track dst, src;
    uint64_t deq;
};

// Elements of 8 bits go to one half of each block: eight... sixteen results of a block of 16 sources.
uint64_t deq_target(const DeqWork &p, uint32_t r, uint32_t lane)
{
    if (p.to == ASCEND_TWIN_F16) {
        return p.dst.at(r, lane);
    }
    return p.dst.addr + static_cast<uint64_t>(r) * p.dst.rep + static_cast<uint64_t>(lane / 16) * p.dst.blk + (p.half_block ? 16 : 0) + lane % 16;
}

void run_deq(Exec &x, const Instr &in)
{
    const DeqWork &p = in.get<DeqWork>();
    uint8_t *ub = x.at(Mem::UB, 0);
    each_lane(p.shape, [&](uint32_t r, uint32_t lane) {
        const uint8_t *from = ub + p.src.at(r, lane);
        uint8_t *to = ub + deq_target(p, r, lane);
        if (p.to == ASCEND_TWIN_F16) {
            double v = static_cast<double>(load<int32_t>(from)) * static_cast<double>(f16_to_f32(static_cast<uint16_t>(p.deq)));
            uint16_t h = f32_to_f16(static_cast<float>(v), Round::Rint, p.overflow);
            memcpy(to, &h, 2);
            return;
        }
        uint64_t word = p.deq;
        if (p.vector) {
            memcpy(&word, ub + p.deq + 8 * (lane % 16), 8);
        }
        // The scale has ten bits of mantissa; the rest is dropped.
        uint32_t bits = static_cast<uint32_t>(word) & 0xffffe000u;
        float scale;
        memcpy(&scale, &bits, 4);
        int32_t offset = static_cast<int32_t>((word >> 37) & 0x1ff);
        offset = offset >= 256 ? offset - 512 : offset;
        bool is_signed = (word >> 46) & 1;
        float v = static_cast<float>(load<int16_t>(from)) * scale;
        int64_t q = f32_to_int(v, Round::Rint, 32, true) + offset;
        int64_t low = is_signed ? -128 : 0, high = is_signed ? 127 : 255;
        q = q < low ? low : q > high ? high : q;
        *to = static_cast<uint8_t>(q);
    });
}

void taint_deq(Exec &x, const Instr &in)
{
    const DeqWork &p = in.get<DeqWork>();
    each_lane(p.shape, [&](uint32_t r, uint32_t lane) {
        bool known = x.defined(Mem::UB, p.src.at(r, lane), p.src.bits / 8u);
        if (p.vector) {
            known = known && x.defined(Mem::UB, p.deq + 8 * (lane % 16), 8);
        }
        x.define(Mem::UB, deq_target(p, r, lane), p.to == ASCEND_TWIN_F16 ? 2 : 1, known);
    });
}

} // namespace

void vector_cast_deq(const MoveCall &call)
{
    check_local(call.arg[0], "dst", call.api, call.site);
    check_local(call.arg[1], "src", call.api, call.site);
    uint32_t lanes = lanes_of(call.arg[1]);
    DeqWork p{};
    if (!resolve(call.mask, lanes, call.api, call.site, p.shape)) {
        return;
    }
    bool count = call.mask.kind == VecMask::Count;
    if (!count) {
        check_stride(call.arg[0].blk, 65535, "dstBlkStride", call.api, call.site);
        check_stride(call.arg[1].blk, 65535, "srcBlkStride", call.api, call.site);
        check_stride(call.arg[0].rep, 255, "dstRepStride", call.api, call.site);
        check_stride(call.arg[1].rep, 255, "srcRepStride", call.api, call.site);
    }
    p.to = call.arg[0].type;
    p.vector = call.mode != 0 && p.to != ASCEND_TWIN_F16;
    p.half_block = call.index;
    p.overflow = overflow_mode(ASCEND_TWIN_F16);
    p.src = count ? flat_track(call.arg[1], lanes) : track(call.arg[1]);
    p.dst = count && p.to == ASCEND_TWIN_F16 ? flat_track(call.arg[0], lanes) : track(call.arg[0]);
    p.deq = state().spare[0];
    if (p.to != ASCEND_TWIN_F16 && !p.vector && (p.to == ASCEND_TWIN_I8) != (((p.deq >> 46) & 1) != 0)) {
        fail(Rule::Quant, call.api, "dst", call.site, "signMode of SetDeqScale does not fit the type of the destination");
    }
    Instr in;
    vector_instr(in, call.api, call.site, call.arg[1].type, p.src.bits / 8u, p.shape.elements(), p.shape.rows());
    if (p.to == ASCEND_TWIN_F16) {
        touch(in, "dst", Use::Write, call.arg[0], p.dst, p.shape);
    } else {
        // Halves of blocks: as if the destination had elements of 8 bits in blocks of 16 B.
        Track half = p.dst;
        half.addr += p.half_block ? 16 : 0;
        half.bits = 16; // block of 16 elements of a lane each
        Shape s = p.shape;
        uint32_t active = s.prefix != 0 ? s.prefix : s.lanes;
        auto rows = [&](uint32_t first, uint32_t n, uint32_t elements) {
            uint32_t blocks = elements / 16, rest = elements % 16;
            Region r;
            r.addr = half.addr + static_cast<uint64_t>(first) * half.rep;
            r.bytes = 16;
            r.pitch1 = half.blk;
            r.n1 = blocks;
            r.pitch2 = half.rep;
            r.n2 = n;
            if (blocks != 0) {
                in.add("dst", Use::Write, Mem::UB, r, call.arg[0].buffer).align = 16;
            }
            if (rest != 0) {
                r.addr += static_cast<uint64_t>(blocks) * half.blk;
                r.bytes = rest;
                r.n1 = 1;
                in.add("dst", Use::Write, Mem::UB, r, call.arg[0].buffer).align = 16;
            }
        };
        if (s.repeats != 0) {
            rows(0, s.repeats, active);
        }
        if (s.tail != 0) {
            rows(s.repeats, 1, s.tail);
        }
    }
    touch(in, "src", Use::Read, call.arg[1], p.src, p.shape);
    if (p.vector) {
        VecArg deq;
        touch_run(in, "vdeq", Use::Read, deq, p.deq, 128);
    }
    in.put(p);
    in.effect = run_deq;
    in.taint = taint_deq;
    issue(in);
}

void vector_set_mask(uint64_t high, uint64_t low, bool dirty, const char *api, Site site)
{
    CoreState &core = state();
    core.mask[0] = low;
    core.mask[1] = high;
    core.mask_site = site;
    core.mask_dirty = dirty && !(low == ~0ull && high == ~0ull);
    scalar_call(2, api, site);
}

void vector_set_mask_mode(bool counter, const char *api, Site site)
{
    CoreState &core = state();
    core.counter_mode = counter;
    core.mask_site = site;
    scalar_call(1, api, site);
}

void vector_deq_scale(uint64_t bits, const char *api, Site site)
{
    state().spare[0] = bits;
    scalar_call(1, api, site);
}

} // namespace ascend_twin
