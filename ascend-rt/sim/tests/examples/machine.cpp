// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The machine below the API: what is a hazard and what is none, events, cross-core flags, definedness, the data cache. The pages
// are "ok" or the rule that must stop the program.

#include "example.h"

using namespace ascend_twin;

namespace {

constexpr uint32_t kBlock = 256;

struct Move {
    uint32_t bytes;
};

void move_bytes(Exec &x, const Instr &i) { memmove(x.at(i.operand[1]), x.at(i.operand[0]), i.get<Move>().bytes); }

void move_defined(Exec &x, const Instr &i)
{
    const Operand &s = i.operand[0], &d = i.operand[1];
    x.define_like(d.mem, d.region.addr, s.mem, s.region.addr, i.get<Move>().bytes, d.peer, s.peer);
}

// Copies `bytes` bytes by an instruction of `pipe`.
void move(Pipe pipe, Mem from, uint64_t at, Mem to, uint64_t at_to, uint32_t bytes = kBlock, Use use = Use::Write,
          Site site = Site::here())
{
    Instr i;
    i.api = "move";
    i.site = site;
    i.pipe = pipe;
    i.add("src", Use::Read, from, Region{at, bytes, 0, 0, 1, 1}).strict = pipe == Pipe::V;
    i.add("dst", use, to, Region{at_to, bytes, 0, 0, 1, 1});
    i.put(Move{bytes});
    i.effect = move_bytes;
    i.taint = move_defined;
    issue(i);
}

void fill(Mem mem, uint64_t at, uint32_t bytes = kBlock, Pipe pipe = Pipe::V, Site site = Site::here())
{
    Instr i;
    i.api = "fill";
    i.site = site;
    i.pipe = pipe;
    i.add("dst", Use::Write, mem, Region{at, bytes, 0, 0, 1, 1});
    i.put(Move{bytes});
    i.effect = [](Exec &x, const Instr &instr) { memset(x.at(instr.operand[0]), 0, instr.get<Move>().bytes); };
    issue(i);
}

// An instruction that needs defined bytes.
void use(Pipe pipe, Mem mem, uint64_t at, uint32_t bytes = kBlock, Site site = Site::here())
{
    Instr i;
    i.api = "use";
    i.site = site;
    i.pipe = pipe;
    i.add("src", Use::Read, mem, Region{at, bytes, 0, 0, 1, 1}).strict = false;
    issue(i);
}

void set(Pipe a, Pipe b, int id = 0, Site site = Site::here()) { set_flag(a, b, id, Owner::Hand, "SetFlag", site); }
void wait(Pipe a, Pipe b, int id = 0, Site site = Site::here()) { wait_flag(a, b, id, Owner::Hand, "WaitFlag", site); }
void order(Pipe a, Pipe b, Site site = Site::here())
{
    set(a, b, 0, site);
    wait(a, b, 0, site);
}
void barrier(Pipe p, Site site = Site::here()) { pipe_barrier(p, "PipeBarrier", site); }

uint64_t block(example::Scratch &gm) { return gm.fill<uint8_t>(kBlock, [](size_t i) { return i; }).twin_addr(); }

} // namespace

EXAMPLE(in_and_out, "ok")
{
    auto in = gm.fill<float>(64, [](size_t i) { return i; });
    auto out = gm.out<float>(64);
    move(Pipe::MTE2, Mem::GM, in.twin_addr(), Mem::UB, 0);
    order(Pipe::MTE2, Pipe::V);
    move(Pipe::V, Mem::UB, 0, Mem::UB, 256);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 256, Mem::GM, out.twin_addr());
    finish();
    expect(out, {0, 1, 2, 3});
}

EXAMPLE(raw_between_pipes, "!hazard-raw|read-before-write|hazard-war")
{
    move(Pipe::MTE2, Mem::GM, block(gm), Mem::UB, 0);
    move(Pipe::V, Mem::UB, 0, Mem::UB, 256);
    finish();
}

EXAMPLE(war_between_pipes, "!hazard-war|hazard-raw")
{
    const uint64_t in = block(gm);
    fill(Mem::UB, 0);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, in);
    barrier(Pipe::V);
    fill(Mem::UB, 0);
    finish();
}

