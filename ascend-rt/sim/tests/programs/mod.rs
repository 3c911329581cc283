// SPDX-License-Identifier: MIT OR Apache-2.0

//! Records as real kernels make them, for programs whose times are published: loads of L1 by rows, loads of L0, Mmad,
//! Fixpipe, vector instructions, and the flags between double buffers.

#![allow(dead_code, reason = "each test binary uses some of them")]

use ascend_sim::abi::Record;
use ascend_sim::cost::{CoreProgram, Program};

pub(crate) const V: u8 = 1;
pub(crate) const M: u8 = 2;
pub(crate) const MTE1: u8 = 3;
pub(crate) const MTE2: u8 = 4;
pub(crate) const MTE3: u8 = 5;
pub(crate) const FIX: u8 = 6;
pub(crate) const S: u8 = 0;

pub(crate) const GM: u8 = 0;
pub(crate) const L1: u8 = 1;
pub(crate) const L0A: u8 = 2;
pub(crate) const L0B: u8 = 3;
pub(crate) const L0C: u8 = 4;
pub(crate) const UB: u8 = 5;

pub(crate) const F32: u8 = 1;
pub(crate) const F16: u8 = 2;
pub(crate) const I8: u8 = 11;
pub(crate) const MX_E2M1: u8 = 21;

/// Collects the records of one core; names and sites are shared by all cores of a program.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) program: Program,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn core(&mut self, cube: bool, block: u32, sub_block: u32) {
        self.program.cores.push(CoreProgram { cube, block, sub_block, records: Vec::new() });
    }

    pub(crate) fn name(&mut self, name: &str) -> u16 {
        let names = &mut self.program.names;
        let at = names.iter().position(|n| n == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        at as u16
    }

    fn site(&mut self, line: u32) -> u32 {
        let sites = &mut self.program.sites;
        let at = sites.iter().position(|s| s.1 == line).unwrap_or_else(|| {
            sites.push(("kernel.cpp".to_owned(), line));
            sites.len() - 1
        });
        at as u32
    }

    pub(crate) fn push(&mut self, line: u32, record: Record) {
        let site = self.site(line);
        self.program.cores.last_mut().expect("a core").records.push(Record { site, ..record });
    }

    pub(crate) fn set(&mut self, line: u32, from: u8, to: u8, id: u32) {
        self.push(line, Record { kind: 1, pipe: from, pipe2: to, id: id as u8, ..Record::default() });
    }

    pub(crate) fn wait(&mut self, line: u32, from: u8, to: u8, id: u32) {
        self.push(line, Record { kind: 2, pipe: from, pipe2: to, id: id as u8, ..Record::default() });
    }

    pub(crate) fn barrier(&mut self, line: u32, pipe: u8) {
        self.push(line, Record { kind: 3, pipe, ..Record::default() });
    }

    pub(crate) fn cross_set(&mut self, line: u32, pipe: u8, mode: u8, id: u8) {
        self.push(line, Record { kind: 4, pipe, mode, id, ..Record::default() });
    }

    pub(crate) fn cross_wait(&mut self, line: u32, pipe: u8, mode: u8, id: u8) {
        self.push(line, Record { kind: 5, pipe, mode, id, ..Record::default() });
    }

    pub(crate) fn scalar(&mut self, line: u32, cycles: u32) {
        self.push(line, Record { kind: 7, a: [5, cycles, 0, 0], ..Record::default() });
    }

    pub(crate) fn vector(&mut self, line: u32, name: &str, bytes: u32, size: u32) {
        let api = self.name(name);
        let a = [bytes.div_ceil(256), size, bytes / size, 0];
        self.push(line, Record { pipe: V, api, a, ..Record::default() });
    }

    /// A copy of `rows` rows of `bytes` bytes, `pitch` apart.
    #[allow(clippy::too_many_arguments, reason = "it is what a copy is")]
    pub(crate) fn copy(
        &mut self,
        line: u32,
        pipe: u8,
        to: u8,
        at: u64,
        rows: u32,
        bytes: u64,
        pitch: u64,
        write: bool,
    ) -> &mut Record {
        let api = self.name("DataCopy");
        let record = Record {
            pipe,
            api,
            from: if write { UB } else { GM },
            to,
            a: [rows, bytes as u32, rows * bytes as u32, 0],
            gm_address: at,
            gm_bytes: bytes,
            gm_pitch1: if rows > 1 { pitch } else { bytes },
            gm_n1: rows,
            gm_n2: 1,
            gm_write: u8::from(write),
            ..Record::default()
        };
        self.push(line, record);
        self.program.cores.last_mut().and_then(|c| c.records.last_mut()).expect("just pushed")
    }

    pub(crate) fn load(&mut self, line: u32, name: &str, to: u8, bytes: u32, scales: u32) {
        let api = self.name(name);
        let a = [bytes.div_ceil(512), 0, bytes, scales];
        self.push(line, Record { pipe: MTE1, api, from: L1, to, a, ..Record::default() });
    }
}

