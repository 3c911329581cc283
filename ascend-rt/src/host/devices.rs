// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls about devices and contexts.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use super::exec::Need;
use super::fail::{Answer, Fail};
use super::machine::{Machine, usage};
use super::slab::Key;
use super::state::{Context, State, Stream};
use super::sync::lock;
use super::thread;
use crate::sys::*;

/// The version of the interface that the emulator follows: 9.1.0.
pub(super) const VERSION: i32 = 90_100_000;

impl Machine {
    pub(super) fn init(&self) -> Answer {
        let mut s = self.state();
        s.inits += 1;
        if s.inits > 1 {
            return Err(Fail::new(ACL_ERROR_REPEAT_INITIALIZE, "initialised before"));
        }
        Ok(())
    }

    pub(super) fn finalize(&self) -> Answer {
        let mut s = self.state();
        if core::mem::take(&mut s.inits) == 0 {
            return Err(Fail::new(ACL_ERROR_REPEAT_FINALIZE, "not initialised, or finalised before"));
        }
        Ok(())
    }

    pub(super) fn finalize_reference(&self) -> Answer<u64> {
        let mut s = self.state();
        if s.inits == 0 {
            return Err(Fail::new(ACL_ERROR_REPEAT_FINALIZE, "not initialised, or finalised before"));
        }
        s.inits -= 1;
        Ok(s.inits)
    }

    /// A new context with its default stream.
    fn new_context(&self, s: &mut State, device: u32, primary: bool) -> Answer<Key> {
        if s.devices[device as usize].lost {
            return Err(Self::lost(device));
        }
        self.take_stream(s, device, ACL_ERROR_RT_NO_STREAM_RESOURCE)?;
        let none_left = || Fail::new(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "no handle is left");
        let context = Context { device, primary, default_stream: Key::NULL, stop: false, stopped: None };
        let context = s.contexts.insert(context).ok_or_else(none_left)?;
        let id = s.next_stream_id;
        s.next_stream_id = id.wrapping_add(1);
        let stream = s.streams.insert(Stream::new(context, device, id, true)).ok_or_else(none_left)?;
        if let Some(context) = s.contexts.get_mut(context) {
            context.default_stream = stream;
        }
        Ok(context)
    }

    fn make_current(&self, context: Key) {
        thread::with(&self.identity, |state| state.context = context);
    }

    pub(super) fn set_device(&self, device: i32) -> Answer {
        let device = self.device(device)?;
        let mut s = self.state();
        let context = match s.devices[device as usize].primary {
            Some(context) => context,
            None => self.new_context(&mut s, device, true)?,
        };
        let counted = &mut s.devices[device as usize];
        counted.primary = Some(context);
        counted.primary_count += 1;
        self.make_current(context);
        Ok(())
    }

    pub(super) fn reset_device(&self, device: i32, force: bool) -> Answer {
        let device = self.device(device)?;
        let mut s = self.state();
        let counted = &mut s.devices[device as usize];
        let Some(context) = counted.primary else {
            return Err(Fail::new(
                ACL_ERROR_RT_CONTEXT_NULL,
                format!("device {device} was not set, or was reset before"),
            ));
        };
        counted.primary_count = if force { 0 } else { counted.primary_count - 1 };
        if counted.primary_count > 0 {
            return Ok(());
        }
        if !force {
            s = self.wait(s, Need::Context(context), None).0;
        }
        // Somebody may have set the device while this call waited.
        if s.devices[device as usize].primary == Some(context) && s.devices[device as usize].primary_count == 0 {
            s.devices[device as usize].primary = None;
            self.remove_context(&mut s, context);
        }
        Ok(())
    }

    pub(super) fn create_context(&self, device: i32) -> Answer<Key> {
        let device = self.device(device)?;
        let context = self.new_context(&mut self.state(), device, false)?;
        self.make_current(context);
        Ok(context)
    }

    pub(super) fn destroy_context(&self, context: aclrtContext) -> Answer {
        let key = Key::of(context);
        let s = self.state();
        match s.contexts.get(key) {
            None => return Err(Fail::new(ACL_ERROR_RT_CONTEXT_NULL, format!("{context:?} is no live context"))),
            Some(found) if found.primary => {
                return usage("a primary context is destroyed by resetting its device");
            }
            Some(_) => {}
        }
        let (mut s, _) = self.wait(s, Need::Context(key), None);
        self.remove_context(&mut s, key);
        Ok(())
    }