EXAMPLE(waw_between_pipes, "!hazard-waw")
{
    move(Pipe::MTE2, Mem::GM, block(gm), Mem::UB, 0);
    fill(Mem::UB, 128);
    finish();
}

EXAMPLE(waw_in_one_pipe, "!hazard-waw")
{
    const uint64_t in = block(gm);
    move(Pipe::MTE2, Mem::GM, in, Mem::UB, 0);
    move(Pipe::MTE2, Mem::GM, in, Mem::UB, 224);
    finish();
}

EXAMPLE(waw_in_one_pipe_behind_a_barrier, "ok")
{
    const uint64_t in = block(gm);
    move(Pipe::MTE2, Mem::GM, in, Mem::UB, 0);
    barrier(Pipe::MTE2);
    move(Pipe::MTE2, Mem::GM, in, Mem::UB, 224);
    finish();
}

// 2201 overlaps dependent vector instructions, 3510 orders them.
#if __NPU_ARCH__ == 3510
EXAMPLE(vector_after_vector, "ok")
#else
EXAMPLE(vector_after_vector, "!hazard-raw")
#endif
{
    fill(Mem::UB, 0);
    move(Pipe::V, Mem::UB, 0, Mem::UB, 256);
    finish();
}

EXAMPLE(vector_after_vector_behind_a_barrier, "ok")
{
    fill(Mem::UB, 0);
    barrier(Pipe::V);
    move(Pipe::V, Mem::UB, 0, Mem::UB, 256);
    finish();
}

EXAMPLE(other_pipes_barrier_does_not_help, "!hazard-raw|read-before-write|hazard-war")
{
    move(Pipe::MTE2, Mem::GM, block(gm), Mem::UB, 0);
    barrier(Pipe::MTE2);
    move(Pipe::V, Mem::UB, 0, Mem::UB, 256);
    finish();
}

EXAMPLE(order_is_transitive, "ok")
{
    const uint64_t in = block(gm);
    move(Pipe::MTE2, Mem::GM, in, Mem::UB, 0);
    order(Pipe::MTE2, Pipe::V);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, in);
    finish();
}

EXAMPLE(a_wait_of_the_scalar_unit_orders_what_it_issues_next, "ok")
{
    const uint64_t in = block(gm);
    fill(Mem::UB, 0);
    order(Pipe::V, Pipe::S);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, in);
    finish();
}

EXAMPLE(another_event_does_not_help, "!hazard-raw|read-before-write|hazard-war")
{
    const uint64_t in = block(gm);
    set(Pipe::MTE2, Pipe::V, 1);
    move(Pipe::MTE2, Mem::GM, in, Mem::UB, 0);
    wait(Pipe::MTE2, Pipe::V, 1);
    move(Pipe::V, Mem::UB, 0, Mem::UB, 256);
    finish();
}

EXAMPLE(barrier_of_all, "ok")
{
    const uint64_t in = block(gm);
    move(Pipe::MTE2, Mem::GM, in, Mem::UB, 0);
    barrier(Pipe::All);
    move(Pipe::V, Mem::UB, 0, Mem::UB, 256);
    barrier(Pipe::All);
    move(Pipe::MTE3, Mem::UB, 256, Mem::GM, in);
}

EXAMPLE(apart_by_a_cell, "ok")
{
    move(Pipe::MTE2, Mem::GM, block(gm), Mem::UB, 0);
    fill(Mem::UB, 256);
    finish();
}

EXAMPLE(set_twice, "!flag-double-set")
{
    set(Pipe::MTE2, Pipe::V);
    set(Pipe::MTE2, Pipe::V);
}

EXAMPLE(set_and_left, "!flag-unmatched")
{
    set(Pipe::MTE2, Pipe::V);
}

EXAMPLE(wait_without_set, "!deadlock")
{
    wait(Pipe::MTE2, Pipe::V);
}

EXAMPLE(scalar_wait_without_set, "!deadlock")
{
    wait(Pipe::MTE2, Pipe::S);
}