const A: u64 = 1 << 32;
const B: u64 = 2 << 32;
const C: u64 = 3 << 32;
const SCALES_A: u64 = 4 << 32;
const SCALES_B: u64 = 5 << 32;
const WORK: u64 = 6 << 32;

/// z = x + y over `elements` halves, split evenly by rows of 8192, `tile` elements at a time.
pub(crate) fn add(blocks: u32, tile: u64, double: bool, past_l2: bool) -> Program {
    let (x, y, z) = (A, B, C);
    let mut r = Recorder::new();
    for block in 0..blocks {
        r.core(false, block, 0);
        let (base, rest) = (8192 / blocks, 8192 % blocks);
        let rows = if block < rest { base + 1 } else { base };
        let first = if block < rest { block * (base + 1) } else { rest * (base + 1) + (block - rest) * base };
        let (total, start) = (u64::from(rows) * 8192, u64::from(first) * 8192 * 2);
        let tiles = total.div_ceil(tile);
        if double {
            for id in 0..2 {
                r.set(1, V, MTE2, id);
                r.set(2, MTE3, V, id);
            }
        }
        for i in 0..tiles {
            let id = if double { (i % 2) as u32 } else { 0 };
            let (from, bytes) = (start + i * tile * 2, tile.min(total - i * tile) * 2);
            if double || i > 0 {
                r.wait(10, V, MTE2, id);
            }
            r.copy(11, MTE2, UB, x + from, 1, bytes, bytes, false).l2 = u8::from(past_l2);
            r.copy(12, MTE2, UB, y + from, 1, bytes, bytes, false).l2 = u8::from(past_l2);
            r.set(13, MTE2, V, id);
            r.wait(14, MTE2, V, id);
            if double || i > 0 {
                r.wait(15, MTE3, V, id);
            }
            r.vector(16, "Add", bytes as u32, 2);
            if double || i + 1 < tiles {
                r.set(17, V, MTE2, id);
            }
            r.set(18, V, MTE3, id);
            r.wait(19, V, MTE3, id);
            r.copy(20, MTE3, GM, z + from, 1, bytes, bytes, true);
            if double || i + 1 < tiles {
                r.set(21, MTE3, V, id);
            }
        }
        if double {
            for id in 0..2 {
                r.wait(30, V, MTE2, id);
                r.wait(31, MTE3, V, id);
            }
        }
        r.barrier(40, 255);
    }
    r.program
}

/// Gelu of 8192 x 8192 floats, `tile` elements at a time, double-buffered: the formula with tanh written as a quotient.
pub(crate) fn gelu(blocks: u32, tile: u64) -> Program {
    let mut r = Recorder::new();
    for block in 0..blocks {
        r.core(false, block, 0);
        let total = 8192 * 8192 / u64::from(blocks);
        let start = u64::from(block) * total * 4;
        for id in 0..2 {
            r.set(1, V, MTE2, id);
            r.set(2, MTE3, V, id);
        }
        for i in 0..total.div_ceil(tile) {
            let (id, from, bytes) = ((i % 2) as u32, start + i * tile * 4, tile.min(total - i * tile) * 4);
            r.wait(10, V, MTE2, id);
            r.copy(11, MTE2, UB, A + from, 1, bytes, bytes, false);
            r.set(12, MTE2, V, id);
            r.wait(13, MTE2, V, id);
            r.wait(14, MTE3, V, id);
            for name in ["Mul", "Mul", "Muls", "Add", "Muls", "Exp", "Adds", "Div"] {
                r.vector(15, name, bytes as u32, 4);
                r.barrier(16, V);
            }
            r.set(17, V, MTE2, id);
            r.set(18, V, MTE3, id);
            r.wait(18, V, MTE3, id);
            r.copy(19, MTE3, GM, C + from, 1, bytes, bytes, true);
            r.set(20, MTE3, V, id);
        }
        for id in 0..2 {
            r.wait(30, V, MTE2, id);
            r.wait(31, MTE3, V, id);
        }
    }
    r.program
}

