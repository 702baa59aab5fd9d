// SPDX-License-Identifier: GPL-2.0

//! The tree of the image that `build-and-boot` reads: the files of the checkout's
//! last commit, thousands of small ones, and a sparse one of 5 GiB.

use crate::sh::Cmd;
use anyhow::Context as _;
use fs_err as fs;
use rext2_tests::pattern;
use std::ffi::OsString;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const SMALL_FILES: u64 = 5000;
const PER_FOLDER: u64 = 100;
const GIANT: u64 = 5 << 30;
/// Data at both ends of the giant and over the edges of 31 and 32 bits.
const GIANT_DATA: [u64; 4] = [0, (1 << 31) - 8192, (1 << 32) - 8192, GIANT - 16384];
/// Modification time of what we make: the tree is the same every time.
const TIME: Duration = Duration::from_secs(1_700_000_000);

/// The tree of the checkout's last commit, as git names it. Edits that are not
/// committed make no other image: an edit of the module would wait for one.
pub fn sources(root: &Path) -> anyhow::Result<String> {
    Cmd::git(root)
        .args(["rev-parse", "--verify", "HEAD^{tree}"])
        .read()
        .context("the checkout is not a git work tree with a commit")
}

/// Makes the tree in the folder `folder`/tree, which must not exist, with the
/// sources that git knows by this name.
pub fn make(folder: &Path, root: &Path, sources: &str, log: &Path) -> anyhow::Result<PathBuf> {
    let tree = folder.join("tree");
    fs::create_dir(&tree)?;
    let index = folder.join("index");
    let git = || Cmd::git(root).env("GIT_INDEX_FILE", &index);
    git().args(["read-tree", sources]).run(log)?;
    let mut prefix = OsString::from("--prefix=");
    prefix.push(tree.join("sources/"));
    git().args(["checkout-index", "-a"]).arg(prefix).run(log)?;
    make_files(&tree)?;
    Ok(tree)
}

/// Makes the files that are not the checkout's.
fn make_files(tree: &Path) -> anyhow::Result<()> {
    let mut buffer = [0; 16384];
    for number in 0..SMALL_FILES {
        let folder = tree.join(format!("small/{:02}", number / PER_FOLDER));
        if number % PER_FOLDER == 0 {
            fs::create_dir_all(&folder)?;
        }
        let mut file = fs::File::create(folder.join(format!("file-{number:04}")))?;
        // From nothing to 8 KiB, so that a file has 0 to 3 blocks.
        let size = (number * 37 % 8193) as usize;
        pattern::fill(number as u16, 0, &mut buffer[..size]);
        file.write_all(&buffer[..size])?;
        set_time(&file)?;
    }
    let mut giant = fs::File::create(tree.join("sparse-5g"))?;
    giant.set_len(GIANT)?;
    for pos in GIANT_DATA {
        pattern::fill(u16::MAX, pos, &mut buffer);
        giant.seek(SeekFrom::Start(pos))?;
        giant.write_all(&buffer)?;
    }
    set_time(&giant)
}

fn set_time(file: &fs::File) -> anyhow::Result<()> {
    file.file()
        .set_modified(SystemTime::UNIX_EPOCH + TIME)
        .with_context(|| format!("cannot set the time of {}", file.path().display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(root: &Path, args: &[&str]) {
        let who = ["-c", "user.name=n", "-c", "user.email=n@n.example"];
        Cmd::git(root).args(who).args(args).read().unwrap();
    }

    #[test]
    fn the_tree_is_what_was_promised() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("file"), "text").unwrap();
        std::os::unix::fs::symlink("file", root.join("link")).unwrap();
        git(&root, &["init", "-q"]);
        assert!(sources(&root).is_err());
        git(&root, &["add", "."]);
        git(&root, &["commit", "-q", "-m", "first"]);
        let first = sources(&root).unwrap();
        std::fs::write(root.join("file"), "edited").unwrap();
        assert_eq!(sources(&root).unwrap(), first);
        let tree = make(folder.path(), &root, &first, &folder.path().join("log")).unwrap();

        assert_eq!(std::fs::read(tree.join("sources/file")).unwrap(), b"text");
        assert!(tree.join("sources/link").is_symlink());
        assert_eq!(tree.join("sparse-5g").metadata().unwrap().len(), 5 << 30);
        let folders = std::fs::read_dir(tree.join("small")).unwrap();
        let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
        assert_eq!(files.count(), 5000);
        git(&root, &["commit", "-q", "-a", "-m", "second"]);
        assert_ne!(sources(&root).unwrap(), first);
    }
}