EXAMPLE(wait_issued_before_its_set, "ok")
{
    const uint64_t in = block(gm);
    wait(Pipe::MTE2, Pipe::V);
    move(Pipe::V, Mem::UB, 0, Mem::UB, 256);
    move(Pipe::MTE2, Mem::GM, in, Mem::UB, 0);
    set(Pipe::MTE2, Pipe::V);
    finish();
}

EXAMPLE(event_id_out_of_range, "!flag-id")
{
    set(Pipe::MTE2, Pipe::V, 8);
}

EXAMPLE(event_id_of_the_system, "!flag-id")
{
    set(Pipe::MTE2, Pipe::V, 6);
}

EXAMPLE(event_id_of_a_queue, "!flag-id")
{
    set(Pipe::MTE2, Pipe::V, alloc_event(Pipe::MTE2, Pipe::V, Owner::Queue, "InitBuffer", Site::here()));
}

EXAMPLE(event_id_used_by_hand_then_by_a_queue, "!flag-id")
{
    order(Pipe::MTE2, Pipe::V);
    alloc_event(Pipe::MTE2, Pipe::V, Owner::Queue, "InitBuffer", Site::here());
}

EXAMPLE(events_run_out, "!flag-id")
{
    for (int i = 0; i < 9; i++) {
        alloc_event(Pipe::MTE2, Pipe::V, Owner::Hand, "AllocEventID", Site::here());
    }
}

EXAMPLE(events_are_given_back, "ok")
{
    for (int i = 0; i < 20; i++) {
        const int id = alloc_event(Pipe::MTE2, Pipe::V, Owner::Hand, "AllocEventID", Site::here());
        release_event(Pipe::MTE2, Pipe::V, id, Owner::Hand, "ReleaseEventID", Site::here());
    }
}

EXAMPLE(barrier_of_the_scalar_unit, "!usage")
{
    barrier(Pipe::S);
}

EXAMPLE(never_written, "!read-before-write")
{
    move(Pipe::V, Mem::UB, 0, Mem::UB, 256);
}

EXAMPLE(written_in_part, "!read-before-write")
{
    fill(Mem::UB, 0, 64);
    barrier(Pipe::V);
    move(Pipe::V, Mem::UB, 0, Mem::UB, 256);
}

EXAMPLE(padding_may_travel, "ok")
{
    const uint64_t in = block(gm);
    move(Pipe::MTE2, Mem::GM, in, Mem::UB, 0, 20);
    order(Pipe::MTE2, Pipe::V);
    move(Pipe::V, Mem::UB, 0, Mem::UB, 256, 32);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 256, Mem::GM, in, 20);
}

EXAMPLE(padding_may_not_leave, "!undefined")
{
    const uint64_t in = block(gm);
    move(Pipe::MTE2, Mem::GM, in, Mem::UB, 0, 20);
    order(Pipe::MTE2, Pipe::V);
    move(Pipe::V, Mem::UB, 0, Mem::UB, 256, 32);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 256, Mem::GM, in, 21);
}

EXAMPLE(padding_may_not_decide, "!undefined")
{
    move(Pipe::MTE2, Mem::GM, block(gm), Mem::UB, 0, 20);
    order(Pipe::MTE2, Pipe::V);
    use(Pipe::V, Mem::UB, 0, 24);
}

EXAMPLE(padding_lives_in_a_workspace, "ok")
{
    const uint64_t in = block(gm), ws = gm.workspace();
    move(Pipe::MTE2, Mem::GM, in, Mem::UB, 0, 20);
    order(Pipe::MTE2, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, ws, 32);
    order(Pipe::MTE3, Pipe::MTE2);
    move(Pipe::MTE2, Mem::GM, ws, Mem::UB, 256, 32);
    order(Pipe::MTE2, Pipe::V);
    use(Pipe::V, Mem::UB, 256, 20);
}

EXAMPLE(padding_comes_back_from_a_workspace, "!undefined")
{
    const uint64_t in = block(gm), ws = gm.workspace();
    move(Pipe::MTE2, Mem::GM, in, Mem::UB, 0, 20);
    order(Pipe::MTE2, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, ws, 32);
    order(Pipe::MTE3, Pipe::MTE2);
    move(Pipe::MTE2, Mem::GM, ws, Mem::UB, 256, 32);
    order(Pipe::MTE2, Pipe::V);
    use(Pipe::V, Mem::UB, 256, 21);
}

