// SPDX-License-Identifier: MIT OR Apache-2.0

//! The emulator under the names of AscendCL: pointers in, codes out.
//!
//! Each method checks its pointers, calls the part of the emulator that does the work, and writes the results. What is
//! common to all of them is in [`Host::call`] and [`Host::submission`].

use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Host;
use super::devices::VERSION;
use super::fail::{Answer, Fail};
use super::machine::{Machine, usage};
use super::modules::{Arguments, LaunchAttributes};
use super::slab::Key;
use super::state::UserCall;
use super::sync::lock;
use super::thread::{self, InsideTask};
use super::transfers::CopyCall;
use crate::raw::{Call, NOT_AVAILABLE, Raw};
use crate::sys::*;
use std::sync::Arc;

/// Calls that a task (a kernel, a host function) may make: they neither wait nor submit nor allocate.
fn allowed_in_task(call: Call) -> bool {
    matches!(
        call,
        Call::aclGetRecentErrMsg
            | Call::aclrtGetLastError
            | Call::aclrtPeekAtLastError
            | Call::aclrtGetSocName
            | Call::aclsysGetVersionNum
            | Call::aclsysGetCANNVersion
            | Call::aclrtGetDeviceCount
            | Call::aclrtSetDevice
            | Call::aclrtGetDevice
            | Call::aclrtGetDeviceInfo
            | Call::aclGetDeviceCapability
            | Call::aclrtGetMemInfo
            | Call::aclrtSetCurrentContext
            | Call::aclrtGetCurrentContext
            | Call::aclrtDeviceCanAccessPeer
            | Call::aclrtDestroyStreamForce
            | Call::aclrtStreamQuery
            | Call::aclrtStreamGetId
            | Call::aclrtGetStreamAvailableNum
            | Call::aclrtDestroyEvent
            | Call::aclrtQueryEventStatus
            | Call::aclrtEventElapsedTime
            | Call::aclrtFree
            | Call::aclrtFreeHost
            | Call::aclrtHostUnregister
            | Call::aclrtPointerGetAttributes
            | Call::aclrtBinaryUnLoad
            | Call::aclrtGetFunctionAttribute
            | Call::aclrtCheckArchCompatibility
            | Call::aclmdlRICaptureGetInfo
            | Call::aclmdlRICaptureThreadExchangeMode
            | Call::mstxMarkA
            | Call::mstxDomainMarkA
            | Call::mstxRangeStartA
            | Call::mstxDomainRangeStartA
            | Call::mstxRangeEnd
            | Call::mstxDomainRangeEnd
    )
}

/// The text of a C string, 107000 for null or other bytes than UTF-8.
///
/// # Safety
///
/// The pointer is null or points to a string that ends with a zero.
unsafe fn text<'a>(pointer: *const c_char) -> Answer<&'a str> {
    if pointer.is_null() {
        return usage("a null string");
    }
    // SAFETY: by the contract of the function.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().or_else(|_| usage("a string that is no UTF-8"))
}

/// The bytes of a range, 107000 for null or none.
///
/// # Safety
///
/// The pointer is null or points to so many bytes.
unsafe fn bytes<'a>(pointer: *const c_void, length: usize) -> Answer<&'a [u8]> {
    if pointer.is_null() || length == 0 || isize::try_from(length).is_err() {
        return usage(format!("{length} bytes at {pointer:?}"));
    }
    // SAFETY: by the contract of the function.
    Ok(unsafe { core::slice::from_raw_parts(pointer.cast(), length) })
}

/// The elements of a list, which may be empty.
///
/// # Safety
///
/// The pointer points to so many elements, unless their number is zero.
unsafe fn list<'a, T>(pointer: *const T, length: usize) -> Answer<&'a [T]> {
    if length == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() || !pointer.is_aligned() || length > 1 << 20 {
        return usage(format!("{length} elements at {pointer:?}"));
    }
    // SAFETY: by the contract of the function.
    Ok(unsafe { core::slice::from_raw_parts(pointer, length) })
}

/// A place for a result, 107000 for null.
fn place<T>(pointer: *mut T) -> Answer<*mut T> {
    if pointer.is_null() {
        return usage("a null pointer for a result");
    }
    Ok(pointer)
}

/// Writes a result.
///
/// # Safety
///
/// The pointer is null or may be written to.
unsafe fn give<T>(pointer: *mut T, result: impl FnOnce() -> Answer<T>) -> Answer {
    let pointer = place(pointer)?;
    let value = result()?;
    // SAFETY: by the contract of the function, and it is not null.
    unsafe { pointer.write(value) };
    Ok(())
}

impl Host {
    /// What every call begins and ends with: whether it is there, whether it is planned to fail, whether it is made in
    /// a task; and at its end the code and its message, whatever happens in between.
    fn call(&self, call: Call, f: impl FnOnce(&Arc<Machine>) -> Answer) -> aclError {
        if !self.has(call) {
            return NOT_AVAILABLE;
        }
        self.machine.count(call);
        let answer = catch_unwind(AssertUnwindSafe(|| {
            if let Some(code) = self.machine.faults.call(call) {
                return Err(Fail::new(code, "planned to fail"));
            }
            if InsideTask::now() && !allowed_in_task(call) {
                return usage("a task may not make this call: it waits, submits or allocates");
            }
            f(&self.machine)
        }));
        let fail = match answer {
            Ok(Ok(())) => return ACL_SUCCESS,
            Ok(Err(fail)) => fail,
            Err(_) => Fail::new(ACL_ERROR_RT_INTERNAL_ERROR, "the emulator failed"),
        };
        let message = CString::new(format!("EH{}: {call}: {}", fail.code, fail.text)).ok();
        thread::with(&self.machine.identity, |state| {
            state.last_error = fail.code;
            state.message = message;
        });
        fail.code
    }

