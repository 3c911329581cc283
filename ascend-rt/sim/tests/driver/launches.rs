// SPDX-License-Identifier: MIT OR Apache-2.0

//! Launches: arguments there and back, what the image is told, and what comes of it.

use std::cell::RefCell;

use ascend_sim::{Args, Chip, Image, Mode, Mute, RunError, Settings, Task};

use crate::fake::{self, Folder};

#[test]
fn what_an_image_has() {
    let image = fake::image();
    assert_eq!((image.name(), image.arch()), ("adder", 2201));
    assert_eq!(image.rules(), ["bounds", "hazard-raw", "deadlock", "no-such-rule"]);
    let kernels: Vec<_> =
        image.kernels().iter().map(|kernel| (kernel.name.as_str(), kernel.task, kernel.parameters.len())).collect();
    assert_eq!(
        kernels,
        [
            ("add", Task::AivOnly, 5),
            ("hang", Task::Mix12, 1),
            ("bare", Task::AicOnly, 1),
            ("tiled", Task::Mix11, 3),
            ("nothing", Task::AivOnly, 0),
        ]
    );
    let (number, add) = image.kernel("add").unwrap();
    assert_eq!((number, add.args_bytes), (0, 32));
    let names: Vec<String> = (0..6).map(|index| add.parameter_name(index)).collect();
    assert_eq!(names, ["x", "y", "z", "n", "scale", "arg5"]);
    // A kernel whose parameters the recipe did not find has none of their names.
    assert_eq!(image.kernel("hang").unwrap().1.parameter_name(0), "arg0");
    // Without a recipe, the module is called like its first kernel.
    assert_eq!(Image::load(&fake::bytes(&[])).unwrap().name(), "add");
}

#[test]
fn arguments_go_there_and_results_come_back() {
    let image = fake::image();
    let (x, y) = (vec![1.0f32, 2.0, 3.0, 4.0, 5.0], vec![10.0f32; 5]);
    let mut z = vec![0.0f32; 5];
    let args = Args::new().input(&x).input(&y).buffer(&mut z).value(5u32).value(2.0f32);
    let printed = RefCell::new(String::new());
    let chip = Chip::preset("910b3").unwrap();
    let mut launch = image
        .launch("add")
        .unwrap()
        .chip(chip)
        .blocks(7)
        .args(args)
        .print_to(|text| printed.borrow_mut().push_str(text))
        .settings(&Settings { mode: Mode::Chaos(3), verbose: true, ..Settings::default() });
    let run = launch.run().unwrap();
    drop(launch);
    assert_eq!(z, [22.0, 24.0, 26.0, 28.0, 30.0]);
    assert_eq!(x[0], 1.0, "inputs are copies");
    assert_eq!(printed.into_inner(), "7 of add on Ascend910B3 verbose 1 seed 3\n");
    assert_eq!((run.instructions, run.used.ub, run.used.l1), (3, 96, 0));
    let syncs: Vec<String> = run.syncs.iter().map(|sync| format!("{sync} {}", sync.calls)).collect();
    assert_eq!(
        syncs,
        ["SetFlag at kernel/add.cpp:10 4", "WaitFlag at kernel/add.cpp:11 4", "PipeBarrier at kernel/add.cpp:12 1"]
    );
}

#[test]
fn a_dry_run_changes_nothing() {
    let image = fake::image();
    let (x, mut z) = ([1.0f32; 4], [9.0f32; 4]);
    let args = Args::new().input(&x).input(&x).buffer(&mut z).value(4u32).value(1.0f32);
    let run = image.launch("add").unwrap().args(args).mode(Mode::Dry).run().unwrap();
    assert_eq!(z, [9.0; 4]);
    assert_eq!(run.program.cores.len(), 2);
}

#[test]
fn records_have_device_addresses() {
    let image = fake::image();
    let run = |record: bool| {
        let (x, mut z) = (vec![1.0f32; 200], vec![0.0f32; 200]);
        let args = Args::new().input(&x).input(&x).buffer(&mut z).value(200u32).value(1.0f32);
        image.launch("add").unwrap().args(args).record(record).run().unwrap().program
    };
    let program = run(true);
    assert_eq!(program.names, ["DataCopy", "Add"]);
    assert_eq!(program.sites, [("kernel/add.cpp".to_owned(), 20), ("kernel/add.cpp".to_owned(), 21)]);
    let [vector, cube] = &program.cores[..] else { panic!("{:?}", program.cores) };
    assert_eq!((vector.cube, vector.records.len(), cube.cube, cube.records.len()), (false, 2, true, 0));
    // The second buffer begins at the next multiple of 512 bytes, and the copy 4 bytes later.
    assert_eq!(vector.records[0].gm_address, (1 << 40) + 1024 + 4);
    assert_eq!(vector.records[1].a, [1, 4, 200, 0]);
    assert_eq!(vector.records[1].gm_address, 0);
    assert_eq!(run(true), program, "wherever the host has put the buffers");
    assert!(run(false).cores.is_empty());
}

#[test]
fn buffers_begin_at_512_bytes_and_may_be_empty_or_null() {
    let image = fake::image();
    // The kernel of no elements touches nothing, and the kernel of one touches each.
    let empty: [f32; 0] = [];
    let mut none: [f32; 0] = [];
    let args = Args::new().input(&empty).null().buffer(&mut none).value(0u32).value(1.0f32);
    assert!(format!("{args:?}").contains("a null pointer"), "{args:?}");
    let error = image.launch("add").unwrap().args(args).run().unwrap_err();
    assert!(error.fault().is_some_and(|fault| fault.message.contains("argument 0")), "{error}");

    let mut data = [1i32, 2, 3];
    let tiling = [0i32, 99];
    let args = Args::new().buffer(&mut data).workspace(64).input(&tiling);
    let error = image.launch("tiled").unwrap().args(args).run().unwrap_err();
    assert_eq!(error.fault().unwrap().message, "x:0:12 workspace:1");
    assert_eq!(data, [1, 2, 3], "a launch that failed gives no results");
}