EXAMPLE(workspace_is_undefined_at_first, "!undefined")
{
    move(Pipe::MTE2, Mem::GM, gm.workspace(), Mem::UB, 0, 32);
    order(Pipe::MTE2, Pipe::V);
    use(Pipe::V, Mem::UB, 0, 32);
}

EXAMPLE(beyond_the_memory, "!bounds")
{
    fill(Mem::UB, 1u << 20);
}

EXAMPLE(beyond_the_argument, "!bounds")
{
    fill(Mem::UB, 0);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, gm.workspace() + (1u << 20) - 128);
}

EXAMPLE(wild_pointer, "!bounds")
{
    GlobalTensor<float> t;
    t.SetGlobalBuffer(reinterpret_cast<float *>(64), 10);
    t.GetValue(0);
}

EXAMPLE(beyond_the_tensor, "!bounds")
{
    Instr i;
    i.api = "fill";
    i.pipe = Pipe::V;
    i.add("dst", Use::Write, Mem::UB, Region{64, 64, 0, 0, 1, 1}, Buffer{0, 96, 0});
    issue(i);
}

EXAMPLE(start_unaligned, "!alignment")
{
    fill(Mem::UB, 16);
}

EXAMPLE(overlap_in_part, "!overlap")
{
    fill(Mem::UB, 0, 1024);
    barrier(Pipe::V);
    move(Pipe::V, Mem::UB, 0, Mem::UB, 128);
}

EXAMPLE(in_place, "ok")
{
    fill(Mem::UB, 0);
    barrier(Pipe::V);
    move(Pipe::V, Mem::UB, 0, Mem::UB, 0);
}

EXAMPLE(given_back, "!queue")
{
    const uint32_t id = open_buffer(Mem::UB, 0, 256, "a queue", Site::here());
    close_buffer(id);
    Instr i;
    i.api = "fill";
    i.pipe = Pipe::V;
    i.add("dst", Use::Write, Mem::UB, Region{0, 64, 0, 0, 1, 1}, Buffer{0, 256, id});
    issue(i);
}

EXAMPLE(cube_on_a_vector_core, "!wrong-core")
{
    fill(Mem::L0C, 0, 1024, Pipe::M);
}

CUBE_EXAMPLE(vector_on_a_cube_core, "!wrong-core")
{
    fill(Mem::UB, 0);
}

EXAMPLE(l1_of_a_vector_core, "!wrong-core")
{
    move(Pipe::MTE2, Mem::GM, block(gm), Mem::L1, 0);
}

EXAMPLE(scalar_reads_without_event, "!hazard-raw|read-before-write|hazard-war")
{
    LocalTensor<float> t(TPosition::VECIN, 0, 64);
    move(Pipe::MTE2, Mem::GM, block(gm), Mem::UB, 0);
    t.GetValue(0);
}

EXAMPLE(scalar_reads_behind_an_event, "ok")
{
    LocalTensor<float> t(TPosition::VECIN, 0, 64);
    auto in = gm.fill<float>(64, [](size_t i) { return i; });
    move(Pipe::MTE2, Mem::GM, in.twin_addr(), Mem::UB, 0);
    order(Pipe::MTE2, Pipe::S);
    if (t.GetValue(3) != 3.0f) {
        fail(Rule::Assert, "GetValue", nullptr, Site::here(), "expected 3");
    }
}

EXAMPLE(vector_reads_what_the_scalar_unit_wrote, "!hazard-raw")
{
    LocalTensor<float> t(TPosition::VECIN, 0, 64);
    t.SetValue(0, 1.0f);
    move(Pipe::V, Mem::UB, 0, Mem::UB, 256, 32);
}

EXAMPLE(vector_reads_behind_an_event, "ok")
{
    LocalTensor<float> t(TPosition::VECIN, 0, 64);
    t.SetValue(0, 1.0f);
    order(Pipe::S, Pipe::V);
    move(Pipe::V, Mem::UB, 0, Mem::UB, 256, 4);
}

EXAMPLE(cache_left_dirty, "!dirty-cache")
{
    gm.out<float>(64).SetValue(1, 2.0f);
}