/// Reads a matrix of halves: each core has `rows / blocks` rows of it and goes over them `repeats` times for each of
/// `parts` parts of the columns, in tiles. The cores are cube cores when `l1`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    pub(crate) blocks: u32,
    pub(crate) l1: bool,
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    pub(crate) tile: (u64, u64),
    pub(crate) parts: u64,
    pub(crate) repeats: u64,
}

pub(crate) fn sweep(p: &Sweep) -> Program {
    let mut r = Recorder::new();
    for block in 0..p.blocks {
        r.core(p.l1, block, 0);
        let mine = p.rows / u64::from(p.blocks);
        let first = mine * u64::from(block);
        let part = p.columns / p.parts;
        for split in 0..p.parts {
            for _ in 0..p.repeats {
                for row in (0..mine).step_by(p.tile.0 as usize) {
                    let mut column = 0;
                    while column < part {
                        let width = p.tile.1.min(part - column);
                        let at = A + ((first + row) * p.columns + split * part + column) * 2;
                        let to = if p.l1 { L1 } else { UB };
                        r.copy(5, MTE2, to, at, p.tile.0 as u32, width * 2, p.columns * 2, false);
                        column += width;
                    }
                }
            }
        }
    }
    r.program
}

/// C = A B' with A [m, k] and B [n, k], by tiles that are accumulated in L0C; L1 and L0 double-buffered.
#[derive(Clone, Debug)]
pub(crate) struct Matmul {
    pub(crate) blocks: u32,
    pub(crate) size: (u64, u64, u64),
    pub(crate) base: (u64, u64, u64),
    pub(crate) single: (u64, u64),
    pub(crate) steps: (u64, u64),
    /// Bits of an element of A and B.
    pub(crate) bits: u64,
    pub(crate) dtype: u8,
    /// Bytes of an element of C.
    pub(crate) out: u64,
    /// 2201 loads B by columns of fractals; 3510 in one instruction.
    pub(crate) new_loads: bool,
    pub(crate) unit_flag: bool,
    /// One load of scales for so many loads of A and B; 0: there are no scales.
    pub(crate) scale_steps: u64,
    /// Rounds over the rows.
    pub(crate) rounds: u64,
}

pub(crate) fn matmul(p: &Matmul) -> Program {
    let (m, n, k) = p.size;
    let (bm, bn, bk) = p.base;
    let row = k * p.bits / 8;
    let mut r = Recorder::new();
    let m_cores = m / (p.single.0 * p.rounds);
    for block in 0..p.blocks {
        r.core(true, block, 0);
        for round in 0..p.rounds {
            let mi = u64::from(block) % m_cores + round * m_cores;
            let ni = u64::from(block) / m_cores;
            let (m0, n0) = (mi * p.single.0, ni * p.single.1);
            if n0 >= n || m0 >= m {
                continue;
            }
            let (ml, nl) = (p.single.0.min(m - m0), p.single.1.min(n - n0));
            for id in 0..4 {
                r.set(1, MTE1, MTE2, id);
            }
            for id in 0..2 {
                r.set(2, M, MTE1, id);
            }
            let mut db = 0;
            for nb in (0..nl).step_by(bn as usize) {
                for mb in (0..ml).step_by(bm as usize) {
                    tile(p, &mut r, (m0 + mb, n0 + nb), (bm.min(ml - mb), bn.min(nl - nb)), &mut db, row, bk);
                }
            }
            for id in 0..2 {
                r.wait(90, M, MTE1, id);
            }
            for id in 0..4 {
                r.wait(91, MTE1, MTE2, id);
            }
        }
        r.barrier(99, 255);
    }
    r.program
}

