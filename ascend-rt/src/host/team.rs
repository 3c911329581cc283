// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cores that wait for each other.
//!
//! Each core of such a launch is a thread, but one runs at a time: it hands the baton on at a barrier and at its end.
//! So a run has an order (by number, or shuffled by a seed), needs no atomics in the kernel, and a dead-lock is seen at
//! once: it is there when all live cores are at a barrier and one has ended without coming to it.

use core::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::kernel::{BlockFn, KernelFault, LaunchCtx};
use super::run::{block_ctx, caught};
use super::state::Rng;
use super::sync::lock;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    Ready,
    AtBarrier,
    Done,
}

struct Inner {
    members: Vec<Member>,
    /// Who has the baton.
    turn: Option<usize>,
    rng: Option<Rng>,
    /// Why the team gave up.
    stopped: Option<KernelFault>,
}

/// The cores of one launch.
pub(super) struct Team {
    inner: Mutex<Inner>,
    bells: Vec<Condvar>,
}

impl Team {
    fn new(count: usize, shuffle: Option<u64>) -> Team {
        let mut inner =
            Inner { members: vec![Member::Ready; count], turn: None, rng: shuffle.map(Rng::new), stopped: None };
        inner.pass_on(0);
        Team { inner: Mutex::new(inner), bells: (0..count).map(|_| Condvar::new()).collect() }
    }

    fn ring(&self, inner: &Inner) {
        match (&inner.stopped, inner.turn) {
            (None, Some(turn)) => self.bells[turn].notify_one(),
            _ => self.bells.iter().for_each(Condvar::notify_one),
        }
    }

    /// Waits for the baton.
    fn take<'a>(&'a self, mut inner: MutexGuard<'a, Inner>, seat: usize) -> Result<(), KernelFault> {
        loop {
            if let Some(fault) = &inner.stopped {
                return Err(fault.clone());
            }
            if inner.turn == Some(seat) {
                return Ok(());
            }
            inner = self.bells[seat].wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn arrive(&self, seat: usize) -> Result<(), KernelFault> {
        let mut inner = lock(&self.inner);
        inner.members[seat] = Member::AtBarrier;
        inner.pass_on(seat);
        self.ring(&inner);
        self.take(inner, seat)
    }

    fn end(&self, seat: usize, result: Result<(), KernelFault>) {
        let mut inner = lock(&self.inner);
        inner.members[seat] = Member::Done;
        if let Err(fault) = result {
            inner.stopped.get_or_insert(fault);
        }
        inner.pass_on(seat);
        self.ring(&inner);
    }
}

impl Inner {
    /// Gives the baton to a core that can go on; opens the barrier when all have come.
    fn pass_on(&mut self, from: usize) {
        let count = self.members.len();
        let ready = self.members.iter().filter(|member| **member == Member::Ready).count();
        let waiting = self.members.iter().filter(|member| **member == Member::AtBarrier).count();
        if ready == 0 && waiting > 0 {
            if waiting < count {
                self.stopped.get_or_insert_with(|| {
                    KernelFault::timeout(format!(
                        "{waiting} of its {count} cores wait at a barrier that the others passed by: a dead-lock"
                    ))
                });
                return;
            }
            self.members.fill(Member::Ready);
        }
        let mut candidates =
            (1..=count).map(|step| (from + step) % count).filter(|at| self.members[*at] == Member::Ready);
        self.turn = match &mut self.rng {
            None => candidates.next(),
            Some(rng) => {
                let ready = candidates.clone().count();
                if ready == 0 { None } else { candidates.nth(rng.below(ready)) }
            }
        };
    }
}

/// The place of a core in its team.
#[derive(Clone, Copy)]
pub(super) struct Seat<'a> {
    team: Option<(&'a Team, usize)>,
    /// Cores of the launch.
    count: u64,
}

impl Seat<'_> {
    /// A core of a kernel whose cores do not wait for each other.
    pub(super) fn alone(count: u64) -> Seat<'static> {
        Seat { team: None, count }
    }

    /// Waits until all cores of the launch have come here.
    pub(super) fn sync_all(&self) -> Result<(), KernelFault> {
        match self.team {
            Some((team, seat)) => team.arrive(seat),
            None if self.count <= 1 => Ok(()),
            None => {
                Err(KernelFault::exception("its cores wait for each other, but it was registered without a barrier"))
            }
        }
    }
}

impl fmt::Debug for Seat<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seat({:?})", self.team.map(|(_, seat)| seat))
    }
}

/// Runs all cores of a launch, each on its thread.
pub(super) fn run_team(
    context: &LaunchCtx<'_>,
    run: &Arc<BlockFn>,
    per_block: u32,
    shuffle: Option<u64>,
) -> Result<(), KernelFault> {
    let count = context.blocks as usize * per_block as usize;
    let team = Team::new(count, shuffle);
    std::thread::scope(|scope| {
        for seat in 0..count {
            let team = &team;
            let body = move || {
                let _inside = super::thread::InsideTask::enter();
                let started = team.take(lock(&team.inner), seat);
                let result = started.and_then(|()| {
                    let seat = Seat { team: Some((team, seat)), count: count as u64 };
                    caught(|| run(&block_ctx(context, per_block, seat.team.map_or(0, |(_, at)| at as u64), seat)))
                });
                team.end(seat, result);
            };
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, body) {
                team.end(seat, Err(KernelFault::exception(format!("no thread for a core: {error}"))));
            }
        }
    });
    match team.inner.into_inner().unwrap_or_else(PoisonError::into_inner).stopped {
        Some(fault) => Err(fault),
        None => Ok(()),
    }
}