EXAMPLE(cache_cleaned, "ok")
{
    auto out = gm.out<float>(64);
    out.SetValue(1, 2.0f);
    cache_clean(out.twin_addr(), false, true, "DataCacheCleanAndInvalid", Site::here());
    expect(out, {0.0f, 2.0f, 0.0f});
}

EXAMPLE(cache_stale, "!stale-cache")
{
    cache_clean(0, true, true, "DataCacheCleanAndInvalid", Site::here());
    auto t = gm.fill<float>(64, [](size_t i) { return i; });
    (void)t.GetValue(0);
    order(Pipe::S, Pipe::MTE3);
    fill(Mem::UB, 0);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, t.twin_addr());
    order(Pipe::MTE3, Pipe::S);
    (void)t.GetValue(0);
}

EXAMPLE(cache_invalidated, "ok")
{
    cache_clean(0, true, true, "DataCacheCleanAndInvalid", Site::here());
    auto t = gm.fill<float>(64, [](size_t i) { return i + 1; });
    (void)t.GetValue(0);
    order(Pipe::S, Pipe::MTE3);
    fill(Mem::UB, 0);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, t.twin_addr());
    order(Pipe::MTE3, Pipe::S);
    cache_clean(0, true, true, "DataCacheCleanAndInvalid", Site::here());
    if (t.GetValue(0) != 0.0f) {
        fail(Rule::Assert, "GetValue", nullptr, Site::here(), "expected what the copy wrote");
    }
}

// Program order begins with an empty cache, other orders with one that may hold what an earlier launch has read.
EXAMPLE(cache_of_an_earlier_launch, "ok")
{
    auto t = gm.fill<float>(64, [](size_t i) { return i; });
    cache_clean(t.twin_addr(), false, true, "DataCacheCleanAndInvalid", Site::here());
    if (t.GetValue(15) != 15.0f) {
        fail(Rule::Assert, "GetValue", nullptr, Site::here(), "expected 15");
    }
}

EXAMPLE(scalar_reads_memory_before_the_copy_is_done, "!hazard-raw|hazard-war")
{
    cache_clean(0, true, true, "DataCacheCleanAndInvalid", Site::here());
    auto t = gm.fill<float>(64, [](size_t i) { return i; });
    fill(Mem::UB, 0);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, t.twin_addr());
    (void)t.GetValue(0);
}

// Several cores.

CORES_EXAMPLE(two_cores_write_one_place, "!hazard-waw", ASCEND_TWIN_AIV_ONLY, 2)
{
    const uint64_t out = gm.out<uint8_t>(kBlock).twin_addr();
    fill(Mem::UB, 0);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, out);
}

CORES_EXAMPLE(two_cores_write_neighbouring_bytes, "ok", ASCEND_TWIN_AIV_ONLY, 2)
{
    const uint64_t out = gm.out<uint8_t>(kBlock).twin_addr();
    fill(Mem::UB, 0);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, out + block_index() * 5, 5);
}

CORES_EXAMPLE(all_cores_add, "ok", ASCEND_TWIN_AIV_ONLY, 8)
{
    const uint64_t out = gm.out<uint8_t>(kBlock).twin_addr();
    fill(Mem::UB, 0);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, out, kBlock, Use::Atomic);
}

CORES_EXAMPLE(one_adds_one_writes, "!hazard-waw", ASCEND_TWIN_AIV_ONLY, 2)
{
    const uint64_t out = gm.out<uint8_t>(kBlock).twin_addr();
    fill(Mem::UB, 0);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, out, kBlock, block_index() == 0 ? Use::Atomic : Use::Write);
}

CORES_EXAMPLE(sum_read_after_a_barrier, "ok", ASCEND_TWIN_MIX_AIV_1_0, 8)
{
    const uint64_t out = gm.out<uint8_t>(kBlock).twin_addr();
    fill(Mem::UB, 0);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, out, kBlock, Use::Atomic);
    sync_all(false, "SyncAll", Site::here());
    move(Pipe::MTE2, Mem::GM, out, Mem::UB, 512);
}