fn tile(p: &Matmul, r: &mut Recorder, at: (u64, u64), size: (u64, u64), db: &mut u32, row: u64, bk: u64) {
    let k_steps = p.size.2 / bk;
    let bytes = |elements: u64| elements * p.bits / 8;
    let scale_row = p.size.2 / 32;
    let scale_step = p.scale_steps * p.steps.0;
    let load_a = |r: &mut Recorder, step: u64| {
        r.copy(10, MTE2, L1, A + at.0 * row + bytes(step * bk), size.0 as u32, bytes(bk * p.steps.0), row, false);
    };
    let load_b = |r: &mut Recorder, step: u64| {
        r.copy(11, MTE2, L1, B + at.1 * row + bytes(step * bk), size.1 as u32, bytes(bk * p.steps.1), row, false);
    };
    let load_scales = |r: &mut Recorder, step: u64| {
        let width = bk * scale_step / 32;
        let column = step * bk / 32;
        r.copy(12, MTE2, L1, SCALES_A + at.0 * scale_row + column, size.0 as u32, width, scale_row, false);
        r.copy(13, MTE2, L1, SCALES_B + at.1 * scale_row + column, size.1 as u32, width, scale_row, false);
    };
    // Buffers 0 and 1 are A's, 2 and 3 B's. With scales, A and B share 0 and 1, the scales have 2 and 3.
    let scaled = p.scale_steps > 0;
    let (mut next_a, mut next_b) = (0u64, 0u64);
    let copy_first = |r: &mut Recorder, next: &mut u64| {
        let id = ((*next / p.steps.0) % 2) as u32;
        r.wait(15, MTE1, MTE2, id);
        load_a(r, *next);
        if scaled {
            load_b(r, *next);
        }
        r.set(16, MTE2, MTE1, id);
        *next += p.steps.0;
    };
    let copy_second = |r: &mut Recorder, next: &mut u64| {
        let step = if scaled { scale_step } else { p.steps.1 };
        let id = 2 + ((*next / step) % 2) as u32;
        r.wait(17, MTE1, MTE2, id);
        if scaled {
            load_scales(r, *next);
        } else {
            load_b(r, *next);
        }
        r.set(18, MTE2, MTE1, id);
        *next += step;
    };
    let second = if scaled { scale_step } else { p.steps.1 };
    copy_first(r, &mut next_a);
    copy_second(r, &mut next_b);
    for k in 0..k_steps {
        r.wait(20, M, MTE1, *db);
        if k % p.steps.0 == 0 {
            r.wait(21, MTE2, MTE1, ((k / p.steps.0) % 2) as u32);
        }
        if k % second == 0 {
            r.wait(22, MTE2, MTE1, 2 + ((k / second) % 2) as u32);
        }
        let (a, b) = (bytes(size.0 * bk) as u32, bytes(size.1 * bk) as u32);
        if p.new_loads {
            let scales = |rows: u64| if scaled { (rows * bk / 32) as u32 } else { 0 };
            r.load(23, "LoadData", L0A, a, scales(size.0));
            r.load(24, "LoadData", L0B, b, scales(size.1));
        } else {
            r.load(23, "LoadData3D", L0A, a, 0);
            for _ in 0..bk / 16 {
                r.load(24, "LoadData", L0B, b / (bk / 16) as u32, 0);
            }
        }
        if k % p.steps.0 + 1 == p.steps.0 {
            r.set(25, MTE1, MTE2, ((k / p.steps.0) % 2) as u32);
        }
        if k % second + 1 == second {
            r.set(26, MTE1, MTE2, 2 + ((k / second) % 2) as u32);
        }
        r.set(27, MTE1, M, *db);
        r.wait(28, MTE1, M, *db);
        let api = r.name("Mmad");
        let a = [size.0 as u32, size.1 as u32, bk as u32, if p.unit_flag { 2 } else { 0 }];
        r.push(29, Record { pipe: M, api, dtype: p.dtype, a, ..Record::default() });
        r.set(30, M, MTE1, *db);
        *db ^= 1;
        if (k == 0 || k % second + 1 == second) && next_b < k_steps {
            copy_second(r, &mut next_b);
        }
        if (k == 0 || k % p.steps.0 + 1 == p.steps.0) && next_a < k_steps {
            copy_first(r, &mut next_a);
        }
    }
    if !p.unit_flag {
        r.set(40, M, FIX, 0);
        r.wait(41, M, FIX, 0);
    }
    let to = C + (at.0 * p.size.1 + at.1) * p.out;
    fixpipe(r, to, size, p.out, p.size.1 * p.out);
    if !p.unit_flag {
        r.set(43, FIX, M, 0);
        r.wait(44, FIX, M, 0);
    }
}

