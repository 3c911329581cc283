// SPDX-License-Identifier: MIT OR Apache-2.0

//! In a build without the feature `npu` there is no model on a device.

use super::{Device, DeviceError, MemoryPlan, Sizes, Step};
use crate::bench::Arm;
use crate::config::ModelConfig;
use crate::model::msa::{Choice, Msa};
use crate::model::weights::{Layer, Mlps};
use crate::model::{LoadOptions, ModelError};
use half::bf16;

/// What a model has on a device.
#[derive(Debug)]
pub(crate) enum Accelerator {}

impl Accelerator {
    pub(crate) fn plan(
        _device: &Device,
        _config: &ModelConfig,
        _options: &LoadOptions,
        _msa: Option<&Msa>,
        _sizes: &Sizes,
    ) -> Result<Option<MemoryPlan>, DeviceError> {
        Ok(None)
    }

    pub(crate) fn new(
        _device: &Device,
        _options: &LoadOptions,
        _plan: MemoryPlan,
        _config: &ModelConfig,
        _layers: &[Layer],
        _msa: Option<&Msa>,
        _keep: bool,
    ) -> Result<Option<Self>, DeviceError> {
        Ok(None)
    }

    pub(crate) fn experts(
        &mut self,
        _arm: Arm,
        _layer: usize,
        _mlps: &Mlps,
        _tokens: &[bf16],
        _choice: (&[u32], &[f32]),
    ) -> Result<Vec<f32>, ModelError> {
        match *self {}
    }

    pub(crate) fn capture(&mut self, _arm: Arm) -> Result<(), ModelError> {
        match *self {}
    }

    pub(crate) fn attend(
        &mut self,
        _msa: &Msa,
        _step: &Step<'_>,
        _want_choice: bool,
        _out: &mut [f32],
    ) -> Result<Option<Choice>, ModelError> {
        match *self {}
    }
}