CORES_EXAMPLE(sum_read_at_once, "!hazard-raw|hazard-war", ASCEND_TWIN_AIV_ONLY, 2)
{
    const uint64_t out = gm.out<uint8_t>(kBlock).twin_addr();
    fill(Mem::UB, 0);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, out, kBlock, Use::Atomic);
    // The own part is there, that of the other core need not be.
    order(Pipe::MTE3, Pipe::MTE2);
    move(Pipe::MTE2, Mem::GM, out, Mem::UB, 512);
}

CORES_EXAMPLE(barrier_in_a_kernel_of_one_kind, "!cross-flag", ASCEND_TWIN_AIV_ONLY, 2)
{
    (void)gm;
    sync_all(false, "SyncAll", Site::here());
}

CORES_EXAMPLE(more_blocks_than_cores, "ok", ASCEND_TWIN_AIV_ONLY, 150)
{
    const uint64_t out = gm.raw<uint8_t>(150 * kBlock) - static_cast<uint8_t *>(nullptr);
    fill(Mem::UB, 0);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, out + block_index() * kBlock);
}

CORES_EXAMPLE(more_blocks_than_cores_wait_for_each_other, "!blocks", ASCEND_TWIN_MIX_AIV_1_0, 150)
{
    (void)gm;
    sync_all(false, "SyncAll", Site::here());
}

CORES_EXAMPLE(cube_to_vector, "ok", ASCEND_TWIN_MIX_1_2, 3)
{
    const uint64_t out = reinterpret_cast<uint64_t>(gm.raw<uint8_t>(3 * kBlock)) + block_index() * kBlock;
    if (is_cube()) {
        fill(Mem::L0C, 0, kBlock, Pipe::M);
        order(Pipe::M, Pipe::FIX);
        move(Pipe::FIX, Mem::L0C, 0, Mem::GM, out);
        cross_set(2, Pipe::FIX, 3, "CrossCoreSetFlag", Site::here());
        cross_wait(2, Pipe::FIX, 4, "CrossCoreWaitFlag", Site::here());
        move(Pipe::FIX, Mem::L0C, 0, Mem::GM, out);
    } else {
        cross_wait(2, Pipe::MTE2, 3, "CrossCoreWaitFlag", Site::here());
        move(Pipe::MTE2, Mem::GM, out + sub_block() * 128, Mem::UB, 0, 128);
        cross_set(2, Pipe::MTE2, 4, "CrossCoreSetFlag", Site::here());
    }
}

CORES_EXAMPLE(cube_to_vector_without_the_way_back, "!hazard-war|hazard-raw", ASCEND_TWIN_MIX_1_2, 1)
{
    const uint64_t out = reinterpret_cast<uint64_t>(gm.raw<uint8_t>(kBlock));
    if (is_cube()) {
        fill(Mem::L0C, 0, kBlock, Pipe::M);
        order(Pipe::M, Pipe::FIX);
        move(Pipe::FIX, Mem::L0C, 0, Mem::GM, out);
        cross_set(2, Pipe::FIX, 3, "CrossCoreSetFlag", Site::here());
        cross_wait(2, Pipe::S, 4, "CrossCoreWaitFlag", Site::here());
        barrier(Pipe::FIX);
        move(Pipe::FIX, Mem::L0C, 0, Mem::GM, out);
    } else {
        // Set before the read: says nothing about it.
        cross_set(2, Pipe::MTE2, 4, "CrossCoreSetFlag", Site::here());
        cross_wait(2, Pipe::MTE2, 3, "CrossCoreWaitFlag", Site::here());
        move(Pipe::MTE2, Mem::GM, out + sub_block() * 128, Mem::UB, 0, 128);
        cross_set(2, Pipe::MTE2, 5, "CrossCoreSetFlag", Site::here());
    }
    if (is_cube()) {
        cross_wait(2, Pipe::S, 5, "CrossCoreWaitFlag", Site::here());
    }
}

CORES_EXAMPLE(one_vector_core_does_not_answer, "!deadlock", ASCEND_TWIN_MIX_1_2, 2)
{
    (void)gm;
    if (is_cube()) {
        cross_wait(2, Pipe::FIX, 4, "CrossCoreWaitFlag", Site::here());
    } else if (sub_block() == 0) {
        cross_set(2, Pipe::MTE2, 4, "CrossCoreSetFlag", Site::here());
    }
}

