// SPDX-License-Identifier: MIT OR Apache-2.0

//! The list of calls: what is there, what answers to nonsense, what can be taken away.

use crate::support::{Rig, acl, has};
use ascend_rt::host::{Executor, HostConfig};
use ascend_rt::raw::{Call, NOT_AVAILABLE, Need};
use ascend_rt::sys::*;
use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

#[test]
fn every_required_call_is_there_and_of_the_others_only_caller_owned_argument_memory_is_not() {
    let rig = Rig::lazy();
    let missing: Vec<_> = Call::ALL.iter().copied().filter(|call| !has(&rig, *call)).collect();
    assert!(missing.iter().all(|call| call.need() == Need::Optional), "{missing:?}");
    assert_eq!(
        missing,
        [Call::aclrtKernelArgsGetHandleMemSize, Call::aclrtKernelArgsGetMemSize, Call::aclrtKernelArgsInitByUserMem]
    );
    let mut size = 0;
    assert_eq!(acl!(rig, aclrtKernelArgsGetHandleMemSize(null_mut(), &mut size)), NOT_AVAILABLE);
}

#[test]
fn a_call_can_be_taken_away_as_an_older_version_lacks_it() {
    let rig = Rig::new(HostConfig::new().executor(Executor::Lazy).without(Call::aclrtLaunchHostFunc));
    assert!(!has(&rig, Call::aclrtLaunchHostFunc) && has(&rig, Call::aclrtLaunchCallback));
    assert_eq!(acl!(rig, aclrtLaunchHostFunc(null_mut(), None, null_mut())), NOT_AVAILABLE);
    assert_eq!(rig.message(), "", "no call was made");
}

