// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checkpoints: golden ones, the published names, everything that can be wrong, and synthetic ones.

mod bad_input;
mod folder;
mod golden;
mod header;
mod m3;
mod prepare;
mod published;
mod synthetic;

use model_minimax::checkpoint::{FfnTensors, LayerTensors, MoeTensors};

/// The experts of a layer that has some.
fn moe(layer: &LayerTensors) -> &MoeTensors {
    match &layer.ffn {
        FfnTensors::Moe(moe) => moe,
        FfnTensors::Dense(_) => panic!("a dense layer"),
    }
}
