// SPDX-License-Identifier: GPL-2.0

//! Promises that are broken by hand must be noticed.

use super::*;

const FOLDER: Folder = Folder { top: 0, sub: None };

fn place(name: u8) -> Place {
    Place {
        folder: FOLDER,
        name,
    }
}

/// A file system with a file of 4096 bytes of number 7 in inode 20, of which
/// nothing is promised.
fn model(options: Options) -> Model {
    let mut model = Model::new(options, 1024);
    for top in 0..TOPS {
        let ino = 12 + u64::from(top);
        let op = Op::new(Kind::Top, Place::default());
        model.apply(&op, ino, true).unwrap();
    }
    apply(&mut model, Op::new(Kind::Ready, place(0)), 0);
    apply(&mut model, Op::new(Kind::Create, place(1)), 20);
    let mut write = Op::new(Kind::Write, place(1));
    (write.len, write.id) = (4096, 7);
    apply(&mut model, write, 0);
    model
}

fn apply(model: &mut Model, op: Op, ino: u64) {
    model.apply(&op, ino, true).unwrap();
}

fn contents() -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    crate::pattern::fill(7, 0, &mut bytes);
    bytes
}

fn seen(names: &[(u8, u64)], files: &[(u64, Vec<u8>)]) -> Seen {
    let mut seen = Seen::new();
    for top in 0..u64::from(TOPS) {
        seen.insert(12 + top, Found::Dir(BTreeMap::new()));
    }
    let names = names.iter().map(|(name, ino)| (text(*name), *ino));
    seen.insert(12, Found::Dir(names.collect()));
    let files = files.iter().cloned();
    seen.extend(files.map(|(ino, bytes)| (ino, Found::File(bytes, None))));
    seen
}

#[test]
fn nothing_is_promised_before_somebody_asks_for_it() {
    let model = model(Options::default());
    assert!(model.broken(&seen(&[], &[])).is_empty());
    let stale = vec![1; 4096];
    assert!(model.broken(&seen(&[(1, 20)], &[(20, stale)])).is_empty());
}

#[test]
fn a_file_that_was_synced_is_there_under_any_name() {
    let mut model = model(Options::default());
    apply(&mut model, Op::new(Kind::Fsync, place(1)), 0);
    assert!(model.broken(&seen(&[], &[(20, contents())])).is_empty());
    assert_eq!(model.broken(&seen(&[], &[])).len(), 1, "it is gone");
    let stale = crate::pattern::STALE.repeat(512);
    let broken = model.broken(&seen(&[(1, 20)], &[(20, stale)]));
    assert_eq!(broken.len(), 1, "it shows what the device held before");
}

#[test]
fn it_is_told_whether_a_file_was_changed_after_its_promise() {
    let mut model = model(Options::default());
    apply(&mut model, Op::new(Kind::Fsync, place(1)), 0);
    assert!(!model.broken(&seen(&[], &[]))[0].touched);
    let mut write = Op::new(Kind::Write, place(1));
    (write.pos, write.len, write.id) = (8192, 1, 8);
    apply(&mut model, write, 0);
    assert!(model.broken(&seen(&[], &[]))[0].touched);
    apply(&mut model, Op::new(Kind::Fsync, place(1)), 0);
    assert!(!model.broken(&seen(&[], &[]))[0].touched);
}

#[test]
fn a_name_is_promised_by_its_directory() {
    let mut model = model(Options::default());
    apply(&mut model, Op::new(Kind::Fsync, place(1)), 0);
    apply(&mut model, Op::new(Kind::FsyncDir, place(0)), 0);
    let files = [(20, contents())];
    assert!(model.broken(&seen(&[(1, 20)], &files)).is_empty());
    assert_eq!(model.broken(&seen(&[], &files)).len(), 1);
    assert_eq!(model.broken(&seen(&[(1, 21)], &files)).len(), 1);
    assert_eq!(model.broken(&seen(&[(1, 20), (2, 20)], &files)).len(), 1);

    apply(&mut model, Op::new(Kind::Rename, place(1)).to(place(2)), 0);
    for name in [1, 2] {
        assert!(model.broken(&seen(&[(name, 20)], &files)).is_empty());
    }
    assert_eq!(model.broken(&seen(&[], &[])).len(), 1, "both lost");
    apply(&mut model, Op::new(Kind::FsyncDir, place(0)), 0);
    assert_eq!(model.broken(&seen(&[(1, 20)], &files)).len(), 1, "old name");

    apply(&mut model, Op::new(Kind::Unlink, place(2)), 0);
    assert!(model.broken(&seen(&[(2, 20)], &files)).is_empty());
    assert!(model.broken(&seen(&[], &[])).is_empty());
    apply(&mut model, Op::new(Kind::FsyncDir, place(0)), 0);
    assert_eq!(model.broken(&seen(&[(2, 20)], &files)).len(), 1, "is back");
}

#[test]
fn a_synchronous_directory_promises_names_by_the_next_flush() {
    let options = Options {
        dirsync: true,
        sync: false,
    };
    let mut model = model(options);
    assert!(model.broken(&seen(&[], &[])).is_empty());
    model.flush();
    assert!(!model.broken(&seen(&[], &[])).is_empty());
    let empty = [(20, Vec::new())];
    assert!(model.broken(&seen(&[(1, 20)], &empty)).is_empty());

    let mut begun = model.clone();
    let unlink = Op::new(Kind::Unlink, place(1));
    begun.apply(&unlink, 0, false).unwrap();
    begun.flush();
    assert!(begun.broken(&seen(&[(1, 20)], &empty)).is_empty());
    apply(&mut model, unlink, 0);
    model.flush();
    assert!(!model.broken(&seen(&[(1, 20)], &empty)).is_empty());
}

#[test]
fn what_has_only_begun_promises_nothing() {
    let mut model = model(Options::default());
    for op in [Kind::Fsync, Kind::FsyncDir, Kind::Sync, Kind::Syncfs] {
        model.apply(&Op::new(op, place(1)), 0, false).unwrap();
    }
    let mut write = Op::new(Kind::WriteDirect, place(1));
    (write.len, write.sync) = (4096, true);
    model.apply(&write, 0, false).unwrap();
    assert!(model.broken(&seen(&[], &[])).is_empty());
    apply(&mut model, write, 0);
    assert!(!model.broken(&seen(&[], &[])).is_empty());
}

#[test]
fn attributes_and_targets_are_promised_with_the_rest() {
    let mut model = model(Options::default());
    let mut xattr = Op::new(Kind::Xattr, place(1));
    xattr.id = 1;
    apply(&mut model, xattr, 0);
    let mut link = Op::new(Kind::Symlink, place(2));
    link.id = 3;
    apply(&mut model, link, 21);
    let mut right = seen(&[(1, 20), (2, 21)], &[]);
    right.insert(20, Found::File(contents(), Some(value(1))));
    right.insert(21, Found::Link(target(3)));
    let mut wrong = right.clone();
    wrong.insert(20, Found::File(contents(), None));
    wrong.insert(21, Found::Link(target(5)));
    assert!(model.broken(&wrong).is_empty());
    apply(&mut model, Op::new(Kind::Sync, place(0)), 0);
    assert!(model.broken(&right).is_empty());
    assert_eq!(model.broken(&wrong).len(), 2);
}
