// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Queues, buffers and the small calls of the scalar unit, after their pages.

#include "example.h"

static void check(bool good, const char *what, ascend_twin::Site site = ascend_twin::Site::here())
{
    if (!good) {
        ascend_twin::fail(ascend_twin::Rule::Assert, "check", nullptr, site, "not so: %s", what);
    }
}
#define CHECK(x) check(x, #x)

EXAMPLE(vacant_in_que, "VacantInQue")
{
    TPipe pipe;
    TQue<TPosition::VECOUT, 4> que;
    pipe.InitBuffer(que, 6, 1024);
    CHECK(que.VacantInQue());
    LocalTensor<half> t[6];
    for (int i = 0; i < 5; i++) {
        t[i] = que.AllocTensor<half>();
    }
    for (int i = 0; i < 4; i++) {
        que.EnQue(t[i]);
    }
    CHECK(!que.VacantInQue());
    CHECK(que.HasTensorInQue());
    CHECK(que.GetTensorCountInQue() == 4);
    for (int i = 0; i < 4; i++) {
        t[i] = que.DeQue<half>();
        que.FreeTensor(t[i]);
    }
    que.FreeTensor(t[4]);
    CHECK(que.VacantInQue() && !que.HasTensorInQue());
}

EXAMPLE(has_idle_buffer, "HasIdleBuffer")
{
    TPipe pipe;
    TQue<TPosition::VECOUT, 1> que;
    pipe.InitBuffer(que, 4, 1024);
    CHECK(que.HasIdleBuffer());
    LocalTensor<half> t[4];
    t[0] = que.AllocTensor<half>();
    CHECK(que.HasIdleBuffer());
    for (int i = 1; i < 4; i++) {
        t[i] = que.AllocTensor<half>();
    }
    CHECK(!que.HasIdleBuffer());
    for (auto &x : t) {
        que.FreeTensor(x);
    }
}

EXAMPLE(tensors_of_a_queue, "AllocTensor")
{
    TPipe pipe;
    TQue<TPosition::VECOUT, 2> que;
    pipe.InitBuffer(que, 2, 1024);
    LocalTensor<half> a = que.AllocTensor<half>();
    CHECK(a.GetSize() == 512 && a.GetLength() == 1024);
    CHECK(static_cast<TPosition>(a.GetPosition()) == TPosition::VECOUT);
    LocalTensor<half> b = que.AllocTensor<half>();
    CHECK(b.GetPhyAddr() == a.GetPhyAddr() + 1024);
    que.FreeTensor(a);
    que.FreeTensor(b);
}

EXAMPLE(lengths_round_up_to_32_bytes, "InitBuffer")
{
    TPipe pipe;
    TQue<TPosition::VECIN, 1> que;
    pipe.InitBuffer(que, 2, 100);
    LocalTensor<uint8_t> a = que.AllocTensor<uint8_t>();
    LocalTensor<uint8_t> b = que.AllocTensor<uint8_t>();
    CHECK(a.GetSize() == 128 && b.GetPhyAddr() == a.GetPhyAddr() + 128);
    que.FreeTensor(a);
    que.FreeTensor(b);
}

EXAMPLE(buffers_at_given_addresses, "InitBuffer")
{
    TPipe pipe;
    TQue<TPosition::VECOUT, 1> que;
    auto addr0 = Std::make_tuple(0, 1024);
    auto addr1 = Std::make_tuple(2048, 2048);
    auto addr2 = Std::make_tuple(8192, 4096);
    pipe.InitBuffer(que, addr0, addr1, addr2);
    LocalTensor<float> t[3];
    const uint64_t starts[] = {0, 2048, 8192};
    const uint32_t sizes[] = {256, 512, 1024};
    for (int i = 0; i < 3; i++) {
        t[i] = que.AllocTensor<float>();
        CHECK(t[i].GetPhyAddr() == starts[i] && t[i].GetSize() == sizes[i]);
    }
    for (auto &x : t) {
        que.FreeTensor(x);
    }
}

EXAMPLE(tensor_in_place, "AllocTensor")
{
    TPipe pipe;
    TQue<TPosition::VECIN, 0> que;
    pipe.InitBuffer(que, 2, 1024);
    for (int i = 0; i < 5; i++) {
        LocalTensor<half> t;
        que.AllocTensor<half>(t);
        CHECK(t.GetPhyAddr() == (i % 2) * 1024u);
        que.EnQue(t);
        que.DeQue<half>(t);
        que.FreeTensor<half>(t);
    }
}