#[test]
fn no_parameters_at_all() {
    let run = fake::image().launch("nothing").unwrap().run().unwrap();
    assert_eq!(run.instructions, 0);
}

#[test]
fn launches_that_do_not_fit() {
    let image = fake::image();
    let error = image.launch("mul").unwrap_err();
    assert_eq!(error.to_string(), "the image has no kernel `mul`: it has add, hang, bare, tiled, nothing");
    let x = [0u32; 4];
    let add = || image.launch("add").unwrap();
    let cases = [
        (add(), "kernel `add` has 5 parameters, found 0"),
        (
            add().args(Args::new().input(&x).input(&x).input(&x).value(1u64).value(1.0f32)),
            "parameter 3 `n` of `add` is 4 bytes, found a value of 8 bytes",
        ),
        (
            add().args(Args::new().value(1u64).input(&x).input(&x).value(1u32).value(1.0f32)),
            "parameter 0 `x` of `add` is a pointer, found a value of 8 bytes",
        ),
        (
            add().args(Args::new().input(&x).input(&x).input(&x).workspace(4).value(1.0f32)),
            "parameter 3 `n` of `add` is 4 bytes, found a workspace of 4 bytes",
        ),
        (
            add().args(Args::new().input(&x).workspace(usize::MAX / 2).input(&x).value(1u32).value(1.0f32)),
            "no host memory for a workspace of",
        ),
        (image.launch("nothing").unwrap().blocks(0), "0 blocks, expected at least 1"),
        (
            image.launch("nothing").unwrap().chip(Chip::preset("950pr").unwrap()),
            "the image is for dav-2201, and Ascend950PR is dav-3510",
        ),
    ];
    for (mut launch, part) in cases {
        let error = launch.run().unwrap_err();
        assert!(error.to_string().starts_with(part), "{error}");
        assert!(error.fault().is_none());
    }
}

#[test]
fn calls_are_left_out_by_api_file_and_line() {
    let image = fake::image();
    let mut faults = Vec::new();
    for mute in [
        Mute { line: 11, ..Mute::default() },
        Mute { api: Some("WaitFlag".into()), file: Some("add.cpp".into()), line: 11, nth: 0 },
        Mute { api: Some("SetFlag".into()), line: 11, ..Mute::default() },
        Mute { file: Some("mul.cpp".into()), line: 11, ..Mute::default() },
    ] {
        let (x, mut z) = ([1.0f32; 4], [0.0f32; 4]);
        let args = Args::new().input(&x).input(&x).buffer(&mut z).value(4u32).value(1.0f32);
        faults.push(image.launch("add").unwrap().args(args).mute(mute).run().is_err());
    }
    assert_eq!(faults, [true, true, false, false]);
}

#[test]
fn results_go_back_to_the_image() {
    let folder = Folder::new();
    let path = fake::file(&folder, &[]);
    let image = Image::open(&path).unwrap();
    let library = {
        // SAFETY: the fake has no initialisers; it is the object that is open already.
        unsafe { libloading::Library::new(&path) }.unwrap()
    };
    // SAFETY: the fake defines it so.
    let live = unsafe { library.get::<unsafe extern "C" fn() -> i32>(b"fake_live\0") }.unwrap();
    for _ in 0..3 {
        let (x, mut z) = ([1.0f32; 4], [0.0f32; 4]);
        let args = Args::new().input(&x).input(&x).buffer(&mut z).value(4u32).value(1.0f32);
        image.launch("add").unwrap().args(args).run().unwrap();
        assert!(matches!(image.launch("hang").unwrap().args(Args::new().null()).run(), Err(RunError::Fault(_))));
    }
    // SAFETY: it takes nothing and reads a counter.
    assert_eq!(unsafe { live() }, 0);
}

#[test]
fn images_of_the_same_bytes_are_apart_and_threads_may_share_one() {
    let bytes = fake::bytes(&[]);
    let (one, other) = (Image::load(&bytes).unwrap(), Image::load(&bytes).unwrap());
    std::thread::scope(|scope| {
        for image in [&one, &one, &other] {
            scope.spawn(move || {
                for count in 1..20u32 {
                    let (x, mut z) = (vec![1.0f32; 64], vec![0.0f32; 64]);
                    let args = Args::new().input(&x).input(&x).buffer(&mut z).value(count).value(1.0f32);
                    image.launch("add").unwrap().args(args).print_to(|_| {}).run().unwrap();
                    assert_eq!(z.iter().sum::<f32>(), 2.0 * count as f32);
                }
            });
        }
    });
}

#[test]
fn a_print_that_panics_does_not_reach_the_image() {
    let image = fake::image();
    let (x, mut z) = ([1.0f32; 4], [0.0f32; 4]);
    let args = Args::new().input(&x).input(&x).buffer(&mut z).value(4u32).value(1.0f32);
    let run = image.launch("add").unwrap().args(args).print_to(|_| panic!("full")).run();
    assert_eq!(run.unwrap().instructions, 3);
    assert_eq!(z, [2.0; 4]);
}