#[test]
fn null_and_stale_handles_are_refused_everywhere_and_nothing_panics() {
    let rig = Rig::lazy();
    let junk: [*mut c_void; 4] =
        [null_mut(), std::ptr::without_provenance_mut(8), std::ptr::without_provenance_mut(usize::MAX), rig.malloc(64)];
    let mut place = null_mut();
    let (mut count, mut value, mut flag, mut id, mut ms) = (0u64, 0i64, 0i32, 0i32, 0f32);
    let mut status = ACL_STREAM_STATUS_COMPLETE;
    for (n, bad) in junk.into_iter().enumerate() {
        // A null stream is the default one, so it is good where a stream is asked for.
        let default = n == 0;
        let codes = [
            acl!(rig, aclrtDestroyContext(bad)),
            acl!(rig, aclrtSetCurrentContext(bad)),
            acl!(rig, aclrtDestroyStream(bad)),
            acl!(rig, aclrtDestroyStreamForce(bad)),
            acl!(rig, aclrtDestroyEvent(bad)),
            acl!(rig, aclrtSynchronizeEvent(bad)),
            acl!(rig, aclrtRecordEvent(bad, null_mut())),
            acl!(rig, aclrtStreamWaitEvent(null_mut(), bad)),
            acl!(rig, aclrtEventElapsedTime(&mut ms, bad, bad)),
            acl!(rig, aclrtFreeHost(bad)),
            acl!(rig, aclrtHostUnregister(bad)),
            acl!(rig, aclrtBinaryUnLoad(bad)),
            acl!(rig, aclrtBinaryGetFunction(bad, c"noop".as_ptr(), &mut place)),
            acl!(rig, aclrtGetFunctionAttribute(bad, ACL_FUNC_ATTR_KERNEL_TYPE, &mut value)),
            acl!(rig, aclrtKernelArgsInit(bad, &mut place)),
            acl!(rig, aclrtKernelArgsAppend(bad, null_mut(), 8, &mut place)),
            acl!(rig, aclrtKernelArgsAppendPlaceHolder(bad, &mut place)),
            acl!(rig, aclrtKernelArgsGetPlaceHolderBuffer(bad, bad, 8, &mut place)),
            acl!(rig, aclrtKernelArgsParaUpdate(bad, bad, (&raw mut count).cast(), 8)),
            acl!(rig, aclrtKernelArgsFinalize(bad)),
            acl!(rig, aclrtLaunchKernelWithConfig(bad, 1, null_mut(), null_mut(), bad, null_mut())),
            acl!(rig, aclrtLaunchKernelWithHostArgs(bad, 1, null_mut(), null_mut(), null_mut(), 0, null_mut(), 0)),
            acl!(rig, aclmdlRIExecuteAsync(bad, null_mut())),
            acl!(rig, aclmdlRIDestroy(bad)),
            acl!(rig, aclmdlRIDebugJsonPrint(bad, c"nowhere".as_ptr(), 0)),
            acl!(rig, aclmdlRIDestroyRegisterCallback(bad, None, null_mut())),
            acl!(rig, aclmdlRICaptureTaskUpdateBegin(null_mut(), bad)),
            acl!(rig, aclprofStart(bad.cast())),
            acl!(rig, aclprofStop(bad.cast())),
            acl!(rig, aclprofDestroyConfig(bad.cast())),
            acl!(rig, aclprofPush(bad)),
        ];
        assert!(codes.iter().all(|code| *code > 0), "{n}: {codes:?}");
        let of_streams = [
            acl!(rig, aclrtSynchronizeStream(bad)),
            acl!(rig, aclrtSynchronizeStreamWithTimeout(bad, 5)),
            acl!(rig, aclrtStreamQuery(bad, &mut status)),
            acl!(rig, aclrtStreamGetId(bad, &mut id)),
            acl!(rig, aclmdlRICaptureGetInfo(bad, &mut aclmdlRICaptureStatus(0), null_mut())),
        ];
        assert!(of_streams.iter().all(|code| (*code == 0) == default), "{n}: {of_streams:?}");
        acl!(rig, aclprofDestroyStamp(bad));
        acl!(rig, mstxDomainDestroy(bad));
    }
    // No place for the result.
    let stream = rig.stream();
    let event = rig.event();
    let codes = [
        acl!(rig, aclrtGetDeviceCount(null_mut())),
        acl!(rig, aclrtGetDevice(null_mut())),
        acl!(rig, aclrtGetDeviceInfo(0, ACL_DEV_ATTR_NPU_ARCH, null_mut())),
        acl!(rig, aclrtGetMemInfo(ACL_HBM_MEM, null_mut(), null_mut())),
        acl!(rig, aclrtCreateContext(null_mut(), 0)),
        acl!(rig, aclrtGetCurrentContext(null_mut())),
        acl!(rig, aclrtDeviceCanAccessPeer(null_mut(), 0, 0)),
        acl!(rig, aclrtCreateStreamWithConfig(null_mut(), 0, 0)),
        acl!(rig, aclrtStreamQuery(stream, null_mut())),
        acl!(rig, aclrtStreamGetId(stream, null_mut())),
        acl!(rig, aclrtGetStreamAvailableNum(null_mut())),
        acl!(rig, aclrtSetOpExecuteTimeOutV2(1, null_mut())),
        acl!(rig, aclrtCreateEventExWithFlag(null_mut(), 1)),
        acl!(rig, aclrtCreateEventWithFlag(null_mut(), 1)),
        acl!(rig, aclrtQueryEventStatus(event, null_mut())),
        acl!(rig, aclrtMallocHost(null_mut(), 8)),
        acl!(rig, aclrtHostRegister(null_mut(), 8, ACL_HOST_REGISTER_MAPPED, null_mut())),
        acl!(rig, aclrtPointerGetAttributes(null(), null_mut())),
        acl!(rig, aclrtBinaryLoadFromFile(null(), null_mut(), null_mut())),
        acl!(rig, aclrtBinaryLoadFromData(null(), 0, null(), null_mut())),
        acl!(rig, aclrtGetHardwareSyncAddr(null_mut())),
        acl!(rig, aclrtCheckArchCompatibility(null(), &mut flag)),
        acl!(rig, aclmdlRICaptureGetInfo(stream, null_mut(), null_mut())),
        acl!(rig, aclmdlRICaptureEnd(stream, null_mut())),
        acl!(rig, aclmdlRICaptureThreadExchangeMode(null_mut())),
        acl!(rig, aclmdlRICaptureTaskGrpEnd(stream, null_mut())),
        acl!(rig, aclprofInit(null(), 0)),
        acl!(rig, aclprofMarkEx(null(), 0, stream)),
        acl!(rig, aclsysGetVersionNum(null_mut(), null_mut())),
        acl!(rig, aclsysGetCANNVersion(ACL_PKG_NAME_CANN, null_mut())),
    ];
    assert!(codes.iter().all(|code| *code == ACL_ERROR_RT_PARAM_INVALID), "{codes:?}");
    assert!(acl!(rig, aclprofCreateConfig(null_mut(), 0, ACL_AICORE_NONE, null(), 0)).is_null());
    assert!(acl!(rig, aclprofCreateStamp()).is_null());
    assert!(acl!(rig, mstxDomainCreateA(null())).is_null());
    assert_eq!(acl!(rig, mstxRangeStartA(null(), null_mut())), 0);
    acl!(rig, mstxMarkA(null(), null_mut()));
}

#[test]
fn the_version_is_that_of_the_interface_it_follows() {
    let rig = Rig::lazy();
    let mut version = 0;
    let mut name = *b"runtime\0";
    assert_eq!(acl!(rig, aclsysGetVersionNum(name.as_mut_ptr().cast(), &mut version)), 0);
    assert_eq!(version, 90_100_000);
    let mut text = aclCANNPackageVersion {
        version: [0; 128],
        majorVersion: [0; 64],
        minorVersion: [0; 64],
        releaseVersion: [0; 64],
        patchVersion: [0; 64],
        reserved: [0; 128],
    };
    assert_eq!(acl!(rig, aclsysGetCANNVersion(ACL_PKG_NAME_CANN, &mut text)), 0);
    // SAFETY: the field ends with zeros.
    assert_eq!(unsafe { CStr::from_ptr(text.version.as_ptr()) }, c"9.1.0");
    let name = acl!(rig, aclrtGetSocName());
    // SAFETY: the call returns a string that lives as long as the machine.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"Ascend910B2");
    let mut address = null_mut();
    assert_eq!(acl!(rig, aclrtGetHardwareSyncAddr(&mut address)), 0);
    assert!(!address.is_null());
}