EXAMPLE(events_are_given_back, "FreeAllEvent")
{
    TPipe pipe;
    TQue<TPosition::VECIN, 1> que0;
    pipe.InitBuffer(que0, 8, 1024);
    LocalTensor<half> t = que0.AllocTensor<half>();
    que0.EnQue(t);
    t = que0.DeQue<half>();
    que0.FreeTensor<half>(t);
    que0.FreeAllEvent();
    TQue<TPosition::VECIN, 1> que1;
    pipe.InitBuffer(que1, 8, 1024);
    t = que1.AllocTensor<half>();
    que1.EnQue(t);
    t = que1.DeQue<half>();
    que1.FreeTensor<half>(t);
}

EXAMPLE(scratch_tensors, "Get")
{
    TPipe pipe;
    TBuf<TPosition::VECCALC> calc;
    pipe.InitBuffer(calc, 1024);
    LocalTensor<int32_t> all = calc.Get<int32_t>();
    LocalTensor<int32_t> some = calc.Get<int32_t>(128);
    CHECK(all.GetSize() == 256 && some.GetSize() == 128 && all.GetPhyAddr() == some.GetPhyAddr());
}

EXAMPLE(scratch_with_offset, "GetWithOffset")
{
    TPipe pipe;
    TBuf<TPosition::VECCALC> calc;
    pipe.InitBuffer(calc, 1024);
    LocalTensor<int32_t> t = calc.GetWithOffset<int32_t>(128, 64);
    CHECK(t.GetSize() == 128 && t.GetPhyAddr() == calc.Get<int32_t>().GetPhyAddr() + 64);
}

EXAMPLE(pools_share_memory, "InitBufPool")
{
    TPipe pipe;
    TBufPool<TPosition::VECCALC> outer, first, second;
    TQue<TPosition::VECIN, 1> q0, q1, q2;
    pipe.InitBufPool(outer, 4096);
    outer.InitBufPool(first, 2048);
    outer.InitBuffer(q0, 1, 2048);
    outer.InitBufPool(second, 2048, first);
    first.InitBuffer(q1, 1, 1024);
    LocalTensor<half> a = q1.AllocTensor<half>();
    uint64_t start = a.GetPhyAddr();
    q1.FreeTensor(a);
    first.Reset();
    second.InitBuffer(q2, 1, 1024);
    a = q2.AllocTensor<half>();
    CHECK(a.GetPhyAddr() == start);
    q2.FreeTensor(a);
    second.Reset();
    outer.Reset();
    pipe.Reset();
}

EXAMPLE(a_pipe_is_used_again, "Init")
{
    TPipe pipe;
    for (int i = 0; i < 3; i++) {
        TQue<TPosition::VECOUT, 1> que;
        pipe.InitBuffer(que, 1, 128 * 1024);
        LocalTensor<half> t = que.AllocTensor<half>();
        que.FreeTensor(t);
        if (i == 0) {
            pipe.Reset();
        } else if (i == 1) {
            pipe.Destroy();
            pipe.Init();
        }
    }
}

EXAMPLE(events_by_hand, "AllocEventID")
{
    TPipe pipe;
    TEventID a = GetTPipePtr()->AllocEventID<HardEvent::V_S>();
    TEventID b = GetTPipePtr()->FetchEventID(HardEvent::V_S);
    CHECK(a != b && b == GetTPipePtr()->FetchEventID<HardEvent::V_S>());
    SetFlag<HardEvent::V_S>(a);
    WaitFlag<HardEvent::V_S>(a);
    GetTPipePtr()->ReleaseEventID<HardEvent::V_S>(a);
}

EXAMPLE(allocator_without_a_pipe, "LocalMemAllocator")
{
    LocalMemAllocator<Hardware::UB> ub;
    CHECK(ub.GetCurAddr() == 0);
    auto a = ub.Alloc<TPosition::VECIN, float, 1024>();
    auto b = ub.Alloc<float, 1024>();
    auto c = ub.Alloc<TPosition::VECIN, float>(1000);
    auto d = ub.Alloc<float>(1);
    CHECK(a.GetPhyAddr() == 0 && b.GetPhyAddr() == 4096 && c.GetPhyAddr() == 8192 && d.GetPhyAddr() == 8192 + 4000);
    CHECK(ub.GetCurAddr() == 8192 + 4032);
    CHECK(static_cast<TPosition>(a.GetPosition()) == TPosition::VECIN && c.GetSize() == 1000);
}

EXAMPLE(elements_by_call, "operator()")
{
    LocalTensor<half> t(TPosition::VECCALC, 0, 64);
    for (int i = 0; i < 64; i++) {
        t.SetValue(i, half(100.0f));
    }
    t(2) = half(200.0f);
    half x = t(2), y = t(3);
    CHECK(static_cast<float>(x) == 200 && static_cast<float>(y) == 100);
}

