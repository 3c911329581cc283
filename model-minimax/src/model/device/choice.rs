// SPDX-License-Identifier: MIT OR Apache-2.0

//! The name of a device, as the command line takes it.

use std::fmt;
use std::str::FromStr;

/// Where a model runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The CPU.
    #[default]
    Cpu,
    /// The card of this number.
    Npu(u32),
    /// The emulator of a chip of this name: `910b3`, `950pr`, or in full `Ascend910B3`.
    Sim(String),
}

/// A text that names no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceNameError {
    /// It has none of the forms.
    #[error("unknown device {0:?}; known are cpu, npu:N (N is the number of the card) and sim:SOC")]
    Unknown(String),
    /// The variable that has the number of the card has something else.
    #[error("TILE_FWK_DEVICE_ID should be the number of an NPU, found {0:?}")]
    BadNumber(String),
}

impl FromStr for DeviceChoice {
    type Err = DeviceNameError;

    /// `cpu`, `npu:N`, `npu`, `N` or `sim:SOC`; nothing is `cpu`.
    fn from_str(text: &str) -> Result<Self, DeviceNameError> {
        let unknown = || DeviceNameError::Unknown(text.to_owned());
        match text.split_once(':') {
            // Nothing, as a variable may hold, means the default.
            None if text.is_empty() || text == "cpu" => Ok(Self::Cpu),
            // The published driver exports the number of the card and means it wherever none is given.
            None if text == "npu" => match std::env::var("TILE_FWK_DEVICE_ID") {
                Ok(number) if !number.is_empty() => {
                    number.parse().map(Self::Npu).map_err(|_| DeviceNameError::BadNumber(number))
                }
                _ => Ok(Self::Npu(0)),
            },
            // Its DEVICE is a bare number.
            None => text.parse().map(Self::Npu).map_err(|_| unknown()),
            Some(("npu", number)) => number.parse().map(Self::Npu).map_err(|_| unknown()),
            Some(("sim", soc)) if !soc.is_empty() => Ok(Self::Sim(soc.to_owned())),
            Some(_) => Err(unknown()),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Npu(number) => write!(f, "npu:{number}"),
            Self::Sim(soc) => write!(f, "sim:{soc}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        let known = [
            ("cpu", DeviceChoice::Cpu),
            ("", DeviceChoice::Cpu),
            ("npu:3", DeviceChoice::Npu(3)),
            ("2", DeviceChoice::Npu(2)),
            ("sim:910b", DeviceChoice::Sim("910b".to_owned())),
        ];
        for (text, device) in known {
            assert_eq!(device.to_string().parse(), Ok(device.clone()));
            assert_eq!(text.parse(), Ok(device), "{text}");
        }
        for text in ["gpu", "npu:", "npu:x", "sim:", "cpu:0", "-1"] {
            assert_eq!(text.parse::<DeviceChoice>(), Err(DeviceNameError::Unknown(text.to_owned())));
        }
    }
}
