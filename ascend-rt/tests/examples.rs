// SPDX-License-Identifier: MIT OR Apache-2.0

//! The course of examples runs, and holds what it says.

macro_rules! examples {
    ($($name:ident = $path:literal;)+) => {$(
        #[path = $path]
        mod $name;

        #[test]
        fn $name() {
            $name::main().expect("the example runs");
        }
    )+};
}

examples! {
    allocate = "../examples/01_allocate.rs";
    copy = "../examples/02_copy.rs";
    launch = "../examples/03_launch.rs";
    events = "../examples/04_events.rs";
    two_streams = "../examples/05_two_streams.rs";
    graph = "../examples/06_graph.rs";
    faults = "../examples/07_faults.rs";
}