CORES_EXAMPLE(flag_left_set, "!cross-flag", ASCEND_TWIN_MIX_1_2, 1)
{
    (void)gm;
    if (is_cube()) {
        cross_set(2, Pipe::FIX, 3, "CrossCoreSetFlag", Site::here());
    }
}

CORES_EXAMPLE(flag_overflows, "!cross-flag", ASCEND_TWIN_MIX_1_2, 1)
{
    (void)gm;
    for (int i = 0; i < 20; i++) {
        if (is_cube()) {
            cross_set(2, Pipe::FIX, 3, "CrossCoreSetFlag", Site::here());
        }
    }
    if (!is_cube()) {
        // Never taken before the sixteenth.
        cross_wait(2, Pipe::MTE2, 9, "CrossCoreWaitFlag", Site::here());
    }
}

CORES_EXAMPLE(pair_of_vector_cores, "ok", ASCEND_TWIN_MIX_1_2, 2)
{
    const uint64_t ws = gm.workspace() + block_index() * 1024;
    if (is_cube()) {
        return;
    }
    fill(Mem::UB, 0);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, ws + sub_block() * kBlock);
    cross_set(1, Pipe::MTE3, 2, "CrossCoreSetFlag", Site::here());
    cross_wait(1, Pipe::MTE2, 2, "CrossCoreWaitFlag", Site::here());
    move(Pipe::MTE2, Mem::GM, ws + (1 - sub_block()) * kBlock, Mem::UB, 512);
}

CORES_EXAMPLE(all_vector_cores_by_flag, "ok", ASCEND_TWIN_MIX_1_2, 4)
{
    const uint64_t ws = gm.workspace();
    if (is_cube()) {
        return;
    }
    const uint32_t me = block_index() * 2 + sub_block(), all = block_count() * 2;
    fill(Mem::UB, 0);
    order(Pipe::V, Pipe::MTE3);
    move(Pipe::MTE3, Mem::UB, 0, Mem::GM, ws + me * kBlock);
    cross_set(0, Pipe::MTE3, 2, "CrossCoreSetFlag", Site::here());
    cross_wait(0, Pipe::MTE2, 2, "CrossCoreWaitFlag", Site::here());
    move(Pipe::MTE2, Mem::GM, ws + (me + 3) % all * kBlock, Mem::UB, 512);
}

CORES_EXAMPLE(all_cores_barrier, "ok", ASCEND_TWIN_MIX_1_2, 3)
{
    const uint64_t ws = gm.workspace();
    if (is_cube()) {
        fill(Mem::L0C, 0, kBlock, Pipe::M);
        order(Pipe::M, Pipe::FIX);
        move(Pipe::FIX, Mem::L0C, 0, Mem::GM, ws + block_index() * kBlock);
        sync_all(true, "SyncAll", Site::here());
    } else {
        sync_all(true, "SyncAll", Site::here());
        move(Pipe::MTE2, Mem::GM, ws + (block_index() + 1) % 3 * kBlock, Mem::UB, 512);
    }
}

// Hand-over by unit flag, no events.
CUBE_EXAMPLE(unit_flag, "ok")
{
    const uint64_t out = gm.out<uint8_t>(kBlock).twin_addr();
    for (int round = 0; round < 4; round++) {
        Instr m;
        m.api = "Mmad";
        m.pipe = Pipe::M;
        m.unit_flag = 3;
        m.add("dst", Use::Write, Mem::L0C, Region{0, kBlock, 0, 0, 1, 1});
        m.put(Move{kBlock});
        m.effect = [](Exec &x, const Instr &i) { memset(x.at(i.operand[0]), 1, i.get<Move>().bytes); };
        issue(m);
        Instr f;
        f.api = "Fixpipe";
        f.pipe = Pipe::FIX;
        f.unit_flag = 3;
        f.add("src", Use::Read, Mem::L0C, Region{0, kBlock, 0, 0, 1, 1});
        f.add("dst", Use::Write, Mem::GM, Region{out, kBlock, 0, 0, 1, 1});
        f.put(Move{kBlock});
        f.effect = move_bytes;
        issue(f);
        barrier(Pipe::FIX);
    }
    finish();
}

EXAMPLES_END
