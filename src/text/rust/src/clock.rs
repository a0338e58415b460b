//! strftime over civil time given as seconds since 1970 (no time zone: the caller has applied it).

use crate::value::{fail, Result};

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
const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

struct Civil {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    weekday: i64,
    yearday: i64,
}

// Days to year, month and day; the era arithmetic of the proleptic Gregorian calendar.
fn civil(seconds: i64) -> Civil {
    let (days, rest) = (seconds.div_euclid(86400), seconds.rem_euclid(86400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    Civil {
        year,
        month,
        day: day_of_year - (153 * shifted_month + 2) / 5 + 1,
        hour: rest / 3600,
        minute: rest / 60 % 60,
        second: rest % 60,
        weekday: (days + 4).rem_euclid(7),
        yearday: if month <= 2 { day_of_year - 306 } else { day_of_year + 59 + i64::from(leap) },
    }
}

// ISO 8601 year and week.
fn iso_week(t: &Civil) -> (i64, i64) {
    let long = |year: i64| {
        let weekday =
            |y: i64| (y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400)).rem_euclid(7);
        weekday(year) == 4 || weekday(year - 1) == 3
    };
    let week = (t.yearday + 1 - (t.weekday + 6) % 7 + 9) / 7;
    match week {
        0 => (t.year - 1, if long(t.year - 1) { 53 } else { 52 }),
        53 if !long(t.year) => (t.year + 1, 1),
        _ => (t.year, week),
    }
}

/// Python's datetime.strftime (C locale) with glibc's `-`, `_` and `0` flags.
pub fn strftime(format: &str, seconds: i64) -> Result<String> {
    let t = civil(seconds);
    let mut out = String::new();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let flag = chars.next_if(|c| "-_0^".contains(*c));
        let Some(kind) = chars.next() else {
            out.push('%');
            break;
        };
        let number = |value: i64, width: usize, pad: char| match (flag, pad) {
            (Some('-'), _) => value.to_string(),
            (Some('_'), _) | (None | Some('^'), ' ') => format!("{value:width$}"),
            _ => format!("{value:0width$}"),
        };
        let twelve = if t.hour % 12 == 0 { 12 } else { t.hour % 12 };
        let text = match kind {
            'Y' => t.year.to_string(),
            'y' => number(t.year.rem_euclid(100), 2, '0'),
            'C' => number(t.year.div_euclid(100), 2, '0'),
            'm' => number(t.month, 2, '0'),
            'd' => number(t.day, 2, '0'),
            'e' => number(t.day, 2, ' '),
            'H' => number(t.hour, 2, '0'),
            'k' => number(t.hour, 2, ' '),
            'I' => number(twelve, 2, '0'),
            'l' => number(twelve, 2, ' '),
            'M' => number(t.minute, 2, '0'),
            'S' => number(t.second, 2, '0'),
            'f' => "000000".into(),
            'j' => number(t.yearday + 1, 3, '0'),
            'B' => MONTHS[(t.month - 1) as usize].into(),
            'b' | 'h' => MONTHS[(t.month - 1) as usize][..3].into(),
            'A' => DAYS[t.weekday as usize].into(),
            'a' => DAYS[t.weekday as usize][..3].into(),
            'p' => (if t.hour < 12 { "AM" } else { "PM" }).into(),
            'P' => (if t.hour < 12 { "am" } else { "pm" }).into(),
            'w' => t.weekday.to_string(),
            'u' => (if t.weekday == 0 { 7 } else { t.weekday }).to_string(),
            'U' => number((t.yearday + 7 - t.weekday) / 7, 2, '0'),
            'W' => number((t.yearday + 7 - (t.weekday + 6) % 7) / 7, 2, '0'),
            'V' => number(iso_week(&t).1, 2, '0'),
            'G' => iso_week(&t).0.to_string(),
            'g' => number(iso_week(&t).0.rem_euclid(100), 2, '0'),
            's' => seconds.to_string(),
            'F' => strftime("%Y-%m-%d", seconds)?,
            'T' | 'X' => strftime("%H:%M:%S", seconds)?,
            'D' | 'x' => strftime("%m/%d/%y", seconds)?,
            'R' => strftime("%H:%M", seconds)?,
            'r' => strftime("%I:%M:%S %p", seconds)?,
            'c' => strftime("%a %b %e %H:%M:%S %Y", seconds)?,
            'n' => "\n".into(),
            't' => "\t".into(),
            '%' => "%".into(),
            'z' | 'Z' => String::new(),
            other => return fail(format!("strftime_now: '%{other}' is not supported")),
        };
        out.push_str(&if flag == Some('^') { text.to_uppercase() } else { text });
    }
    Ok(out)
}