    /// The same for a call that submits to a stream: when it fails, the capture of that stream is spoiled.
    fn submission(&self, call: Call, stream: aclrtStream, f: impl FnOnce(&Arc<Machine>) -> Answer) -> aclError {
        let code = self.call(call, f);
        let spoils = !matches!(
            code,
            ACL_SUCCESS
                | NOT_AVAILABLE
                | ACL_ERROR_RT_CONTEXT_NULL
                | ACL_ERROR_RT_STREAM_CONTEXT
                | ACL_ERROR_RT_STREAM_CAPTURED
        );
        if spoils && !stream.is_null() {
            Machine::invalidate(&mut self.machine.state(), Key::of(stream));
        }
        code
    }
}

#[allow(unused_unsafe, reason = "a method that needs no operation of its own is unsafe all the same")]
impl Raw for Host {
    fn has(&self, call: Call) -> bool {
        let never = matches!(
            call,
            Call::aclrtKernelArgsGetHandleMemSize
                | Call::aclrtKernelArgsGetMemSize
                | Call::aclrtKernelArgsInitByUserMem
        );
        !never && !self.machine.config.without.contains(&call)
    }

    unsafe fn aclInit(&self, _config_path: *const c_char) -> aclError {
        self.call(Call::aclInit, |machine| machine.init())
    }

    unsafe fn aclFinalize(&self) -> aclError {
        self.call(Call::aclFinalize, |machine| machine.finalize())
    }

    unsafe fn aclFinalizeReference(&self, count: *mut u64) -> aclError {
        self.call(Call::aclFinalizeReference, |machine| {
            let left = machine.finalize_reference()?;
            if !count.is_null() {
                // SAFETY: not null, and by the contract of the call writable.
                unsafe { count.write(left) };
            }
            Ok(())
        })
    }

    unsafe fn aclGetRecentErrMsg(&self) -> *const c_char {
        self.machine.count(Call::aclGetRecentErrMsg);
        thread::with(&self.machine.identity, |state| {
            state.handed_out = state.message.take();
            state.handed_out.as_ref().map_or(ptr::null(), |text| text.as_ptr())
        })
    }

    unsafe fn aclrtGetLastError(&self, level: aclrtLastErrLevel) -> aclError {
        if !self.has(Call::aclrtGetLastError) {
            return NOT_AVAILABLE;
        }
        if level != ACL_RT_THREAD_LEVEL {
            return ACL_ERROR_RT_PARAM_INVALID;
        }
        thread::with(&self.machine.identity, |state| core::mem::take(&mut state.last_error))
    }

    unsafe fn aclrtPeekAtLastError(&self, level: aclrtLastErrLevel) -> aclError {
        if !self.has(Call::aclrtPeekAtLastError) {
            return NOT_AVAILABLE;
        }
        if level != ACL_RT_THREAD_LEVEL {
            return ACL_ERROR_RT_PARAM_INVALID;
        }
        thread::with(&self.machine.identity, |state| state.last_error)
    }

    unsafe fn aclrtGetSocName(&self) -> *const c_char {
        self.machine.soc_name.as_ref().map_or(ptr::null(), |name| name.as_ptr())
    }

    unsafe fn aclsysGetVersionNum(&self, package: *mut c_char, version: *mut i32) -> aclError {
        self.call(Call::aclsysGetVersionNum, |_| {
            // SAFETY: by the contract of the call.
            unsafe { text(package)? };
            // SAFETY: by the contract of the call.
            unsafe { give(version, || Ok(VERSION)) }
        })
    }

    unsafe fn aclsysGetCANNVersion(
        &self,
        _package: aclCANNPackageName,
        version: *mut aclCANNPackageVersion,
    ) -> aclError {
        self.call(Call::aclsysGetCANNVersion, |_| {
            fn field<const N: usize>(text: &str) -> [c_char; N] {
                let mut field = [0; N];
                for (to, from) in field.iter_mut().zip(text.bytes()) {
                    *to = from as c_char;
                }
                field
            }
            let value = aclCANNPackageVersion {
                version: field("9.1.0"),
                majorVersion: field("9"),
                minorVersion: field("1"),
                releaseVersion: field("0"),
                patchVersion: field(""),
                reserved: [0; 128],
            };
            // SAFETY: by the contract of the call.
            unsafe { give(version, || Ok(value)) }
        })
    }

    unsafe fn aclrtGetDeviceCount(&self, count: *mut u32) -> aclError {
        // SAFETY: by the contract of the call.
        self.call(Call::aclrtGetDeviceCount, |machine| unsafe { give(count, || Ok(machine.devices.len() as u32)) })
    }

    unsafe fn aclrtSetDevice(&self, device: i32) -> aclError {
        self.call(Call::aclrtSetDevice, |machine| machine.set_device(device))
    }

    unsafe fn aclrtResetDevice(&self, device: i32) -> aclError {
        self.call(Call::aclrtResetDevice, |machine| machine.reset_device(device, false))
    }

    unsafe fn aclrtResetDeviceForce(&self, device: i32) -> aclError {
        self.call(Call::aclrtResetDeviceForce, |machine| machine.reset_device(device, true))
    }

