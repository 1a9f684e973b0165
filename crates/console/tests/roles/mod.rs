//! The table of roles, cell by cell and over the wire: every page, every way to change something, and every kind of caller.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use polyrpc::Address;
use polyrpc_console::settings::Setting;
use polyrpc_console::{Admin, Role};

use crate::common::{observe, services};
use crate::{CALL, PROFILE, READ, WRITE, admin_with_tokens, bearer};

/// Who asks: the columns of the table.
const CALLERS: [&str; 10] = [
    "no token",
    "wrong token",
    "read",
    "call",
    "profile",
    "write",
    "write, where nothing is writable",
    "local, where there are no tokens",
    "local, made to profile",
    "write, on the port of the services",
];

type Row = (&'static str, &'static str, &'static str, [u16; 10]);

/// The statuses of reading a page, for each caller.
const READS: [u16; 10] = [401, 401, 200, 200, 200, 200, 200, 200, 200, 200];

/// As [`READS`], of what only the admin listener has.
const READS_THERE: [u16; 10] = [401, 401, 200, 200, 200, 200, 200, 200, 200, 404];

/// Of what probes read.
const OPEN: [u16; 10] = [200; 10];

/// Of what only the role `write` may, and only where that is possible.
const WRITES: [u16; 10] = [401, 401, 403, 403, 403, 200, 403, 403, 403, 403];

/// As [`WRITES`], of a connection, a server, a filter or a change that does not exist: admitted, and refused for that.
const WRITES_NOTHING: [u16; 10] = [401, 401, 403, 403, 403, 404, 403, 403, 403, 403];

/// Of what the role `call` may.
const CALLS: [u16; 10] = [401, 401, 403, 200, 200, 200, 200, 403, 200, 403];

/// As [`CALLS`], of a call that is made: a caller without a token has to prove by a form that no other page sent it.
const CALLS_MEANT: [u16; 10] = [401, 401, 403, 200, 200, 200, 200, 403, 403, 403];

/// Of what the role `profile` may: this status.
const fn profiles(admitted: u16) -> [u16; 10] {
    [401, 401, 403, 403, admitted, admitted, admitted, 403, admitted, 403]
}

/// Of a profile that is refused for its length, or, without the profiler, for the lack of one.
const PROFILES: [u16; 10] = profiles(if cfg!(feature = "profile") { 400 } else { 404 });

/// Of the waits for locks, which are listed without the profiler, too.
const WAITS: [u16; 10] = profiles(if cfg!(feature = "profile") { 400 } else { 200 });

/// Of a change where nothing can be changed.
const READ_ONLY: [u16; 10] = [401, 401, 405, 405, 405, 405, 405, 405, 405, 405];

/// Method, target, body, and the status for each caller.
const TABLE: [Row; 63] = [
    ("GET", "/", "", READS),
    ("GET", "/index", "", READS),
    ("GET", "/status", "", READS),
    ("GET", "/vars", "", READS),
    ("GET", "/metrics", "", READS),
    ("GET", "/brpc_metrics", "", READS),
    ("GET", "/connections", "", READS),
    ("GET", "/channels", "", READS),
    ("GET", "/rpcz", "", READS),
    ("GET", "/flags", "", READS),
    ("GET", "/tap?format=html", "", READS_THERE),
    ("GET", "/tasks", "", READS),
    ("GET", "/bthreads", "", READS),
    ("GET", "/fleet/self?format=json", "", READS),
    ("GET", "/list", "", READS),
    ("GET", "/protobufs", "", READS),
    ("GET", "/threads", "", READS),
    ("GET", "/memory", "", READS),
    ("GET", "/vlog", "", READS),
    ("GET", "/ids", "", READS),
    ("GET", "/version", "", READS),
    ("GET", "/console/style.css", "", READS),
    ("HEAD", "/status", "", READS),
    // Of a connection that does not exist.
    ("GET", "/sockets/12345", "", [401, 401, 404, 404, 404, 404, 404, 404, 404, 404]),
    ("GET", "/nothing", "", [401, 401, 404, 404, 404, 404, 404, 404, 404, 404]),
    ("GET", "/dir", "", [401, 401, 404, 404, 404, 404, 404, 404, 404, 404]),
    // A page is followed by those who may read it, and only what is read is followed.
    ("GET", "/console/live?path=/status", "", READS_THERE),
    ("GET", "/console/live?path=/try", "", [401, 401, 404, 404, 404, 404, 404, 404, 404, 404]),
    ("GET", "/console/live?path=/hotspots/cpu", "", [401, 401, 404, 404, 404, 404, 404, 404, 404, 404]),
    // Admitted, and refused for its rate: there are few taps at a time.
    (
        "GET",
        "/console/live?path=/tap?values%26rate=0",
        "",
        [401, 401, 403, 400, 400, 400, 400, 403, 400, 404],
    ),
    ("GET", "/tap?values&format=html", "", [401, 401, 403, 200, 200, 200, 200, 403, 200, 404]),
    // Methods are called.
    ("GET", "/try", "", CALLS),
    ("GET", "/try/add", "", CALLS),
    ("POST", "/try/add", "protocol=rpcx&message=[1,2]", CALLS_MEANT),
    // The process is profiled.
    ("GET", "/hotspots/cpu?seconds=0", "", PROFILES),
    ("GET", "/hotspots/contention?seconds=0", "", WAITS),
    ("GET", "/hotspots/heap?seconds=0", "", PROFILES),
    ("GET", "/pprof/profile?seconds=0", "", PROFILES),
    ("GET", "/debug/pprof/profile?seconds=0", "", PROFILES),
    // Things are changed.
    ("POST", "/flags/roles_table", "setvalue=2", WRITES),
    ("GET", "/flags/roles_table?setvalue=3", "", WRITES),
    ("GET", "/flags?undo=12345", "", WRITES_NOTHING),
    ("POST", "/flags", "undo=12345", WRITES_NOTHING),
    ("GET", "/rpcz/enable", "", WRITES),
    ("POST", "/rpcz/enable", "", WRITES),
    ("GET", "/vlog?setvalue=loud", "", WRITES_NOTHING),
    ("POST", "/vlog", "setvalue=loud", WRITES_NOTHING),
    ("POST", "/connections", "close=12345", WRITES_NOTHING),
    ("POST", "/connections", "drain=12345", WRITES_NOTHING),
    ("POST", "/sockets/12345", "action=close", WRITES_NOTHING),
    ("POST", "/sockets/12345", "action=drain", WRITES_NOTHING),
    ("POST", "/fleet", "drain=127.0.0.1:1", WRITES_NOTHING),
    // Nothing can be changed there.
    ("POST", "/status", "", READ_ONLY),
    ("POST", "/tap", "", READ_ONLY),
    ("POST", "/hotspots/cpu", "", READ_ONLY),
    ("POST", "/console/style.css", "", READ_ONLY),
    ("POST", "/health", "", [405; 10]),
    ("DELETE", "/flags/roles_table", "", [405; 10]),
    // Probes.
    ("GET", "/health", "", OPEN),
    ("GET", "/readyz", "", OPEN),
    ("GET", "/livez", "", OPEN),
    ("GET", "/robots.txt", "", OPEN),
    ("GET", "/favicon.ico", "", [204; 10]),
];

/// Returns the status of an answer. It is all that is read: some answers have no end.
fn status(address: &Address, (method, target, body, _): &Row, token: Option<&str>) -> u16 {
    let mut stream = TcpStream::connect(address.to_string()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let token = token.map_or_else(String::new, bearer);
    let length = body.len();
    write!(
        stream,
        "{method} {target} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n{token}\r\n{body}"
    )
    .unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("{target}: {line:?}"))
}

/// Returns the first segments of the paths of all pages, as the source has them.
fn page_names() -> BTreeSet<&'static str> {
    let source = include_str!("../../src/pages/mod.rs");
    let (_, list) = source.split_once("pub(crate) const PAGES").unwrap();
    let (list, _) = list.split_once("];").unwrap();
    list.lines().filter_map(|line| line.split('"').nth(1)).collect()
}