fn fixpipe(r: &mut Recorder, at: u64, size: (u64, u64), bytes: u64, pitch: u64) {
    let api = r.name("Fixpipe");
    let record = r.copy(42, FIX, GM, at, size.0 as u32, size.1 * bytes, pitch, true);
    record.api = api;
    record.from = L0C;
    record.a = [size.0 as u32, size.1 as u32, bytes as u32, 0];
}

/// Int8 grouped matmul of `rows` rows in groups of 1024, K 1024, N 8192; the vector cores scale, apply a fast Gelu and write
/// halves. The result of a tile goes through a ring of `depth` slots in GM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grouped {
    pub(crate) rows: u64,
    pub(crate) blocks: u32,
    pub(crate) vectors: u32,
    pub(crate) depth: u64,
    pub(crate) base_m: u64,
    /// 3510: what the high-level calls do is one loop over registers, bound by its slowest operation.
    pub(crate) fused: bool,
}

pub(crate) fn grouped(p: &Grouped) -> Program {
    let (k, n, bn, bk, single_n) = (1024u64, 8192u64, 256u64, 128u64, 1024u64);
    let tiles_m = p.rows / p.base_m;
    let count = tiles_m * (n / single_n);
    let slot = p.base_m * bn * 4;
    let mut r = Recorder::new();
    for core in 0..u64::from(p.blocks) {
        let work = || (core..count).step_by(p.blocks as usize).map(|b| (b / (n / single_n), b % (n / single_n)));
        let ring = |task: u64| WORK + slot * (core + (task % p.depth) * u64::from(p.blocks));
        r.core(true, core as u32, 0);
        for id in 0..4 {
            r.set(1, MTE1, MTE2, id);
        }
        for id in 0..2 {
            r.set(2, M, MTE1, id);
        }
        let (mut task, mut db, mut buffer) = (0, 0, 0u32);
        for (index, (mi, ni)) in work().enumerate() {
            let group = mi * p.base_m / 1024;
            let a = (index % 2) as u32;
            r.wait(10, MTE1, MTE2, a);
            r.copy(11, MTE2, L1, A + mi * p.base_m * k, p.base_m as u32, k, k, false);
            r.set(12, MTE2, MTE1, a);
            for iterate in 0..single_n / bn {
                let column = ni * single_n + iterate * bn;
                for step in 0..k / bk {
                    r.scalar(13, 200);
                    if step % 4 == 0 {
                        let id = 2 + buffer % 2;
                        r.wait(14, MTE1, MTE2, id);
                        // NZ: columns of 32, each with all rows of K.
                        let at = B + group * n * k + column * k + step * bk * 32;
                        r.copy(15, MTE2, L1, at, (bn / 32) as u32, 4 * bk * 32, k * 32, false);
                        r.set(16, MTE2, MTE1, id);
                    }
                    r.wait(20, M, MTE1, db);
                    if step == 0 && iterate == 0 {
                        r.wait(21, MTE2, MTE1, a);
                    }
                    if step % 4 == 0 {
                        r.wait(22, MTE2, MTE1, 2 + buffer % 2);
                    }
                    r.load(23, if p.fused { "LoadData" } else { "LoadData3D" }, L0A, (p.base_m * bk) as u32, 0);
                    let loads = if p.fused { 1 } else { 4 };
                    for _ in 0..loads {
                        r.load(24, "LoadData", L0B, (bn * bk) as u32 / loads, 0);
                    }
                    if step % 4 == 3 {
                        r.set(25, MTE1, MTE2, 2 + buffer % 2);
                        buffer += 1;
                    }
                    r.set(27, MTE1, M, db);
                    r.wait(28, MTE1, M, db);
                    let api = r.name("Mmad");
                    let a = [p.base_m as u32, bn as u32, bk as u32, 2];
                    r.push(29, Record { pipe: M, api, dtype: I8, a, ..Record::default() });
                    r.set(30, M, MTE1, db);
                    db ^= 1;
                }
                if task >= p.depth {
                    r.cross_wait(40, S, 2, 3);
                }
                fixpipe(&mut r, ring(task), (p.base_m, bn), 4, bn * 4);
                r.cross_set(43, FIX, 2, 5);
                task += 1;
            }
            r.set(44, MTE1, MTE2, a);
        }
        for _ in 0..p.depth.min(task) {
            r.cross_wait(50, S, 2, 3);
        }
        for id in 0..4 {
            r.wait(51, MTE1, MTE2, id);
        }
        for id in 0..2 {
            r.wait(52, M, MTE1, id);
        }
        for sub in 0..p.vectors {
            r.core(false, core as u32, sub);
            for id in 0..2 {
                r.set(60, V, MTE2, id);
                r.set(61, V, MTE2, 2 + id);
                r.set(62, V, MTE2, 4 + id);
                r.set(63, MTE3, V, id);
            }
            let (mut task, mut turn, mut scales) = (0, 0u32, 0u32);
            for (mi, ni) in work() {
                // The split over the two vector cores begins anew with each block, as in the kernel.
                let mut counted = 0;
                for iterate in 0..single_n / bn {
                    let column = ni * single_n + iterate * bn;
                    let id = 4 + scales % 2;
                    scales += 1;
                    r.wait(64, V, MTE2, id);
                    r.copy(65, MTE2, UB, SCALES_B + column * 4, 1, bn * 4, 0, false);
                    r.set(66, MTE2, V, id);
                    r.wait(67, MTE2, V, id);
                    r.cross_wait(68, S, 2, 5);
                    for row in (0..p.base_m).step_by(24) {
                        counted += 1;
                        if counted % p.vectors != sub {
                            continue;
                        }
                        let rows = 24.min(p.base_m - row);
                        rows_of_tile(p, &mut r, turn, rows, ring(task) + row * bn * 4, SCALES_A + row * 4, {
                            C + ((mi * p.base_m + row) * n + column) * 2
                        });
                        turn += 1;
                    }
                    r.set(88, V, MTE2, id);
                    r.cross_set(89, MTE2, 2, 3);
                    task += 1;
                }
            }
            for id in 0..2 {
                r.wait(90, V, MTE2, id);
                r.wait(91, V, MTE2, 2 + id);
                r.wait(92, V, MTE2, 4 + id);
                r.wait(93, MTE3, V, id);
            }
        }
    }
    r.program
}

