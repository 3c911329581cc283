// SPDX-License-Identifier: MIT OR Apache-2.0

//! Copy to the device and back: from ordinary memory, in parts, and from pinned memory without waiting.

use ascend_rt::{Choice, Queue, Result, Runtime};

pub(crate) fn main() -> Result<()> {
    let context = Runtime::open(Choice::Auto)?.device(0)?.isolated()?;
    let stream = context.stream()?;

    // A copy of a slice returns when it is done, so a borrow is enough.
    let mut buffer = stream.upload(&[1i32, 2, 3, 4, 5, 6])?;
    assert_eq!(stream.download(&buffer)?, [1, 2, 3, 4, 5, 6]);

    // Parts of a buffer are slices. Two parts that can be written never share a byte.
    let other = stream.upload(&[70i32, 80])?;
    let (mut left, right) = buffer.slice_mut(..)?.split_at(2)?;
    stream.copy(&other, &mut left)?;
    stream.fill(right.slice(2..)?, 0xff)?;
    assert_eq!(stream.download(&buffer)?, [70, 80, 3, 4, -1, -1]);

    // Copies from and to pinned memory are queued, and the host goes on.
    let mut host = context.pinned_from(&[9i32; 6])?;
    stream.upload_pinned(&host, &mut buffer)?;
    // Touching the memory waits for the copy: here, so that it does not copy what comes after.
    host.write()?.fill(0);
    stream.download_pinned(&buffer, &mut host)?;
    // And here, so that it has arrived.
    assert_eq!(*host.read()?, [9; 6]);
    println!("six numbers went there and back");
    Ok(())
}
