// SPDX-License-Identifier: MIT OR Apache-2.0

/// Declares kernels: their parameters, once, for the launch, the layout and the emulator.
///
/// Each declaration is a struct whose fields are the arguments of a launch. After the name in the module comes `on` with
/// the cores: `vector`, `cube` or `mix(n)` with `n` vector cores per cube core; then `with barrier` if the cores wait for
/// each other. A parameter is
///
/// * `in T`, `out T` or `inout T`: a buffer that is read, written, or both;
/// * `workspace`: scratch memory in bytes;
/// * `scalar T`: a value;
/// * `tiling T`: a struct made by [`tiling!`](crate::tiling!), which the runtime brings to the device with the launch.
///
/// A kernel has at least one buffer or no parameter at all.
///
/// ```
/// use ascend_rt::kernel::KernelSig;
/// use ascend_rt::{kernel, tiling};
///
/// tiling! {
///     /// How the work is split.
///     pub struct AxpyTiling {
///         pub n: u32,
///         pub per_block: u32,
///     }
/// }
///
/// kernel! {
///     /// `y = a * x + y`
///     pub kernel Axpy("axpy_f32") on vector {
///         x: in f32,
///         y: inout f32,
///         a: scalar f32,
///         tiling: tiling AxpyTiling,
///     }
/// }
/// assert_eq!(Axpy::layout()?.block_bytes(), 32);
/// # Ok::<(), ascend_rt::Error>(())
/// ```
///
/// A launch then names every argument:
///
/// ```
/// # use ascend_rt::{DeviceBuffer, Kernel, Result, Stream, kernel};
/// # kernel! { kernel Scale("scale") on vector { x: in f32, y: out f32, a: scalar f32 } }
/// fn double(stream: &Stream, scale: &Kernel<Scale<'static>>, x: &DeviceBuffer<f32>, y: &mut DeviceBuffer<f32>) -> Result<()> {
///     // SAFETY: the caller's buffers are of one length, which is all that this kernel asks for.
///     unsafe { scale.launch(stream, 8, Scale { x: x.into(), y: y.into(), a: 2.0 }) }
/// }
/// ```
///
/// The types are those of the declaration, and what is written is borrowed alone:
///
/// ```compile_fail
/// # use ascend_rt::{DeviceBuffer, kernel};
/// # kernel! { kernel Negate("negate") on vector { x: in f32, y: out f32 } }
/// fn integers<'a>(x: &'a DeviceBuffer<i32>, y: &'a mut DeviceBuffer<f32>) -> Negate<'a> {
///     Negate { x: x.into(), y: y.into() }
/// }
/// ```
///
/// ```compile_fail
/// # use ascend_rt::{DeviceBuffer, kernel};
/// # kernel! { kernel Negate("negate") on vector { x: in f32, y: out f32 } }
/// fn shared<'a>(x: &'a DeviceBuffer<f32>, y: &'a DeviceBuffer<f32>) -> Negate<'a> {
///     Negate { x: x.into(), y: y.into() }
/// }
/// ```
#[macro_export]
macro_rules! kernel {
    ($(
        $(#[$meta:meta])*
        $vis:vis kernel $kernel:ident($name:literal) on $cores:ident $(($ratio:literal))? $(with $barrier:ident)? {
            $($(#[$arg_meta:meta])* $arg:ident: $kind:tt $($type:ty)?),* $(,)?
        }
    )+) => {$(
        $crate::__kernel_struct! {
            [$(#[$meta])*] $vis $kernel { $($(#[$arg_meta])* $arg: $kind $($type)?,)* }
        }

        impl $crate::kernel::KernelSig for $crate::__kernel_type!($kernel 'static { $($arg)* }) {
            type Args<'a> = $crate::__kernel_type!($kernel 'a { $($arg)* });
            const NAME: &'static str = $name;
            const CORES: $crate::kernel::CoreKind = $crate::__kernel_cores!($cores $(($ratio))?);
            const BARRIER: bool = $crate::__kernel_barrier!($($barrier)?);
            const PARAMS: &'static [(&'static str, $crate::kernel::ArgKind)] =
                &[$((stringify!($arg), $crate::__kernel_kind!($kind $($type)?)),)*];
        }

        impl $crate::kernel::KernelArgs for $crate::__kernel_type!($kernel '_ { $($arg)* }) {
            fn visit(&self, visitor: &mut dyn $crate::kernel::ArgVisitor) -> $crate::error::Result<()> {
                $($crate::__kernel_visit!(visitor, self.$arg, $kind)?;)*
                let _ = visitor;
                Ok(())
            }
        }
    )+};
}

/// The struct of the arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! __kernel_struct {
    ([$($meta:tt)*] $vis:vis $kernel:ident {}) => {
        $($meta)*
        #[derive(Debug)]
        $vis struct $kernel {}
    };
    ([$($meta:tt)*] $vis:vis $kernel:ident {
        $($(#[$arg_meta:meta])* $arg:ident: $kind:tt $($type:ty)?,)+
    }) => {
        $($meta)*
        #[derive(Debug)]
        $vis struct $kernel<'a> {
            $(
                $(#[$arg_meta])*
                #[doc = $crate::__kernel_doc!($kind)]
                $vis $arg: $crate::__kernel_field!($kind 'a $($type)?),
            )+
        }
    };
}

/// The struct with its lifetime, if it has one.
#[doc(hidden)]
#[macro_export]
macro_rules! __kernel_type {
    ($kernel:ident $life:lifetime {}) => {
        $kernel
    };
    ($kernel:ident $life:lifetime { $($arg:ident)+ }) => {
        $kernel<$life>
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __kernel_field {
    (in $life:lifetime $type:ty) => {
        $crate::DeviceSlice<$life, $type>
    };
    (out $life:lifetime $type:ty) => {
        $crate::DeviceSliceMut<$life, $type>
    };
    (inout $life:lifetime $type:ty) => {
        $crate::DeviceSliceMut<$life, $type>
    };
    (workspace $life:lifetime) => {
        $crate::DeviceSliceMut<$life, u8>
    };
    (scalar $life:lifetime $type:ty) => {
        $type
    };
    (tiling $life:lifetime $type:ty) => {
        $type
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __kernel_doc {
    (in) => {
        "Read by the kernel."
    };
    (out) => {
        "Written by the kernel."
    };
    (inout) => {
        "Read and written by the kernel."
    };
    (workspace) => {
        "Scratch memory."
    };
    (scalar) => {
        "A value."
    };
    (tiling) => {
        "How the work is split."
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __kernel_kind {
    (in $type:ty) => {
        $crate::kernel::ArgKind::In
    };
    (out $type:ty) => {
        $crate::kernel::ArgKind::Out
    };
    (inout $type:ty) => {
        $crate::kernel::ArgKind::InOut
    };
    (workspace) => {
        $crate::kernel::ArgKind::Workspace
    };
    (scalar $type:ty) => {
        $crate::kernel::ArgKind::Scalar { size: ::core::mem::size_of::<$type>() }
    };
    (tiling $type:ty) => {
        $crate::kernel::ArgKind::Tiling { size: ::core::mem::size_of::<$type>() }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __kernel_visit {
    ($visitor:ident, $arg:expr, in) => {
        $visitor.input($arg.untyped())
    };
    ($visitor:ident, $arg:expr, out) => {
        $visitor.output($arg.untyped())
    };
    ($visitor:ident, $arg:expr, inout) => {
        $visitor.output($arg.untyped())
    };
    ($visitor:ident, $arg:expr, workspace) => {
        $visitor.output($arg.untyped())
    };
    ($visitor:ident, $arg:expr, scalar) => {
        $visitor.scalar($crate::zerocopy::IntoBytes::as_bytes(&$arg))
    };
    ($visitor:ident, $arg:expr, tiling) => {
        $visitor.tiling($crate::zerocopy::IntoBytes::as_bytes(&$arg))
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __kernel_cores {
    (vector) => {
        $crate::kernel::CoreKind::Vector
    };
    (cube) => {
        $crate::kernel::CoreKind::Cube
    };
    (mix($ratio:literal)) => {
        $crate::kernel::CoreKind::Mix { aiv_per_aic: $ratio }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __kernel_barrier {
    () => {
        false
    };
    (barrier) => {
        true
    };
}

/// Declares a struct that a kernel gets beside its arguments: laid out as in C, of plain values, and without padding, so
/// that host and device agree on every byte. A struct with padding does not compile.
///
/// ```
/// ascend_rt::tiling! {
///     /// How rows are split.
///     pub struct RowTiling {
///         pub rows: u32,
///         pub per_block: u32,
///         pub bytes: u64,
///     }
/// }
/// assert_eq!(size_of::<RowTiling>(), 16);
/// ```
///
/// ```compile_fail
/// ascend_rt::tiling! {
///     pub struct Padded {
///         pub rows: u32,
///         pub bytes: u64, // four bytes of padding before it
///     }
/// }
/// ```
#[macro_export]
macro_rules! tiling {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty),+ $(,)?
        }
    )+) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(
            Clone, Copy, Debug, PartialEq,
            $crate::zerocopy::FromBytes, $crate::zerocopy::IntoBytes, $crate::zerocopy::Immutable,
        )]
        #[zerocopy(crate = "ascend_rt::zerocopy")]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type,)+
        }

        const _: () = assert!(
            ::core::mem::size_of::<$name>() == 0 $(+ ::core::mem::size_of::<$type>())+,
            concat!("tiling struct `", stringify!($name), "` has padding: order its fields by size, or fill the gaps"),
        );
    )+};
}