fn rows_of_tile(p: &Grouped, r: &mut Recorder, turn: u32, rows: u64, from: u64, token: u64, to: u64) {
    let bytes = (rows * 256 * 4) as u32;
    let id = turn % 2;
    r.scalar(69, 400);
    r.wait(70, V, MTE2, id);
    r.copy(71, MTE2, UB, from, 1, u64::from(bytes), 0, false);
    r.set(72, MTE2, V, id);
    r.wait(73, V, MTE2, 2 + id);
    r.copy(74, MTE2, UB, token, 1, rows * 4, 0, false);
    r.set(75, MTE2, V, 2 + id);
    r.wait(76, MTE2, V, 2 + id);
    let vector = |r: &mut Recorder, line, name, size| {
        r.vector(line, name, bytes, size);
        r.barrier(line, V);
    };
    r.vector(77, "Brcb", (rows * 4).div_ceil(32) as u32 * 256, 4);
    vector(r, 77, "Copy", 4);
    r.set(78, V, MTE2, 2 + id);
    r.wait(79, MTE2, V, id);
    if !p.fused {
        vector(r, 80, "Cast", 4);
    }
    vector(r, 80, "Mul", 4);
    r.set(81, V, MTE2, id);
    vector(r, 82, "Mul", 4);
    if p.fused {
        vector(r, 83, "Exp", 4);
    } else {
        for name in ["Muls", "Exp", "Adds", "Div"] {
            vector(r, 83, name, 4);
        }
    }
    r.wait(84, MTE3, V, id);
    vector(r, 85, "Cast", 4);
    r.set(86, V, MTE3, id);
    r.wait(86, V, MTE3, id);
    r.copy(87, MTE3, GM, to, rows as u32, 512, 8192 * 2, true);
    r.set(87, MTE3, V, id);
}