    unsafe fn aclrtGetDevice(&self, device: *mut i32) -> aclError {
        self.call(Call::aclrtGetDevice, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(device, || machine.current_device(&machine.state()).map(|device| device as i32)) }
        })
    }

    unsafe fn aclrtGetDeviceInfo(&self, device: u32, attribute: aclrtDevAttr, value: *mut i64) -> aclError {
        self.call(Call::aclrtGetDeviceInfo, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(value, || machine.device_info(device, attribute)) }
        })
    }

    unsafe fn aclGetDeviceCapability(&self, device: u32, info: aclDeviceInfo, value: *mut i64) -> aclError {
        self.call(Call::aclGetDeviceCapability, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(value, || machine.device_capability(device, info)) }
        })
    }

    unsafe fn aclrtGetMemInfo(&self, attribute: aclrtMemAttr, free: *mut usize, total: *mut usize) -> aclError {
        self.call(Call::aclrtGetMemInfo, |machine| {
            let (free, total) = (place(free)?, place(total)?);
            let (free_bytes, all) = machine.memory_info(attribute)?;
            // SAFETY: not null, and by the contract of the call writable.
            unsafe { free.write(free_bytes) };
            // SAFETY: as above.
            unsafe { total.write(all) };
            Ok(())
        })
    }

    unsafe fn aclrtCreateContext(&self, context: *mut aclrtContext, device: i32) -> aclError {
        self.call(Call::aclrtCreateContext, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(context, || machine.create_context(device).map(Key::pointer)) }
        })
    }

    unsafe fn aclrtDestroyContext(&self, context: aclrtContext) -> aclError {
        self.call(Call::aclrtDestroyContext, |machine| machine.destroy_context(context))
    }

    unsafe fn aclrtSetCurrentContext(&self, context: aclrtContext) -> aclError {
        self.call(Call::aclrtSetCurrentContext, |machine| machine.set_current(context))
    }

    unsafe fn aclrtGetCurrentContext(&self, context: *mut aclrtContext) -> aclError {
        self.call(Call::aclrtGetCurrentContext, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(context, || machine.current(&machine.state()).map(Key::pointer)) }
        })
    }

    unsafe fn aclrtSynchronizeDevice(&self) -> aclError {
        self.call(Call::aclrtSynchronizeDevice, |machine| machine.sync_device(-1))
    }

    unsafe fn aclrtSynchronizeDeviceWithTimeout(&self, timeout: i32) -> aclError {
        self.call(Call::aclrtSynchronizeDeviceWithTimeout, |machine| machine.sync_device(timeout))
    }

    unsafe fn aclrtDeviceCanAccessPeer(&self, can: *mut i32, device: i32, peer: i32) -> aclError {
        self.call(Call::aclrtDeviceCanAccessPeer, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(can, || machine.can_access_peer(device, peer).map(i32::from)) }
        })
    }

    unsafe fn aclrtDeviceEnablePeerAccess(&self, peer: i32, flags: u32) -> aclError {
        self.call(Call::aclrtDeviceEnablePeerAccess, |machine| machine.enable_peer(peer, flags))
    }

    unsafe fn aclrtCreateStreamWithConfig(&self, stream: *mut aclrtStream, priority: u32, flag: u32) -> aclError {
        self.call(Call::aclrtCreateStreamWithConfig, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(stream, || machine.create_stream(priority, flag).map(Key::pointer)) }
        })
    }

    unsafe fn aclrtDestroyStream(&self, stream: aclrtStream) -> aclError {
        self.call(Call::aclrtDestroyStream, |machine| machine.destroy_stream(stream, false))
    }

    unsafe fn aclrtDestroyStreamForce(&self, stream: aclrtStream) -> aclError {
        self.call(Call::aclrtDestroyStreamForce, |machine| machine.destroy_stream(stream, true))
    }

    unsafe fn aclrtSynchronizeStream(&self, stream: aclrtStream) -> aclError {
        self.call(Call::aclrtSynchronizeStream, |machine| machine.sync_stream(stream, -1))
    }

    unsafe fn aclrtSynchronizeStreamWithTimeout(&self, stream: aclrtStream, timeout: i32) -> aclError {
        self.call(Call::aclrtSynchronizeStreamWithTimeout, |machine| machine.sync_stream(stream, timeout))
    }

    unsafe fn aclrtStreamQuery(&self, stream: aclrtStream, status: *mut aclrtStreamStatus) -> aclError {
        // SAFETY: by the contract of the call.
        self.call(Call::aclrtStreamQuery, |machine| unsafe { give(status, || machine.query_stream(stream)) })
    }

    unsafe fn aclrtStreamWaitEvent(&self, stream: aclrtStream, event: aclrtEvent) -> aclError {
        self.submission(Call::aclrtStreamWaitEvent, stream, |machine| machine.wait_event(stream, event, 0))
    }

    unsafe fn aclrtStreamWaitEventWithTimeout(&self, stream: aclrtStream, event: aclrtEvent, timeout: i32) -> aclError {
        self.submission(Call::aclrtStreamWaitEventWithTimeout, stream, |machine| {
            machine.wait_event(stream, event, timeout)
        })
    }

    unsafe fn aclrtSetStreamFailureMode(&self, stream: aclrtStream, mode: u64) -> aclError {
        self.call(Call::aclrtSetStreamFailureMode, |machine| machine.set_failure_mode(stream, mode))
    }

    unsafe fn aclrtStreamAbort(&self, stream: aclrtStream) -> aclError {
        self.call(Call::aclrtStreamAbort, |machine| machine.abort_stream(stream))
    }

    unsafe fn aclrtStreamGetId(&self, stream: aclrtStream, id: *mut i32) -> aclError {
        // SAFETY: by the contract of the call.
        self.call(Call::aclrtStreamGetId, |machine| unsafe { give(id, || machine.stream_id(stream)) })
    }

    unsafe fn aclrtGetStreamAvailableNum(&self, count: *mut u32) -> aclError {
        // SAFETY: by the contract of the call.
        self.call(Call::aclrtGetStreamAvailableNum, |machine| unsafe { give(count, || machine.streams_left()) })
    }

    unsafe fn aclrtSetStreamAttribute(
        &self,
        stream: aclrtStream,
        attribute: aclrtStreamAttr,
        value: *mut aclrtStreamAttrValue,
    ) -> aclError {
        self.call(Call::aclrtSetStreamAttribute, |machine| {
            let value = place(value)?;
            let value = match attribute {
                // SAFETY: not null, by the contract of the call readable, and the attribute names the arm.
                ACL_STREAM_ATTR_FAILURE_MODE => unsafe { (*value).failureMode },
                _ => 0,
            };
            machine.set_stream_attribute(stream, attribute, value)
        })
    }

    unsafe fn aclrtSetOpExecuteTimeOutV2(&self, timeout: u64, actual: *mut u64) -> aclError {
        self.call(Call::aclrtSetOpExecuteTimeOutV2, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(actual, || machine.set_op_timeout(timeout)) }
        })
    }

    unsafe fn aclrtCreateEventExWithFlag(&self, event: *mut aclrtEvent, flag: u32) -> aclError {
        self.call(Call::aclrtCreateEventExWithFlag, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(event, || machine.create_event(flag, true).map(Key::pointer)) }
        })
    }

    unsafe fn aclrtCreateEventWithFlag(&self, event: *mut aclrtEvent, flag: u32) -> aclError {
        self.call(Call::aclrtCreateEventWithFlag, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(event, || machine.create_event(flag, false).map(Key::pointer)) }
        })
    }

    unsafe fn aclrtDestroyEvent(&self, event: aclrtEvent) -> aclError {
        self.call(Call::aclrtDestroyEvent, |machine| machine.destroy_event(event))
    }

    unsafe fn aclrtRecordEvent(&self, event: aclrtEvent, stream: aclrtStream) -> aclError {
        self.submission(Call::aclrtRecordEvent, stream, |machine| machine.record(event, stream))
    }

    unsafe fn aclrtQueryEventStatus(&self, event: aclrtEvent, status: *mut aclrtEventRecordedStatus) -> aclError {
        // SAFETY: by the contract of the call.
        self.call(Call::aclrtQueryEventStatus, |machine| unsafe { give(status, || machine.query_event(event)) })
    }

    unsafe fn aclrtSynchronizeEvent(&self, event: aclrtEvent) -> aclError {
        self.call(Call::aclrtSynchronizeEvent, |machine| machine.sync_event(event, -1))
    }

    unsafe fn aclrtSynchronizeEventWithTimeout(&self, event: aclrtEvent, timeout: i32) -> aclError {
        self.call(Call::aclrtSynchronizeEventWithTimeout, |machine| machine.sync_event(event, timeout))
    }

    unsafe fn aclrtEventElapsedTime(&self, ms: *mut f32, start: aclrtEvent, end: aclrtEvent) -> aclError {
        // SAFETY: by the contract of the call.
        self.call(Call::aclrtEventElapsedTime, |machine| unsafe { give(ms, || machine.elapsed(start, end)) })
    }

    unsafe fn aclrtMalloc(&self, pointer: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy) -> aclError {
        self.call(Call::aclrtMalloc, |machine| {
            let address = || machine.malloc(size, policy).map(|address| ptr::without_provenance_mut(address as usize));
            // SAFETY: by the contract of the call.
            unsafe { give(pointer, address) }
        })
    }

    unsafe fn aclrtFree(&self, pointer: *mut c_void) -> aclError {
        self.call(Call::aclrtFree, |machine| machine.free(pointer.cast(), false))
    }

    unsafe fn aclrtFreeWithDevSync(&self, pointer: *mut c_void) -> aclError {
        self.call(Call::aclrtFreeWithDevSync, |machine| machine.free(pointer.cast(), true))
    }

    unsafe fn aclrtMallocHost(&self, pointer: *mut *mut c_void, size: usize) -> aclError {
        self.call(Call::aclrtMallocHost, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(pointer, || machine.malloc_host(size).map(<*mut u8>::cast)) }
        })
    }

    unsafe fn aclrtFreeHost(&self, pointer: *mut c_void) -> aclError {
        self.call(Call::aclrtFreeHost, |machine| machine.free_host(pointer.cast()))
    }

    unsafe fn aclrtHostRegister(
        &self,
        pointer: *mut c_void,
        size: u64,
        kind: aclrtHostRegisterType,
        device_pointer: *mut *mut c_void,
    ) -> aclError {
        self.call(Call::aclrtHostRegister, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(device_pointer, || machine.register_host(pointer.cast(), size, kind).map(|()| pointer)) }
        })
    }

    unsafe fn aclrtHostUnregister(&self, pointer: *mut c_void) -> aclError {
        self.call(Call::aclrtHostUnregister, |machine| machine.unregister_host(pointer.cast()))
    }

    unsafe fn aclrtPointerGetAttributes(
        &self,
        pointer: *const c_void,
        attributes: *mut aclrtPtrAttributes,
    ) -> aclError {
        self.call(Call::aclrtPointerGetAttributes, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(attributes, || machine.pointer_attributes(pointer.cast())) }
        })
    }

    unsafe fn aclrtMemcpy(
        &self,
        destination: *mut c_void,
        room: usize,
        source: *const c_void,
        count: usize,
        kind: aclrtMemcpyKind,
    ) -> aclError {
        self.call(Call::aclrtMemcpy, |machine| machine.copy(&plain_copy(destination, room, source, count, kind)?))
    }

    unsafe fn aclrtMemcpyAsync(
        &self,
        destination: *mut c_void,
        room: usize,
        source: *const c_void,
        count: usize,
        kind: aclrtMemcpyKind,
        stream: aclrtStream,
    ) -> aclError {
        self.submission(Call::aclrtMemcpyAsync, stream, |machine| {
            machine.copy_async(&plain_copy(destination, room, source, count, kind)?, stream)
        })
    }

    unsafe fn aclrtMemset(&self, pointer: *mut c_void, room: usize, value: i32, count: usize) -> aclError {
        self.call(Call::aclrtMemset, |machine| machine.fill(pointer.cast(), room, value, count))
    }

    unsafe fn aclrtMemsetAsync(
        &self,
        pointer: *mut c_void,
        room: usize,
        value: i32,
        count: usize,
        stream: aclrtStream,
    ) -> aclError {
        self.submission(Call::aclrtMemsetAsync, stream, |machine| {
            machine.fill_async(pointer.cast(), room, value, count, stream)
        })
    }

    unsafe fn aclrtMemcpy2dAsync(
        &self,
        destination: *mut c_void,
        destination_pitch: usize,
        source: *const c_void,
        source_pitch: usize,
        width: usize,
        height: usize,
        kind: aclrtMemcpyKind,
        stream: aclrtStream,
    ) -> aclError {
        self.submission(Call::aclrtMemcpy2dAsync, stream, |machine| {
            let call = CopyCall {
                to: destination.cast(),
                to_pitch: destination_pitch,
                from: source.cast(),
                from_pitch: source_pitch,
                width,
                height,
                kind,
            };
            machine.copy_async(&call, stream)
        })
    }

    unsafe fn aclrtBinaryLoadFromFile(
        &self,
        path: *const c_char,
        options: *mut aclrtBinaryLoadOptions,
        module: *mut aclrtBinHandle,
    ) -> aclError {
        self.call(Call::aclrtBinaryLoadFromFile, |machine| {
            // SAFETY: by the contract of the call.
            let path = unsafe { text(path)? };
            // SAFETY: by the contract of the call.
            unsafe { check_options(options)? };
            // SAFETY: by the contract of the call.
            unsafe { give(module, || machine.load_file(path).map(Key::pointer)) }
        })
    }

    unsafe fn aclrtBinaryLoadFromData(
        &self,
        data: *const c_void,
        length: usize,
        options: *const aclrtBinaryLoadOptions,
        module: *mut aclrtBinHandle,
    ) -> aclError {
        self.call(Call::aclrtBinaryLoadFromData, |machine| {
            // SAFETY: by the contract of the call.
            let image = unsafe { bytes(data, length)? };
            // SAFETY: by the contract of the call.
            unsafe { check_options(options)? };
            // SAFETY: by the contract of the call.
            unsafe { give(module, || machine.load(image).map(Key::pointer)) }
        })
    }

    unsafe fn aclrtBinaryUnLoad(&self, module: aclrtBinHandle) -> aclError {
        self.call(Call::aclrtBinaryUnLoad, |machine| machine.unload(module))
    }

    unsafe fn aclrtBinaryGetFunction(
        &self,
        module: aclrtBinHandle,
        name: *const c_char,
        function: *mut aclrtFuncHandle,
    ) -> aclError {
        self.call(Call::aclrtBinaryGetFunction, |machine| {
            // SAFETY: by the contract of the call.
            let name = unsafe { text(name)? };
            // SAFETY: by the contract of the call.
            unsafe { give(function, || machine.get_function(module, name).map(Key::pointer)) }
        })
    }

    unsafe fn aclrtGetFunctionAttribute(
        &self,
        function: aclrtFuncHandle,
        attribute: aclrtFuncAttribute,
        value: *mut i64,
    ) -> aclError {
        self.call(Call::aclrtGetFunctionAttribute, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(value, || machine.function_attribute(function, attribute)) }
        })
    }

    unsafe fn aclrtGetHardwareSyncAddr(&self, address: *mut *mut c_void) -> aclError {
        self.call(Call::aclrtGetHardwareSyncAddr, |machine| {
            let sync = || {
                let device = machine.current_device(&machine.state())?;
                // The page in front of what comes with launches: nothing of the emulator uses it.
                let page = machine.devices[device as usize].window.start;
                Ok(ptr::without_provenance_mut(page as usize))
            };
            // SAFETY: by the contract of the call.
            unsafe { give(address, sync) }
        })
    }

    unsafe fn aclrtCheckArchCompatibility(&self, soc: *const c_char, can: *mut i32) -> aclError {
        self.call(Call::aclrtCheckArchCompatibility, |machine| {
            // SAFETY: by the contract of the call.
            let soc = unsafe { text(soc)? };
            // SAFETY: by the contract of the call.
            unsafe { give(can, || machine.arch_compatible(soc).map(i32::from)) }
        })
    }

    unsafe fn aclrtKernelArgsInit(&self, function: aclrtFuncHandle, args: *mut aclrtArgsHandle) -> aclError {
        self.call(Call::aclrtKernelArgsInit, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(args, || machine.args_begin(function).map(Key::pointer)) }
        })
    }

    unsafe fn aclrtKernelArgsAppend(
        &self,
        args: aclrtArgsHandle,
        parameter: *mut c_void,
        size: usize,
        handle: *mut aclrtParamHandle,
    ) -> aclError {
        self.call(Call::aclrtKernelArgsAppend, |machine| {
            // SAFETY: by the contract of the call.
            let value = unsafe { bytes(parameter, size)? };
            // SAFETY: by the contract of the call.
            unsafe { give(handle, || machine.args_append(args, value).map(Key::pointer)) }
        })
    }

    unsafe fn aclrtKernelArgsAppendPlaceHolder(
        &self,
        args: aclrtArgsHandle,
        handle: *mut aclrtParamHandle,
    ) -> aclError {
        self.call(Call::aclrtKernelArgsAppendPlaceHolder, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(handle, || machine.args_holder(args).map(Key::pointer)) }
        })
    }

    unsafe fn aclrtKernelArgsGetPlaceHolderBuffer(
        &self,
        args: aclrtArgsHandle,
        handle: aclrtParamHandle,
        size: usize,
        buffer: *mut *mut c_void,
    ) -> aclError {
        self.call(Call::aclrtKernelArgsGetPlaceHolderBuffer, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(buffer, || machine.args_buffer(args, handle, size).map(<*mut u8>::cast)) }
        })
    }

    unsafe fn aclrtKernelArgsParaUpdate(
        &self,
        args: aclrtArgsHandle,
        handle: aclrtParamHandle,
        parameter: *mut c_void,
        size: usize,
    ) -> aclError {
        self.call(Call::aclrtKernelArgsParaUpdate, |machine| {
            // SAFETY: by the contract of the call.
            let value = unsafe { bytes(parameter, size)? };
            machine.args_update(args, handle, value)
        })
    }

    unsafe fn aclrtKernelArgsFinalize(&self, args: aclrtArgsHandle) -> aclError {
        self.call(Call::aclrtKernelArgsFinalize, |machine| machine.args_finish(args))
    }

    unsafe fn aclrtLaunchKernelWithConfig(
        &self,
        function: aclrtFuncHandle,
        blocks: u32,
        stream: aclrtStream,
        config: *mut aclrtLaunchKernelCfg,
        args: aclrtArgsHandle,
        reserve: *mut c_void,
    ) -> aclError {
        self.submission(Call::aclrtLaunchKernelWithConfig, stream, |machine| {
            if !reserve.is_null() {
                return usage("the reserved argument is not null");
            }
            // SAFETY: by the contract of the call.
            let attributes = unsafe { launch_attributes(config)? };
            machine.launch(function, blocks, stream, attributes, Arguments::Built(args))
        })
    }

    unsafe fn aclrtLaunchKernelWithHostArgs(
        &self,
        function: aclrtFuncHandle,
        blocks: u32,
        stream: aclrtStream,
        config: *mut aclrtLaunchKernelCfg,
        args: *mut c_void,
        size: usize,
        holders: *mut aclrtPlaceHolderInfo,
        holder_count: usize,
    ) -> aclError {
        self.submission(Call::aclrtLaunchKernelWithHostArgs, stream, |machine| {
            // SAFETY: by the contract of the call.
            let attributes = unsafe { launch_attributes(config)? };
            // SAFETY: by the contract of the call.
            let block = unsafe { list(args.cast_const().cast::<u8>(), size)? };
            // SAFETY: by the contract of the call.
            let holders = unsafe { list(holders.cast_const(), holder_count)? };
            machine.launch(function, blocks, stream, attributes, Arguments::Raw(block, holders))
        })
    }

    unsafe fn aclrtLaunchHostFunc(&self, stream: aclrtStream, function: aclrtHostFunc, args: *mut c_void) -> aclError {
        self.submission(Call::aclrtLaunchHostFunc, stream, |machine| {
            machine.host_function(stream, UserCall::new(function, args))
        })
    }

    unsafe fn aclrtLaunchCallback(
        &self,
        function: aclrtCallback,
        args: *mut c_void,
        block: aclrtCallbackBlockType,
        stream: aclrtStream,
    ) -> aclError {
        self.submission(Call::aclrtLaunchCallback, stream, |machine| {
            machine.callback(stream, UserCall::new(function, args), block)
        })
    }

    unsafe fn aclrtSubscribeReport(&self, thread: u64, stream: aclrtStream) -> aclError {
        self.call(Call::aclrtSubscribeReport, |machine| machine.subscribe(thread, stream))
    }

    unsafe fn aclrtProcessReport(&self, timeout: i32) -> aclError {
        self.call(Call::aclrtProcessReport, |machine| machine.process_report(timeout))
    }

    unsafe fn aclrtUnSubscribeReport(&self, thread: u64, stream: aclrtStream) -> aclError {
        self.call(Call::aclrtUnSubscribeReport, |machine| machine.unsubscribe(thread, stream))
    }

    unsafe fn aclrtSetExceptionInfoCallback(&self, callback: aclrtExceptionInfoCallback) -> aclError {
        self.call(Call::aclrtSetExceptionInfoCallback, |machine| {
            *lock(&machine.exception_callback) = callback;
            Ok(())
        })
    }

    unsafe fn aclmdlRICaptureBegin(&self, stream: aclrtStream, mode: aclmdlRICaptureMode) -> aclError {
        self.call(Call::aclmdlRICaptureBegin, |machine| machine.capture_begin(stream, mode))
    }

    unsafe fn aclmdlRICaptureGetInfo(
        &self,
        stream: aclrtStream,
        status: *mut aclmdlRICaptureStatus,
        graph: *mut aclmdlRI,
    ) -> aclError {
        self.call(Call::aclmdlRICaptureGetInfo, |machine| {
            if status.is_null() && graph.is_null() {
                return usage("no place for a result");
            }
            let (found, key) = machine.capture_info(stream)?;
            if !status.is_null() {
                // SAFETY: not null, and by the contract of the call writable.
                unsafe { status.write(found) };
            }
            if !graph.is_null() {
                // SAFETY: as above.
                unsafe { graph.write(key.pointer()) };
            }
            Ok(())
        })
    }

    unsafe fn aclmdlRICaptureEnd(&self, stream: aclrtStream, graph: *mut aclmdlRI) -> aclError {
        self.call(Call::aclmdlRICaptureEnd, |machine| {
            let graph = place(graph)?;
            // SAFETY: not null, and by the contract of the call writable.
            unsafe { graph.write(ptr::null_mut()) };
            // SAFETY: as above.
            unsafe { give(graph, || machine.capture_end(stream).map(Key::pointer)) }
        })
    }

    unsafe fn aclmdlRICaptureThreadExchangeMode(&self, mode: *mut aclmdlRICaptureMode) -> aclError {
        self.call(Call::aclmdlRICaptureThreadExchangeMode, |machine| {
            let mode = place(mode)?;
            // SAFETY: not null, and by the contract of the call readable.
            let wanted = unsafe { mode.read() };
            // SAFETY: as above, and writable.
            unsafe { give(mode, || machine.exchange_mode(wanted)) }
        })
    }

    unsafe fn aclmdlRIExecuteAsync(&self, graph: aclmdlRI, stream: aclrtStream) -> aclError {
        self.call(Call::aclmdlRIExecuteAsync, |machine| machine.replay(graph, stream))
    }

    unsafe fn aclmdlRIDestroy(&self, graph: aclmdlRI) -> aclError {
        self.call(Call::aclmdlRIDestroy, |machine| machine.destroy_graph(graph))
    }

    unsafe fn aclmdlRICaptureTaskGrpBegin(&self, stream: aclrtStream) -> aclError {
        self.call(Call::aclmdlRICaptureTaskGrpBegin, |machine| machine.group_begin(stream))
    }

    unsafe fn aclmdlRICaptureTaskGrpEnd(&self, stream: aclrtStream, group: *mut aclrtTaskGrp) -> aclError {
        self.call(Call::aclmdlRICaptureTaskGrpEnd, |machine| {
            // SAFETY: by the contract of the call.
            unsafe { give(group, || machine.group_end(stream).map(Key::pointer)) }
        })
    }

    unsafe fn aclmdlRICaptureTaskUpdateBegin(&self, stream: aclrtStream, group: aclrtTaskGrp) -> aclError {
        self.call(Call::aclmdlRICaptureTaskUpdateBegin, |machine| machine.update_begin(stream, group))
    }

    unsafe fn aclmdlRICaptureTaskUpdateEnd(&self, stream: aclrtStream) -> aclError {
        self.call(Call::aclmdlRICaptureTaskUpdateEnd, |machine| machine.update_end(stream))
    }

    unsafe fn aclmdlRIDebugJsonPrint(&self, graph: aclmdlRI, path: *const c_char, _flags: u32) -> aclError {
        self.call(Call::aclmdlRIDebugJsonPrint, |machine| {
            // SAFETY: by the contract of the call.
            let path = unsafe { text(path)? };
            let json = machine.graph_json(graph)?;
            std::fs::write(path, json)
                .map_err(|error| Fail::new(ACL_ERROR_RT_FILE_WRITE, format!("{path} cannot be written: {error}")))
        })
    }

    unsafe fn aclmdlRIDestroyRegisterCallback(
        &self,
        graph: aclmdlRI,
        function: aclrtCallback,
        args: *mut c_void,
    ) -> aclError {
        self.call(Call::aclmdlRIDestroyRegisterCallback, |machine| {
            if function.is_none() {
                return usage("a null function");
            }
            machine.on_destroy(graph, UserCall::new(function, args))
        })
    }

    unsafe fn aclprofInit(&self, path: *const c_char, length: usize) -> aclError {
        self.call(Call::aclprofInit, |machine| {
            // SAFETY: by the contract of the call.
            machine.prof_init(unsafe { sized_text(path, length)? })
        })
    }

    unsafe fn aclprofCreateConfig(
        &self,
        devices: *mut u32,
        device_count: u32,
        _metrics: aclprofAicoreMetrics,
        _events: *const aclprofAicoreEvents,
        _mask: u64,
    ) -> *mut aclprofConfig {
        let mut config = ptr::null_mut();
        self.call(Call::aclprofCreateConfig, |machine| {
            // SAFETY: by the contract of the call.
            let devices = unsafe { list(devices.cast_const(), device_count as usize)? };
            config = machine.prof_create(devices)?.pointer().cast();
            Ok(())
        });
        config
    }

    unsafe fn aclprofSetConfig(&self, _kind: aclprofConfigType, value: *const c_char, length: usize) -> aclError {
        self.call(Call::aclprofSetConfig, |machine| {
            // SAFETY: by the contract of the call.
            machine.prof_set(unsafe { sized_text(value, length)? }.len())
        })
    }

    unsafe fn aclprofStart(&self, config: *const aclprofConfig) -> aclError {
        self.call(Call::aclprofStart, |machine| machine.prof_start(config))
    }

    unsafe fn aclprofStop(&self, config: *const aclprofConfig) -> aclError {
        self.call(Call::aclprofStop, |machine| machine.prof_stop(config))
    }

    unsafe fn aclprofDestroyConfig(&self, config: *const aclprofConfig) -> aclError {
        self.call(Call::aclprofDestroyConfig, |machine| machine.prof_destroy(config))
    }

    unsafe fn aclprofFinalize(&self) -> aclError {
        self.call(Call::aclprofFinalize, |machine| machine.prof_finalize())
    }

    unsafe fn aclprofCreateStamp(&self) -> *mut c_void {
        let mut stamp = ptr::null_mut();
        self.call(Call::aclprofCreateStamp, |machine| {
            stamp = machine.stamp_create()?.pointer();
            Ok(())
        });
        stamp
    }

    unsafe fn aclprofSetStampTraceMessage(&self, stamp: *mut c_void, message: *const c_char, length: u32) -> aclError {
        self.call(Call::aclprofSetStampTraceMessage, |machine| {
            // SAFETY: by the contract of the call.
            machine.stamp_text(Key::of(stamp), unsafe { sized_text(message, length as usize)? })
        })
    }

    unsafe fn aclprofPush(&self, stamp: *mut c_void) -> aclError {
        self.call(Call::aclprofPush, |machine| machine.range_push(Key::of(stamp)))
    }

    unsafe fn aclprofPop(&self) -> aclError {
        self.call(Call::aclprofPop, |machine| machine.range_pop())
    }

    unsafe fn aclprofRangeStart(&self, stamp: *mut c_void, range: *mut u32) -> aclError {
        // SAFETY: by the contract of the call.
        self.call(Call::aclprofRangeStart, |machine| unsafe { give(range, || machine.range_start(Key::of(stamp))) })
    }

    unsafe fn aclprofRangeStop(&self, range: u32) -> aclError {
        self.call(Call::aclprofRangeStop, |machine| machine.range_stop(range.into()))
    }

    unsafe fn aclprofDestroyStamp(&self, stamp: *mut c_void) {
        self.call(Call::aclprofDestroyStamp, |machine| {
            machine.stamp_destroy(Key::of(stamp));
            Ok(())
        });
    }

    unsafe fn aclprofMarkEx(&self, message: *const c_char, length: usize, stream: aclrtStream) -> aclError {
        self.submission(Call::aclprofMarkEx, stream, |machine| {
            // SAFETY: by the contract of the call.
            machine.mark(unsafe { sized_text(message, length)? }, stream, true)
        })
    }

    unsafe fn mstxDomainCreateA(&self, name: *const c_char) -> mstxDomainHandle_t {
        let mut domain = ptr::null_mut();
        self.call(Call::mstxDomainCreateA, |machine| {
            // SAFETY: by the contract of the call.
            domain = machine.tx_domain(unsafe { text(name)? }).pointer();
            Ok(())
        });
        domain
    }

    unsafe fn mstxDomainDestroy(&self, domain: mstxDomainHandle_t) {
        self.call(Call::mstxDomainDestroy, |machine| {
            machine.tx_domain_destroy(Key::of(domain));
            Ok(())
        });
    }

    unsafe fn mstxDomainMarkA(&self, domain: mstxDomainHandle_t, message: *const c_char, stream: aclrtStream) {
        self.call(Call::mstxDomainMarkA, |machine| {
            // SAFETY: by the contract of the call.
            machine.tx_mark(Key::of(domain), unsafe { text(message)? }, stream);
            Ok(())
        });
    }

    unsafe fn mstxDomainRangeStartA(
        &self,
        domain: mstxDomainHandle_t,
        message: *const c_char,
        _stream: aclrtStream,
    ) -> u64 {
        let mut range = 0;
        self.call(Call::mstxDomainRangeStartA, |machine| {
            // SAFETY: by the contract of the call.
            range = machine.tx_range(Key::of(domain), unsafe { text(message)? });
            Ok(())
        });
        range
    }

    unsafe fn mstxDomainRangeEnd(&self, _domain: mstxDomainHandle_t, range: u64) {
        self.call(Call::mstxDomainRangeEnd, |machine| if range == 0 { Ok(()) } else { machine.range_stop(range) });
    }

    unsafe fn mstxMarkA(&self, message: *const c_char, stream: aclrtStream) {
        self.call(Call::mstxMarkA, |machine| {
            // SAFETY: by the contract of the call.
            machine.tx_mark(Key::NULL, unsafe { text(message)? }, stream);
            Ok(())
        });
    }

    unsafe fn mstxRangeStartA(&self, message: *const c_char, _stream: aclrtStream) -> u64 {
        let mut range = 0;
        self.call(Call::mstxRangeStartA, |machine| {
            // SAFETY: by the contract of the call.
            range = machine.tx_range(Key::NULL, unsafe { text(message)? });
            Ok(())
        });
        range
    }

    unsafe fn mstxRangeEnd(&self, range: u64) {
        self.call(Call::mstxRangeEnd, |machine| if range == 0 { Ok(()) } else { machine.range_stop(range) });
    }
}