EXAMPLE(the_same_bytes_as_another_type, "ReinterpretCast")
{
    LocalTensor<int32_t> t(TPosition::VECCALC, 0, 16);
    for (int i = 0; i < 16; i++) {
        t.SetValue(i, i);
    }
    LocalTensor<int16_t> s = t.ReinterpretCast<int16_t>();
    CHECK(s.GetSize() == 32);
    for (int i = 0; i < 32; i++) {
        CHECK(s.GetValue(i) == (i % 2 == 0 ? i / 2 : 0));
    }
}

EXAMPLE(offset_of_the_old_tensor, "SetAddrWithOffset")
{
    LocalTensor<float> a(TPosition::VECCALC, 512, 64);
    LocalTensor<half> b;
    b.SetAddrWithOffset(a, 32);
    CHECK(b.GetPhyAddr() == 512 + 128 && b.GetSize() == 64);
}

EXAMPLE(tags_and_shapes, "SetShapeInfo")
{
    LocalTensor<half> t(TPosition::VECIN, 0, 64);
    t.SetUserTag(10);
    CHECK(t.GetUserTag() == 10);
    uint32_t shape[] = {16, 1024};
    t.SetShapeInfo(ShapeInfo(2, shape, DataFormat::ND));
    ShapeInfo s = t.GetShapeInfo();
    CHECK(s.originalShape[0] == 16 && s.shape[1] == 1024 && GetShapeSize(s) == 16384);
}

EXAMPLE(bits_like_the_sign, "CountBitsCntSameAsSignBit")
{
    CHECK(CountBitsCntSameAsSignBit(0x0100000000000020) == 6);
    CHECK(CountBitsCntSameAsSignBit(0) == -1);
    CHECK(CountBitsCntSameAsSignBit(-1) == -1);
    CHECK(CountBitsCntSameAsSignBit(0x7FFFFFFFFFFFFFFF) == 0);
    CHECK(CountBitsCntSameAsSignBit(static_cast<int64_t>(0x8000000000000000ull)) == 0);
    CHECK(CountBitsCntSameAsSignBit(1) == 62);
    CHECK(CountBitsCntSameAsSignBit(0x00F0000000000000) == 7);
}

EXAMPLE(leading_zeros, "CountLeadingZero")
{
    CHECK(CountLeadingZero(0x0100000000000020ull) == 7);
    CHECK(CountLeadingZero(0xFFFFull) == 48);
    CHECK(CountLeadingZero(0) == 64);
    CHECK(CountLeadingZero(~0ull) == 0);
}

EXAMPLE(first_bit_from_below, "GetSFFValue")
{
    CHECK(GetSFFValue<1>(0x1000000000000100ull) == 8);
    CHECK(GetSFFValue<0>(~0ull) == -1);
    CHECK(GetSFFValue<1>(0) == -1);
    CHECK(GetSFFValue<0>(0xFF00ull) == 0);
    CHECK(GetSFFValue<1>(0xFF00ull) == 8);
    CHECK(GetSFFValue<0>(0x00FFull) == 8);
    CHECK(GetSFFValue<1>(0x00FFull) == 0);
}

EXAMPLE(ceil_division, "CeilDivision")
{
    CHECK(CeilDivision(7, 2) == 4 && CeilDivision(8, 2) == 4 && CeilDivision(8, 0) == 0);
}

EXAMPLE(how_many_cores, "GetTaskRatio")
{
    CHECK(GetTaskRatio() == 1 && GetSubBlockNum() == 1 && GetBlockNum() == 1 && GetBlockIdx() == 0 && GetSubBlockIdx() == 0);
}

CUBE_EXAMPLE(queues_of_the_cube_core, "TQueBind")
{
    TPipe pipe;
    TQue<TPosition::A1, 1> a1;
    TQue<TPosition::B2, 1> b2;
    TQue<TPosition::CO1, 1> co1;
    pipe.InitBuffer(a1, 2, 4096);
    pipe.InitBuffer(b2, 2, 4096);
    pipe.InitBuffer(co1, 1, 4096);
    for (int i = 0; i < 3; i++) {
        auto a = a1.AllocTensor<half>();
        a1.EnQue(a);
        auto a_ = a1.DeQue<half>();
        auto b = b2.AllocTensor<half>();
        a1.FreeTensor(a_);
        b2.EnQue(b);
        b = b2.DeQue<half>();
        auto c = co1.AllocTensor<float>();
        b2.FreeTensor(b);
        co1.EnQue(c);
        c = co1.DeQue<float>();
        co1.FreeTensor(c);
        CHECK(a.GetPhyAddr() == (i % 2) * 4096u && c.GetPhyAddr() == 0);
    }
}

EXAMPLES_END
