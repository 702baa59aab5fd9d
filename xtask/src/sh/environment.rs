// SPDX-License-Identifier: GPL-2.0

//! What children see of our environment, and what is set for them.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Variables that children inherit. Everything else stays here, above all what
/// cargo, rustup and make set for their own children: it would change the
/// toolchain of the kernel build.
const INHERITED: &[&str] = &[
    "PATH HOME USER LOGNAME TERM TMPDIR TZ LANG",
    // The network and its certificates.
    "http_proxy https_proxy ftp_proxy no_proxy all_proxy",
    "HTTP_PROXY HTTPS_PROXY FTP_PROXY NO_PROXY ALL_PROXY",
    "CURL_CA_BUNDLE GIT_SSL_CAINFO REQUESTS_CA_BUNDLE",
    // Where package managers keep their things; none of these chooses a compiler.
    "APT_CONFIG DEBIAN_FRONTEND RUSTUP_HOME CARGO_HOME",
    "RUSTUP_DIST_SERVER RUSTUP_UPDATE_ROOT RUSTUP_AUTO_INSTALL",
    // Documented by the kernel for its users.
    "KCFLAGS KAFLAGS KRUSTFLAGS LIBCLANG_PATH RUST_LIB_SRC",
];

/// The same for families of variables.
const INHERITED_PREFIXES: &[&str] = &[
    "SSL_",
    "PIP_",
    "CCACHE_",
    "XDG_",
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTRIES_",
    "CARGO_SOURCE_",
];

/// Variables whose silent loss would surprise: named in the log.
const TOOLCHAIN_PREFIXES: &[&str] = &[
    "RUSTC",
    "RUSTDOC",
    "RUSTUP_TOOLCHAIN",
    "RUSTFLAGS",
    "MAKE",
    "MFLAGS",
    "CC",
    "HOSTCC",
    "LLVM",
];

/// Whether children inherit a variable.
pub fn inherited(name: &str) -> bool {
    let listed = INHERITED
        .iter()
        .any(|line| line.split(' ').any(|word| word == name));
    // No build needs the secrets of a registry.
    let family = INHERITED_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix))
        && !name.ends_with("_TOKEN");
    listed || family
}

/// The variables of a toolchain that are set and not handed on.
pub fn dropped() -> Vec<String> {
    let of_toolchain = |name: &String| {
        TOOLCHAIN_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    let mut names: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| of_toolchain(name) && !inherited(name))
        .collect();
    names.sort();
    names
}

/// The whole environment of a child that works in `dir`.
pub fn of(dir: Option<&Path>, more: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| name.to_str().is_some_and(inherited))
        .collect();
    let mut set = |name: &str, value: &OsStr| env.push((name.into(), value.to_owned()));
    set("LC_ALL", OsStr::new("C"));
    // The same kernel from the same input, and a compiler cache that hits.
    set(
        "KBUILD_BUILD_TIMESTAMP",
        OsStr::new("2026-01-01 00:00:00 UTC"),
    );
    set("KBUILD_BUILD_USER", OsStr::new("rext2"));
    set("KBUILD_BUILD_HOST", OsStr::new("rext2"));
    set("KBUILD_BUILD_VERSION", OsStr::new("1"));
    set("GIT_CONFIG_NOSYSTEM", OsStr::new("1"));
    set(
        "GIT_CONFIG_GLOBAL",
        OsStr::new(concat!(env!("CARGO_MANIFEST_DIR"), "/gitconfig")),
    );
    set("GIT_TERMINAL_PROMPT", OsStr::new("0"));
    set("GIT_OPTIONAL_LOCKS", OsStr::new("0"));
    if let Some(parent) = dir.and_then(Path::parent) {
        // git below another work tree would act on that one, or on nothing.
        set("GIT_CEILING_DIRECTORIES", parent.as_os_str());
    }
    env.extend(more.iter().cloned());
    env
}