    /// Removes a context and everything that belongs to it.
    fn remove_context(&self, s: &mut State, context: Key) {
        let Some(found) = s.contexts.remove(context) else { return };
        for capture in s.captures.keys(|capture| capture.context == context) {
            Self::leave(s, capture);
        }
        for stream in s.streams.keys(|stream| stream.context == context) {
            self.remove_stream(s, stream);
        }
        for event in s.events.keys(|event| event.context == context) {
            self.remove_event(s, event);
        }
        for graph in s.graphs.keys(|graph| graph.context == context) {
            self.drop_graph(s, graph);
        }
        for module in s.modules.keys(|module| module.context == context) {
            Self::remove_module(s, module);
        }
        // No promise says that memory outlives the context that was current when it was made; a program that relies on
        // it shall see it.
        let left = lock(&self.devices[found.device as usize].arena).of_context(context.0);
        if !left.is_empty() {
            s.unseen.push(format!("a context was destroyed with {} live allocations, which went with it", left.len()));
            for address in left {
                let _ = lock(&self.devices[found.device as usize].arena).free(address);
            }
        }
    }

    pub(super) fn set_current(&self, context: aclrtContext) -> Answer {
        let key = Key::of(context);
        if key.is_null() {
            return usage("a null context");
        }
        let s = self.state();
        if !s.contexts.contains(key) {
            return Err(Fail::new(ACL_ERROR_RT_CONTEXT_NULL, format!("{context:?} is no live context")));
        }
        self.make_current(key);
        Ok(())
    }

    pub(super) fn sync_device(&self, timeout: i32) -> Answer {
        let limit = Self::limit(timeout)?;
        let s = self.state();
        let context = self.current(&s)?;
        if let Some((_, stream)) =
            s.streams.iter().find(|(_, stream)| stream.context == context && stream.capture.is_some())
        {
            return Err(Fail::new(
                ACL_ERROR_RT_STREAM_CAPTURED,
                format!("stream {} of the context is captured: the device cannot be waited for now", stream.id),
            ));
        }
        if self.faults.sync_timeout() {
            return Err(Fail::new(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "planned to time out"));
        }
        let (mut s, done) = self.wait(s, Need::Context(context), limit);
        let end = s.streams.iter().filter(|(_, stream)| stream.context == context).map(|(_, stream)| stream.end).max();
        self.pass_time(end.unwrap_or(0), limit, done, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT)?;
        let mut failed = s.streams.keys(|stream| stream.context == context && stream.error.is_some());
        failed.sort_by_key(|key| s.streams.get(*key).map(|stream| stream.failed_at));
        let mut first = None;
        for key in failed {
            let fail = self.take_error(&mut s, key);
            first = first.or(fail.err());
        }
        match first {
            Some(fail) => Err(fail),
            None => {
                if let Some(stopped) = s.contexts.get(context).and_then(|context| context.stopped.clone()) {
                    return Err(stopped);
                }
                self.current(&s)?;
                drop(s);
                self.take_damage()
            }
        }
    }

    /// Moves the host's time to the end of what it waited for, or refuses because the limit comes before.
    pub(super) fn pass_time(
        &self,
        end: u64,
        limit: Option<core::time::Duration>,
        done: bool,
        code: aclError,
    ) -> Answer {
        let Some(limit) = limit else {
            self.at_least(end);
            return Ok(());
        };
        let until = self.now().saturating_add(super::config::nanoseconds(limit));
        if done && end <= until {
            self.at_least(end);
            return Ok(());
        }
        self.at_least(until);
        Err(Fail::new(code, format!("not done within {limit:?}; the work goes on")))
    }

    pub(super) fn device_info(&self, device: u32, attribute: aclrtDevAttr) -> Answer<i64> {
        let index = self.device(i32::try_from(device).unwrap_or(-1))?;
        let chip = &self.devices[index as usize].chip;
        let memory = lock(&self.devices[index as usize].arena).capacity();
        let value = match attribute {
            ACL_DEV_ATTR_AICPU_CORE_NUM => 6,
            ACL_DEV_ATTR_AICORE_CORE_NUM | ACL_DEV_ATTR_CUBE_CORE_NUM => chip.cube_cores.into(),
            ACL_DEV_ATTR_VECTOR_CORE_NUM => chip.vector_cores.into(),
            ACL_DEV_ATTR_UBUF_PER_VECTOR_CORE => chip.ub as i64,
            ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE => i64::try_from(memory).unwrap_or(i64::MAX),
            ACL_DEV_ATTR_L2_CACHE_SIZE => chip.l2 as i64,
            ACL_DEV_ATTR_PHY_CHIP_ID => index.into(),
            ACL_DEV_ATTR_IS_VIRTUAL => 0,
            ACL_DEV_ATTR_NPU_ARCH => chip.arch,
            other => return usage(format!("attribute {other:?} is not known here")),
        };
        Ok(value)
    }

