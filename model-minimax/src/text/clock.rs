// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where a template's `strftime_now` takes the time from: `SystemTime::now` in a program, a fixed moment
/// in a test.
pub type Clock = fn() -> SystemTime;

/// A format that [`strftime`] does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "strftime: directive %{directive} in {format:?} is not supported (known: %Y %y %m %d %e %j %H %I %M %S %p %A %a %B %b %%)"
)]
pub struct StrftimeError {
    /// The character after `%` (nothing at the end of the format).
    pub directive: String,
    /// The whole format.
    pub format: String,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Formats `time` in UTC with the usual `strftime` directives, names in English.
///
/// # Errors
/// [`StrftimeError`] for a directive outside the list in its message.
pub fn strftime(time: SystemTime, format: &str) -> Result<String, StrftimeError> {
    let seconds = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
    };
    let (days, second_of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    let hour12 = (hour + 11) % 12 + 1;
    let (year, month, day, day_of_year) = civil_date(days);
    let month_name = MONTHS[month - 1];
    // 1970-01-01 was a Thursday.
    let weekday = WEEKDAYS[usize::try_from((days + 4).rem_euclid(7)).unwrap_or(0)];

    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let directive = chars.next();
        let written = match directive {
            Some('Y') => write!(out, "{year}"),
            Some('y') => write!(out, "{:02}", year.rem_euclid(100)),
            Some('m') => write!(out, "{month:02}"),
            Some('d') => write!(out, "{day:02}"),
            Some('e') => write!(out, "{day:2}"),
            Some('j') => write!(out, "{day_of_year:03}"),
            Some('H') => write!(out, "{hour:02}"),
            Some('I') => write!(out, "{hour12:02}"),
            Some('M') => write!(out, "{minute:02}"),
            Some('S') => write!(out, "{second:02}"),
            Some('p') => write!(out, "{}", if hour < 12 { "AM" } else { "PM" }),
            Some('A') => write!(out, "{weekday}"),
            Some('a') => write!(out, "{}", &weekday[..3]),
            Some('B') => write!(out, "{month_name}"),
            Some('b') => write!(out, "{}", &month_name[..3]),
            Some('%') => write!(out, "%"),
            _ => {
                let directive = directive.map(String::from).unwrap_or_default();
                return Err(StrftimeError { directive, format: format.to_owned() });
            }
        };
        debug_assert!(written.is_ok(), "writing into a String cannot fail");
    }
    Ok(out)
}

/// Year, month 1-12, day of month 1-31 and day of year 1-366 of a day counted from 1970-01-01, in the
/// proleptic Gregorian calendar.
fn civil_date(days: i64) -> (i64, usize, i64, i64) {
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    // 400 years are exactly 146097 days, so only the position inside one such era has to be walked.
    let mut year = 1970 + 400 * days.div_euclid(146_097);
    let mut rest = days.rem_euclid(146_097);
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if rest < length {
            break;
        }
        rest -= length;
        year += 1;
    }
    let day_of_year = rest + 1;
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if rest < length {
            break;
        }
        rest -= length;
        month += 1;
    }
    (year, month, rest + 1, day_of_year)
}