/// A text of so many bytes.
///
/// # Safety
///
/// The pointer is null or points to so many bytes.
unsafe fn sized_text<'a>(pointer: *const c_char, length: usize) -> Answer<&'a str> {
    // SAFETY: by the contract of the function.
    let text = unsafe { bytes(pointer.cast(), length)? };
    core::str::from_utf8(text).or_else(|_| usage("a text that is no UTF-8"))
}

/// A copy of one row.
fn plain_copy(
    to: *mut c_void,
    room: usize,
    from: *const c_void,
    count: usize,
    kind: aclrtMemcpyKind,
) -> Answer<CopyCall> {
    if count > room {
        return usage(format!("{count} bytes into {room}"));
    }
    Ok(CopyCall { to: to.cast(), to_pitch: count, from: from.cast(), from_pitch: count, width: count, height: 1, kind })
}

/// The properties of a launch.
///
/// # Safety
///
/// The pointer is null or as the call demands.
unsafe fn launch_attributes(config: *const aclrtLaunchKernelCfg) -> Answer<LaunchAttributes> {
    if config.is_null() {
        return Ok(LaunchAttributes::default());
    }
    // SAFETY: not null, and by the contract of the function readable.
    let config = unsafe { config.read() };
    // SAFETY: by the contract of the function.
    LaunchAttributes::new(unsafe { list(config.attrs.cast_const(), config.numAttrs)? })
}

/// The options of loading a module: known ones.
///
/// # Safety
///
/// The pointer is null or as the call demands.
unsafe fn check_options(options: *const aclrtBinaryLoadOptions) -> Answer {
    if options.is_null() {
        return Ok(());
    }
    // SAFETY: not null, and by the contract of the function readable.
    let options = unsafe { options.read() };
    // SAFETY: by the contract of the function.
    for option in unsafe { list(options.options.cast_const(), options.numOpt)? } {
        if !(1..=3).contains(&option.r#type.0) {
            return usage(format!("option {:?} is not known here", option.r#type));
        }
    }
    Ok(())
}