    pub(super) fn device_capability(&self, device: u32, info: aclDeviceInfo) -> Answer<i64> {
        let attribute = match info {
            ACL_DEVICE_INFO_AI_CORE_NUM => ACL_DEV_ATTR_AICORE_CORE_NUM,
            ACL_DEVICE_INFO_VECTOR_CORE_NUM => ACL_DEV_ATTR_VECTOR_CORE_NUM,
            ACL_DEVICE_INFO_L2_SIZE => ACL_DEV_ATTR_L2_CACHE_SIZE,
            other => return usage(format!("{other:?} is not known here")),
        };
        self.device_info(device, attribute)
    }

    pub(super) fn memory_info(&self, attribute: aclrtMemAttr) -> Answer<(usize, usize)> {
        let device = self.current_device(&self.state())?;
        if attribute.0 > ACL_HBM_MEM_P2P_HUGE1G.0 {
            return usage(format!("{attribute:?} is not known here"));
        }
        let arena = lock(&self.devices[device as usize].arena);
        Ok((
            usize::try_from(arena.free_bytes()).unwrap_or(usize::MAX),
            usize::try_from(arena.capacity()).unwrap_or(usize::MAX),
        ))
    }

    pub(super) fn can_access_peer(&self, device: i32, peer: i32) -> Answer<bool> {
        Ok(self.device(device)? != self.device(peer)?)
    }

    pub(super) fn enable_peer(&self, peer: i32, flags: u32) -> Answer {
        let peer = self.device(peer)?;
        let mut s = self.state();
        let device = self.current_device(&s)?;
        if flags != 0 || peer == device {
            return usage(format!(
                "peer {peer} of device {device} with flags {flags}: expected another device and flags 0"
            ));
        }
        let peers = &mut s.devices[device as usize].peers;
        if !peers.contains(&peer) {
            peers.push(peer);
        }
        Ok(())
    }

    pub(super) fn arch_compatible(&self, soc: &str) -> Answer<bool> {
        let Ok(chip) = super::chip::Chip::preset(soc) else { return usage(format!("no chip is called {soc:?}")) };
        Ok(self.devices.first().is_some_and(|device| device.chip.arch == chip.arch))
    }

    pub(super) fn set_op_timeout(&self, micros: u64) -> Answer<u64> {
        // The hardware counts in steps; here, of a millisecond.
        let actual = micros.checked_next_multiple_of(1000).filter(|actual| *actual > 0);
        let Some(actual) = actual else { return usage(format!("a time limit of {micros} µs")) };
        self.op_timeout.store(actual.saturating_mul(1000), Ordering::Relaxed);
        Ok(actual)
    }

    /// What is left, for the report.
    pub(super) fn report(&self) -> super::report::HostReport {
        let mut damage = Vec::new();
        let mut device_memory = Vec::new();
        for (index, device) in self.devices.iter().enumerate() {
            let _token = self.token(index as u32);
            let arena = lock(&device.arena);
            arena.check(&mut damage);
            device_memory.extend(arena.leaks().into_iter().map(|leak| (index as u32, leak)));
        }
        let s = self.state();
        let mut unseen = s.unseen.clone();
        unseen.extend(lock(&self.damage).iter().cloned());
        unseen.extend(damage);
        unseen
            .extend(s.streams.iter().filter_map(|(_, stream)| stream.error.as_ref()).map(|fail| fail.text.to_string()));
        let pinned = lock(&self.pinned);
        super::report::HostReport {
            device_memory,
            pinned_memory: pinned.leaks(),
            registered_ranges: pinned.registered(),
            contexts: s.contexts.len(),
            streams: s.streams.iter().filter(|(_, stream)| !stream.default).count(),
            events: s.events.len(),
            modules: s.modules.len(),
            graphs: s.graphs.len(),
            queued_tasks: s.streams.iter().map(|(_, stream)| stream.queue.len() + usize::from(stream.busy)).sum(),
            unseen,
        }
    }

    /// Ends the threads. Tasks that are queued do not run any more.
    pub(super) fn shut_down(self: &Arc<Self>) {
        let in_program = {
            let mut s = self.state();
            s.shutdown = true;
            self.host_cv.notify_all();
            self.callback_cv.notify_all();
            for (_, stream) in s.streams.iter() {
                if let Some(worker) = &stream.worker {
                    worker.notify_all();
                }
            }
            s.user_code > 0
        };
        for worker in lock(&self.workers).drain(..) {
            // A function of the program that never returns must not keep the one who drops the machine; and a thread
            // cannot wait for itself.
            if !in_program && worker.thread().id() != std::thread::current().id() {
                let _ = worker.join();
            }
        }
    }
}
