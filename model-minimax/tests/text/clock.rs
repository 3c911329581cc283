// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model_minimax::text::strftime;

fn at(seconds: i64) -> SystemTime {
    let size = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { UNIX_EPOCH - size } else { UNIX_EPOCH + size }
}

#[test]
fn known_moments() {
    let cases = [
        (0, "%Y-%m-%d %H:%M:%S %A %j", "1970-01-01 00:00:00 Thursday 001"),
        (-1, "%Y-%m-%d %H:%M:%S %a", "1969-12-31 23:59:59 Wed"),
        // Leap day of a year divisible by 400, and the last day of such a year.
        (951_782_400, "%d %B %Y (%b, %j)", "29 February 2000 (Feb, 060)"),
        (978_220_800, "%Y-%m-%d %j", "2000-12-31 366"),
        // 2100 is no leap year.
        (4_107_542_400, "%Y-%m-%d", "2100-03-01"),
        (1_790_000_000, "%e %b %y, %I:%M %p", "21 Sep 26, 02:13 PM"),
        (1_767_225_600, "%I %p|%e|100%%", "12 AM| 1|100%"),
        (-11_676_096_000, "%Y-%m-%d", "1600-01-01"),
    ];
    for (seconds, format, expected) in cases {
        assert_eq!(strftime(at(seconds), format).unwrap(), expected, "{seconds} {format}");
    }
}

#[test]
fn unknown_directives_are_errors() {
    let error = strftime(UNIX_EPOCH, "%Y %Q").unwrap_err();
    assert_eq!((error.directive.as_str(), error.format.as_str()), ("Q", "%Y %Q"));
    assert_eq!(strftime(UNIX_EPOCH, "50%").unwrap_err().directive, "");
}
