// SPDX-License-Identifier: MIT OR Apache-2.0

//! A machine with kernels, and short names for the calls.

use ascend_rt::host::{CoreKind, Executor, Host, HostConfig, HostKernel, KernelFault, module_image};
use ascend_rt::kernel::{ArgKind, ArgLayout};
use ascend_rt::raw::Raw;
use ascend_rt::sys::*;
use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Makes a call of AscendCL on a machine.
macro_rules! acl {
    ($rig:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        #[allow(unused_imports, reason = "the macro is used in modules that have it already")]
        use ascend_rt::raw::Raw as _;
        // SAFETY: pointers in the tests are null, of the emulator, or valid for what the call does with them, and host
        // memory of queued tasks lives until the machine is dropped or the task is done.
        unsafe { $rig.host.$name($($arg),*) }
    }};
}

pub(crate) use acl;

/// A handle that threads of a test pass on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) *mut c_void);

impl Handle {
    /// The handle; as a method, so that closures take the whole struct and not its pointer.
    pub(crate) fn get(self) -> *mut c_void {
        self.0
    }
}

// SAFETY: handles of the emulator are numbers.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// An argument of a launch.
pub(crate) enum Arg<'a> {
    Pointer(*mut c_void),
    U32(u32),
    F32(f32),
    Bytes(&'a [u8]),
    Tiling(&'a [u8]),
}

pub(crate) struct Rig {
    pub(crate) host: Arc<Host>,
    module: Mutex<Option<Handle>>,
}

pub(crate) const ALL_EXECUTORS: [Executor; 4] =
    [Executor::Threads, Executor::Lazy, Executor::Seeded(1), Executor::Seeded(2)];

/// Seeds for the tests that need many of them; fewer under valgrind, which is slow.
pub(crate) fn seeds(count: u64) -> u64 {
    if std::env::var_os("VALGRIND").is_some() { count.min(20) } else { count }
}

impl Rig {
    /// A machine with the kernels of [`config`], device 0 set on this thread.
    pub(crate) fn new(config: HostConfig) -> Rig {
        let rig = Rig::bare(config);
        assert_eq!(acl!(rig, aclrtSetDevice(0)), 0);
        rig
    }

    /// The same without a device set.
    pub(crate) fn bare(config: HostConfig) -> Rig {
        Rig { host: Host::new(kernels(config)), module: Mutex::new(None) }
    }

    pub(crate) fn with(executor: Executor) -> Rig {
        Rig::new(HostConfig::new().executor(executor))
    }

    pub(crate) fn lazy() -> Rig {
        Rig::with(Executor::Lazy)
    }

    pub(crate) fn message(&self) -> String {
        let text = acl!(self, aclGetRecentErrMsg());
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the call returns null or a string that is valid until the next call.
        unsafe { CStr::from_ptr(text) }.to_str().expect("UTF-8").to_owned()
    }

    /// The code of a call and its message, checked to belong together.
    #[track_caller]
    pub(crate) fn refused(&self, code: aclError, expected: aclError, text: &str) {
        assert_eq!(code, expected);
        let message = self.message();
        assert!(message.starts_with(&format!("EH{expected}: ")) && message.contains(text), "{message}");
        assert_eq!(self.message(), "", "cleared when read");
    }

    #[track_caller]
    pub(crate) fn stream(&self) -> aclrtStream {
        let mut stream = null_mut();
        assert_eq!(acl!(self, aclrtCreateStreamWithConfig(&mut stream, 0, ACL_STREAM_FAST_LAUNCH)), 0);
        stream
    }

    #[track_caller]
    pub(crate) fn event(&self) -> aclrtEvent {
        self.event_with(ACL_EVENT_SYNC)
    }

    #[track_caller]
    pub(crate) fn event_with(&self, flags: u32) -> aclrtEvent {
        let mut event = null_mut();
        assert_eq!(acl!(self, aclrtCreateEventExWithFlag(&mut event, flags)), 0);
        event
    }

    #[track_caller]
    pub(crate) fn malloc(&self, bytes: usize) -> *mut c_void {
        let mut pointer = null_mut();
        assert_eq!(acl!(self, aclrtMalloc(&mut pointer, bytes, ACL_MEM_MALLOC_HUGE_FIRST)), 0);
        pointer
    }

    #[track_caller]
    pub(crate) fn malloc_host(&self, bytes: usize) -> *mut c_void {
        let mut pointer = null_mut();
        assert_eq!(acl!(self, aclrtMallocHost(&mut pointer, bytes)), 0);
        pointer
    }

    /// Pinned memory with these values.
    #[track_caller]
    pub(crate) fn pinned<T: Copy>(&self, values: &[T]) -> *mut c_void {
        let pointer = self.malloc_host(size_of_val(values));
        // SAFETY: the memory has been allocated for so many values, with an alignment of 64.
        unsafe { pointer.cast::<T>().copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        pointer
    }

    /// What pinned memory holds.
    pub(crate) fn peek<T: Copy>(&self, pointer: *const c_void, count: usize) -> Vec<T> {
        // SAFETY: the tests call it for pinned memory of that size while no task uses it.
        unsafe { std::slice::from_raw_parts(pointer.cast::<T>(), count) }.to_vec()
    }

    #[track_caller]
    pub(crate) fn upload<T>(&self, to: *mut c_void, values: &[T]) {
        let bytes = size_of_val(values);
        assert_eq!(acl!(self, aclrtMemcpy(to, bytes, values.as_ptr().cast(), bytes, ACL_MEMCPY_HOST_TO_DEVICE)), 0);
    }

    /// Device memory with these values.
    #[track_caller]
    pub(crate) fn device<T>(&self, values: &[T]) -> *mut c_void {
        let pointer = self.malloc(size_of_val(values));
        self.upload(pointer, values);
        pointer
    }

    #[track_caller]
    pub(crate) fn download<T: Copy + Default>(&self, from: *const c_void, count: usize) -> Vec<T> {
        let mut values = vec![T::default(); count];
        let bytes = size_of_val(values.as_slice());
        let code = acl!(self, aclrtMemcpy(values.as_mut_ptr().cast(), bytes, from, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
        assert_eq!(code, 0, "{}", self.message());
        values
    }

    pub(crate) fn copy_async(
        &self,
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        stream: aclrtStream,
    ) -> aclError {
        acl!(self, aclrtMemcpyAsync(to, bytes, from, bytes, ACL_MEMCPY_DEFAULT, stream))
    }

    pub(crate) fn fill_async(&self, to: *mut c_void, value: i32, bytes: usize, stream: aclrtStream) -> aclError {
        acl!(self, aclrtMemsetAsync(to, bytes, value, bytes, stream))
    }

    pub(crate) fn record(&self, event: aclrtEvent, stream: aclrtStream) -> aclError {
        acl!(self, aclrtRecordEvent(event, stream))
    }

    pub(crate) fn wait(&self, stream: aclrtStream, event: aclrtEvent) -> aclError {
        acl!(self, aclrtStreamWaitEvent(stream, event))
    }

    pub(crate) fn sync(&self, stream: aclrtStream) -> aclError {
        acl!(self, aclrtSynchronizeStream(stream))
    }

    pub(crate) fn query(&self, stream: aclrtStream) -> aclrtStreamStatus {
        let mut status = ACL_STREAM_STATUS_RESERVED;
        assert_eq!(acl!(self, aclrtStreamQuery(stream, &mut status)), 0);
        status
    }

    #[track_caller]
    pub(crate) fn load(&self, module: &str) -> aclrtBinHandle {
        let image = module_image(module, None);
        let mut handle = null_mut();
        let code =
            acl!(self, aclrtBinaryLoadFromData(image.as_ptr().cast(), image.len(), std::ptr::null(), &mut handle));
        assert_eq!(code, 0, "{}", self.message());
        handle
    }

    /// A kernel of the test module, loaded once in the context that is current at the first call.
    #[track_caller]
    pub(crate) fn kernel(&self, name: &str) -> aclrtFuncHandle {
        let module = *self.module.lock().expect("no panic").get_or_insert_with(|| Handle(self.load("t")));
        self.kernel_of(module.0, name)
    }

    #[track_caller]
    pub(crate) fn kernel_of(&self, module: aclrtBinHandle, name: &str) -> aclrtFuncHandle {
        let name = CString::new(name).expect("no zero in it");
        let mut function = null_mut();
        let code = acl!(self, aclrtBinaryGetFunction(module, name.as_ptr(), &mut function));
        assert_eq!(code, 0, "{}", self.message());
        function
    }

    /// Builds an argument block.
    pub(crate) fn args(&self, function: aclrtFuncHandle, args: &[Arg<'_>]) -> Result<aclrtArgsHandle, aclError> {
        let ok = |code: aclError| if code == 0 { Ok(()) } else { Err(code) };
        let (mut handle, mut param) = (null_mut(), null_mut());
        ok(acl!(self, aclrtKernelArgsInit(function, &mut handle)))?;
        let mut append = |bytes: &[u8]| {
            ok(acl!(self, aclrtKernelArgsAppend(handle, bytes.as_ptr().cast_mut().cast(), bytes.len(), &mut param)))
        };
        let mut holders: [aclrtParamHandle; 8] = [null_mut(); 8];
        let mut count = 0;
        for arg in args {
            match arg {
                Arg::Pointer(pointer) => append(&(pointer.addr() as u64).to_le_bytes())?,
                Arg::U32(value) => append(&value.to_le_bytes())?,
                Arg::F32(value) => append(&value.to_le_bytes())?,
                Arg::Bytes(bytes) => append(bytes)?,
                Arg::Tiling(_) => {
                    ok(acl!(self, aclrtKernelArgsAppendPlaceHolder(handle, &mut holders[count])))?;
                    count += 1;
                }
            }
        }
        let tilings = args.iter().filter_map(|arg| if let Arg::Tiling(bytes) = arg { Some(*bytes) } else { None });
        for (holder, bytes) in holders.into_iter().zip(tilings) {
            let mut buffer = null_mut();
            ok(acl!(self, aclrtKernelArgsGetPlaceHolderBuffer(handle, holder, bytes.len(), &mut buffer)))?;
            // SAFETY: the buffer has so many bytes.
            unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        ok(acl!(self, aclrtKernelArgsFinalize(handle)))?;
        Ok(handle)
    }

    pub(crate) fn try_launch(
        &self,
        function: aclrtFuncHandle,
        blocks: u32,
        stream: aclrtStream,
        args: &[Arg<'_>],
    ) -> aclError {
        match self.args(function, args) {
            Ok(args) => {
                acl!(self, aclrtLaunchKernelWithConfig(function, blocks, stream, null_mut(), args, null_mut()))
            }
            Err(code) => code,
        }
    }

    #[track_caller]
    pub(crate) fn launch(&self, name: &str, blocks: u32, stream: aclrtStream, args: &[Arg<'_>]) {
        let code = self.try_launch(self.kernel(name), blocks, stream, args);
        assert_eq!(code, 0, "{}", self.message());
    }

    /// Appends a number to a log in device memory: see the kernel `log`.
    #[track_caller]
    pub(crate) fn log(&self, log: *mut c_void, value: u32, stream: aclrtStream) {
        self.launch("log", 1, stream, &[Arg::Pointer(log), Arg::U32(value)]);
    }

    #[track_caller]
    pub(crate) fn new_log(&self) -> *mut c_void {
        self.device(&[0u32; 64])
    }

    /// The numbers of a log.
    #[track_caller]
    pub(crate) fn read_log(&self, log: *mut c_void) -> Vec<u32> {
        let all = self.download::<u32>(log, 64);
        all[1..=all[0] as usize].to_vec()
    }

    #[track_caller]
    pub(crate) fn begin(&self, stream: aclrtStream, mode: aclmdlRICaptureMode) {
        assert_eq!(acl!(self, aclmdlRICaptureBegin(stream, mode)), 0);
    }

    pub(crate) fn try_end(&self, stream: aclrtStream) -> Result<aclmdlRI, aclError> {
        let mut graph = null_mut();
        match acl!(self, aclmdlRICaptureEnd(stream, &mut graph)) {
            0 => Ok(graph),
            code => {
                assert!(graph.is_null(), "no graph with a code");
                Err(code)
            }
        }
    }

    #[track_caller]
    pub(crate) fn end(&self, stream: aclrtStream) -> aclmdlRI {
        self.try_end(stream).unwrap_or_else(|code| panic!("{code}: {}", self.message()))
    }

    pub(crate) fn status(&self, stream: aclrtStream) -> aclmdlRICaptureStatus {
        let mut status = aclmdlRICaptureStatus(99);
        assert_eq!(acl!(self, aclmdlRICaptureGetInfo(stream, &mut status, null_mut())), 0);
        status
    }

    pub(crate) fn replay(&self, graph: aclmdlRI, stream: aclrtStream) -> aclError {
        acl!(self, aclmdlRIExecuteAsync(graph, stream))
    }

    pub(crate) fn streams_left(&self) -> u32 {
        let mut left = 0;
        assert_eq!(acl!(self, aclrtGetStreamAvailableNum(&mut left)), 0);
        left
    }
}

/// Whether a call would be made with the machine that the rig has: the trait is in scope where the macro is used.
pub(crate) fn has(rig: &Rig, call: ascend_rt::raw::Call) -> bool {
    rig.host.has(call)
}

fn layout<const N: usize>(params: [(&'static str, ArgKind); N]) -> ArgLayout {
    ArgLayout::new(params).expect("small")
}

/// Adds the kernels of the test module `t`.
pub(crate) fn kernels(config: HostConfig) -> HostConfig {
    let u32s = ArgKind::Scalar { size: 4 };
    config
        .kernel("t", "noop", HostKernel::per_block(layout([]), CoreKind::Vector, |_| Ok(())))
        .kernel(
            "t",
            "log",
            HostKernel::per_block(layout([("log", ArgKind::InOut), ("value", u32s)]), CoreKind::Vector, |core| {
                let (log, value) = (core.args().buffer(0)?, core.args().scalar::<u32>(1)?);
                let count = log.load::<u32>(0)? + 1;
                log.store(count as usize, &value)?;
                log.store(0, &count)
            })
            .with_cost(|_| Duration::from_micros(100)),
        )
        .kernel(
            "t",
            "add",
            HostKernel::per_block(
                layout([("x", ArgKind::InOut), ("n", u32s), ("by", ArgKind::Scalar { size: 4 })]),
                CoreKind::Vector,
                |core| {
                    let args = core.args();
                    let (x, n, by) = (args.buffer(0)?, args.scalar::<u32>(1)?, args.scalar::<f32>(2)?);
                    for i in (core.block..n).step_by(core.blocks() as usize) {
                        x.store(i as usize, &(x.load::<f32>(i as usize)? + by))?;
                    }
                    Ok(())
                },
            ),
        )
        .kernel(
            "t",
            "tiled_scale",
            HostKernel::per_block(
                layout([
                    ("x", ArgKind::In),
                    ("factor", ArgKind::Scalar { size: 4 }),
                    ("y", ArgKind::Out),
                    ("tiling", ArgKind::Tiling { size: 8 }),
                ]),
                CoreKind::Vector,
                |core| {
                    let args = core.args();
                    let [n, per_block] = args.tiling::<[u32; 2]>(3)?;
                    let (x, factor, y) = (args.buffer(0)?, args.scalar::<f32>(1)?, args.buffer(2)?);
                    for i in core.block * per_block..n.min((core.block + 1) * per_block) {
                        y.store(i as usize, &(x.load::<f32>(i as usize)? * factor))?;
                    }
                    Ok(())
                },
            ),
        )
        .kernel(
            "t",
            "beyond",
            HostKernel::per_block(layout([("x", ArgKind::Out)]), CoreKind::Vector, |core| {
                let x = core.args().buffer(0)?;
                x.store(x.bytes() / 4, &1u32)
            }),
        )
        .kernel(
            "t",
            "trap",
            HostKernel::per_block(layout([]), CoreKind::Vector, |core| {
                Err(KernelFault::trap(format!("assertion n > 0 in block {}", core.block)))
            }),
        )
        .kernel(
            "t",
            "panic",
            HostKernel::per_block(layout([]), CoreKind::Vector, |_| panic!("the kernel of this test panics")),
        )
        .kernel(
            "t",
            "slow",
            HostKernel::per_block(layout([]), CoreKind::Vector, |_| Ok(())).with_cost(|_| Duration::from_secs(5)),
        )
        .kernel(
            "t",
            "sum",
            HostKernel::per_block(
                layout([("x", ArgKind::In), ("partial", ArgKind::Workspace), ("y", ArgKind::Out)]),
                CoreKind::Mix { aiv_per_aic: 2 },
                |core| {
                    // Each core writes its number; after the barrier, each sums what all have written.
                    let args = core.args();
                    let (partial, y) = (args.buffer(1)?, args.buffer(2)?);
                    let seat =
                        core.block * 3 + if core.core == ascend_rt::host::Core::Aic { 0 } else { 1 + core.sub_block };
                    partial.store(seat as usize, &(seat + 1))?;
                    core.sync_all()?;
                    let sum: u32 = partial.read::<u32>(0, core.blocks() as usize * 3)?.iter().sum();
                    core.sync_all()?;
                    y.store(seat as usize, &sum)
                },
            )
            .with_barrier(),
        )
        .kernel(
            "t",
            "half_barrier",
            HostKernel::per_block(layout([]), CoreKind::Cube, |core| {
                if core.block % 2 == 0 { core.sync_all() } else { Ok(()) }
            })
            .with_barrier(),
        )
        .kernel("t", "undeclared_barrier", HostKernel::per_block(layout([]), CoreKind::Cube, |core| core.sync_all()))
}