#[test]
fn every_page_has_a_row() {
    let names = page_names();
    assert!(names.len() > 25, "{names:?}");
    let rows: BTreeSet<_> =
        TABLE.iter().map(|(_, target, ..)| target.split(['/', '?']).nth(1).unwrap_or_default()).collect();
    let missing: Vec<_> = names.difference(&rows).collect();
    assert!(missing.is_empty(), "{missing:?} have no row");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_cell_of_the_table_of_roles_holds() {
    let (console, server) = observe(services()).await;
    let setting = Setting::define("roles_table", 1_u64, "for a test").register();
    let admin = admin_with_tokens().writable().start(&console).unwrap();
    let fixed = admin_with_tokens().start(&console).unwrap();
    let local = Admin::on("127.0.0.1:0").writable().start(&console).unwrap();
    let profiles = Admin::on("127.0.0.1:0").anonymous(Role::Write).writable().start(&console).unwrap();
    let callers: [(&Address, Option<&str>); CALLERS.len()] = [
        (admin.address(), None),
        (admin.address(), Some("a-token-of-nobody")),
        (admin.address(), Some(READ)),
        (admin.address(), Some(CALL)),
        (admin.address(), Some(PROFILE)),
        (admin.address(), Some(WRITE)),
        (fixed.address(), Some(WRITE)),
        (local.address(), None),
        // `anonymous` never gives more than this role.
        (profiles.address(), None),
        (server.address(), Some(WRITE)),
    ];
    let check = |row: &Row| {
        let found = callers.map(|(address, token)| status(address, row, token));
        let cells = CALLERS.iter().zip(found.iter().zip(row.3));
        let wrong = cells.filter(|(_, (found, want))| *found != want);
        wrong
            .map(|(caller, (found, want))| format!("{} {} as {caller}: {found}, not {want}", row.0, row.1))
            .collect::<Vec<_>>()
    };
    // A wrong token is answered late: many rows at a time.
    let wrong: Vec<String> = tokio::task::block_in_place(|| {
        TABLE
            .chunks(16)
            .flat_map(|rows| {
                std::thread::scope(|scope| {
                    let rows: Vec<_> = rows.iter().map(|row| scope.spawn(|| check(row))).collect();
                    rows.into_iter().flat_map(|row| row.join().unwrap()).collect::<Vec<_>>()
                })
            })
            .collect()
    });
    assert!(wrong.is_empty(), "{} cells:\n{}", wrong.len(), wrong.join("\n"));
    // The cells of `write` are those that changed it.
    assert!(matches!(setting.get(), 2 | 3), "{}", setting.get());
}
