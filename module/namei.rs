// SPDX-License-Identifier: GPL-2.0

//! The operations on names.
//!
//! A change happens in memory, all of it, once everything that can fail has been done: blocks have
//! been read and allocated. What has been changed is written later, by whoever writes all that is
//! dirty, or by `fsync(2)` of the directory, unless the directory or the mount ask for synchronous
//! changes (`dirsync`). Then a new inode is written before the name that leads to it, and the name
//! before the operation returns. There it is late for an error: who creates a file is told, and the
//! file is there all the same; what has been moved or removed stays so, and an error is seen by
//! `fsync(2)` of the directory.

#![forbid(unsafe_code)]

use crate::{
    acl,
    dir::{self, Changed, Slot},
    file::File,
    ialloc, inode,
    ondisk::mode,
    symlink, Rext2,
};
use kernel::{
    fs::{
        dentry::{Created, Entry, Negative, Opened, Positive, Spliced, Tmpfile, Unhashed},
        dir::{Emitter, NewName, Operations, Rename},
        inode::{Ready, Special},
        lock::{Excl, Held, Shared},
        INode, Offset,
    },
    prelude::*,
};

#[vtable]
impl Operations for Rext2 {
    type FileSystem = Rext2;

    fn lookup<'a>(
        dir: Held<'_, Rext2, Shared>,
        dentry: Unhashed<'a, Rext2>,
    ) -> Result<Spliced<'a>> {
        let Some(ino) = dir::find(&dir, dentry.name())? else {
            return dentry.splice_alias(None);
        };
        match inode::iget(dir.sb(), ino) {
            Ok(inode) => dentry.splice_alias(Some(inode)),
            Err(e) if e == EINVAL => Err(inode::corrupted(
                &dir,
                format_args!("directory entry with inode {ino}, which is reserved"),
            )),
            // Not `ESTALE`, which is for file handles.
            Err(e) if e == ESTALE => {
                inode::corrupted(
                    &dir,
                    format_args!("directory entry with inode {ino}, whose i_links_count is 0"),
                );
                Err(EIO)
            }
            Err(e) => Err(e),
        }
    }

    fn read_dir(dir: Held<'_, Rext2, Shared>, emitter: &mut Emitter<'_>) -> Result {
        dir::emit(&dir, emitter)
    }

    fn create<'a>(
        dir: Held<'_, Rext2, Excl>,
        dentry: Negative<'a, Rext2>,
        mode: u16,
    ) -> Result<Created<'a>> {
        let mut new = ialloc::new_inode(dir.inode(), mode::REGULAR | mode)?;
        acl::init(&mut new, dir.inode(), Some(&dentry))?;
        add_new(dir, dentry, new.into_file::<File>())
    }

    fn mknod<'a>(
        dir: Held<'_, Rext2, Excl>,
        dentry: Negative<'a, Rext2>,
        mode: u16,
        special: Special,
    ) -> Result<Created<'a>> {
        let file_type = match special {
            Special::Char(..) => mode::CHAR,
            Special::Block(..) => mode::BLOCK,
            Special::Fifo => mode::FIFO,
            Special::Socket => mode::SOCKET,
        };
        let mut new = ialloc::new_inode(dir.inode(), file_type | mode)?;
        if let Special::Char(major, minor) | Special::Block(major, minor) = special {
            new.data().set_device(major, minor);
        }
        acl::init(&mut new, dir.inode(), Some(&dentry))?;
        add_new(dir, dentry, new.into_special(special))
    }

    fn symlink<'a>(
        dir: Held<'_, Rext2, Excl>,
        dentry: Negative<'a, Rext2>,
        target: &[u8],
    ) -> Result<Created<'a>> {
        // A nul behind the target has to fit in the block, too.
        if target.len() >= dir.sb().block_size() as usize {
            return Err(ENAMETOOLONG);
        }
        let mut new = ialloc::new_inode(dir.inode(), mode::SYMLINK | 0o777)?;
        new.init_security(dir.inode(), Some(&dentry))?;
        let new = symlink::set_target(new, target, dir.is_dirsync())?;
        add_new(dir, dentry, new)
    }

    fn mkdir<'a>(
        mut dir: Held<'_, Rext2, Excl>,
        dentry: Negative<'a, Rext2>,
        mode: u16,
    ) -> Result<Created<'a>> {
        let mut new = ialloc::new_inode(dir.inode(), mode::DIR | mode)?;
        acl::init(&mut new, dir.inode(), Some(&dentry))?;
        new.set_size(Offset::from(dir.sb().block_size()))?;
        // Its own name and `.`.
        new.set_nlink(2);
        dir::make_empty(&new, &dir)?;
        let new = new.into_dir::<Rext2>();
        let changed = add_inode(&mut dir, dentry.name(), &new)?;
        gain_subdir(&mut dir);
        let created = dentry.instantiate(new);
        changed.sync(&dir)?;
        Ok(created)
    }

    fn link<'a>(
        mut inode: Held<'_, Rext2, Excl>,
        mut dir: Held<'_, Rext2, Excl>,
        dentry: Negative<'a, Rext2>,
    ) -> Result<Created<'a>> {
        let reference = inode.inode().grab()?;
        let nameless = inode.nlink() == 0;
        let changed = dir::add(&mut dir, dentry.name(), &inode)?;
        inode.inc_nlink();
        inode.touch_ctime();
        inode.mark_dirty();
        let created = dentry.link(reference)?;
        // On the disk it is a deleted inode: `fsync(2)` of the directory would promise a name that the
        // check after a crash removes.
        if nameless || dir.is_dirsync() {
            inode.sync_metadata()?;
        }
        changed.sync(&dir)?;
        Ok(created)
    }

    fn unlink(mut dir: Held<'_, Rext2, Excl>, mut victim: Positive<'_, Rext2>) -> Result {
        let changed = slot_of(dir.inode(), &victim)?.remove(&mut dir)?;
        lose_name(victim.held());
        settle(changed, &dir);
        Ok(())
    }

    fn rmdir(mut dir: Held<'_, Rext2, Excl>, mut victim: Positive<'_, Rext2>) -> Result {
        check_empty(victim.inode())?;
        let changed = slot_of(dir.inode(), &victim)?.remove(&mut dir)?;
        lose_dir(victim.held())?;
        lose_subdir(&mut dir);
        settle(changed, &dir);
        Ok(())
    }

    fn rename(rename: Rename<'_, Rext2>) -> Result {
        match rename {
            Rename::Within { dir, old, new } => move_name(
                Dirs {
                    old: dir,
                    new: None,
                },
                old,
                new,
            ),
            Rename::Across {
                old_dir,
                new_dir,
                old,
                new,
            } => move_name(
                Dirs {
                    old: old_dir,
                    new: Some(new_dir),
                },
                old,
                new,
            ),
        }
    }

    fn tmpfile<'a>(dir: &INode<Rext2>, file: Tmpfile<'a, Rext2>, mode: u16) -> Result<Opened<'a>> {
        let mut new = ialloc::new_inode(dir, mode::REGULAR | mode)?;
        acl::init(&mut new, dir, None)?;
        file.open(new.into_file::<File>())
    }
}

/// Gives a new inode its name.
fn add_new<'a>(
    mut dir: Held<'_, Rext2, Excl>,
    dentry: Negative<'a, Rext2>,
    new: Ready<'_, Rext2>,
) -> Result<Created<'a>> {
    let changed = add_inode(&mut dir, dentry.name(), &new)?;
    let created = dentry.instantiate(new);
    changed.sync(&dir)?;
    Ok(created)
}

/// Adds the name of a new inode to a directory.
fn add_inode<'a>(
    dir: &mut Held<'a, Rext2, Excl>,
    name: &[u8],
    new: &INode<Rext2>,
) -> Result<Changed<'a>> {
    new.mark_dirty();
    if dir.is_dirsync() {
        new.sync_metadata()?;
    }
    dir::add(dir, name, new)
}

/// The directories of a rename.
struct Dirs<'a> {
    old: Held<'a, Rext2, Excl>,
    /// The new one, unless it is the same.
    new: Option<Held<'a, Rext2, Excl>>,
}

impl<'a> Dirs<'a> {
    fn target(&mut self) -> &mut Held<'a, Rext2, Excl> {
        self.new.as_mut().unwrap_or(&mut self.old)
    }
}

/// What a rename moves.
trait Moved<'a> {
    fn entry(&self) -> &Entry<'a, Rext2>;

    /// The inode, if it is a directory that gets another parent.
    fn moved_dir(&mut self) -> Option<Held<'_, Rext2, Excl>>;
}

impl<'a> Moved<'a> for Entry<'a, Rext2> {
    fn entry(&self) -> &Entry<'a, Rext2> {
        self
    }

    fn moved_dir(&mut self) -> Option<Held<'_, Rext2, Excl>> {
        None
    }
}

impl<'a> Moved<'a> for Positive<'a, Rext2> {
    fn entry(&self) -> &Entry<'a, Rext2> {
        self
    }

    fn moved_dir(&mut self) -> Option<Held<'_, Rext2, Excl>> {
        self.inode().is_dir().then(|| self.held())
    }
}

/// Moves a name.
///
/// The new name comes before the old one goes: who looks in between, after a crash, finds two names
/// rather than none. Of two names of a directory, a check removes one, which may be the new one: so
/// where a directory gets another parent, both changes are written at once, in this order.
fn move_name<'a, E: Moved<'a>>(
    mut dirs: Dirs<'a>,
    mut old: E,
    new: NewName<'a, Rext2, E>,
) -> Result {
    let inode = old.entry().inode();
    let from = slot_of(dirs.old.inode(), old.entry())?;
    match new {
        NewName::Free(name) => {
            let up = Up::of(&mut old)?;
            let added = dir::add(dirs.target(), name, inode)?;
            if up.is_some() {
                settle_now(&added, dirs.target());
            }
            let removed = from.remove(&mut dirs.old)?;
            if let Some(up) = up {
                gain_subdir(dirs.target());
                lose_subdir(&mut dirs.old);
                up.set(dirs.target())?;
                settle_now(&removed, &dirs.old);
            }
            settle(added, dirs.target());
            settle(removed, &dirs.old);
        }
        NewName::Replaced(mut victim) => {
            if inode.is_dir() {
                check_empty(victim.inode())?;
            }
            let to = slot_of(dirs.target().inode(), &victim)?;
            let up = Up::of(&mut old)?;
            let set = to.set(dirs.target(), inode)?;
            if up.is_some() {
                settle_now(&set, dirs.target());
            }
            let removed = from.remove(&mut dirs.old)?;
            if inode.is_dir() {
                lose_dir(victim.held())?;
                lose_subdir(&mut dirs.old);
            } else {
                lose_name(victim.held());
            }
            if let Some(up) = up {
                up.set(dirs.target())?;
                settle_now(&removed, &dirs.old);
            }
            settle(set, dirs.target());
            settle(removed, &dirs.old);
        }
        NewName::Exchanged(mut other) => {
            let other_inode = other.entry().inode();
            let to = slot_of(dirs.target().inode(), other.entry())?;
            let (set, other_set) = {
                let (up, other_up) = (Up::of(&mut old)?, Up::of(&mut other)?);
                let set = to.set(dirs.target(), inode)?;
                let other_set = from.set(&mut dirs.old, other_inode)?;
                if up.is_some() || other_up.is_some() {
                    settle_now(&set, dirs.target());
                    settle_now(&other_set, &dirs.old);
                }
                match (&up, &other_up) {
                    (Some(_), None) => {
                        gain_subdir(dirs.target());
                        lose_subdir(&mut dirs.old);
                    }
                    (None, Some(_)) => {
                        gain_subdir(&mut dirs.old);
                        lose_subdir(dirs.target());
                    }
                    _ => {}
                }
                if let Some(up) = up {
                    up.set(dirs.target())?;
                }
                if let Some(up) = other_up {
                    up.set(&dirs.old)?;
                }
                (set, other_set)
            };
            other.entry().touch_ctime();
            other_inode.mark_dirty();
            settle(set, dirs.target());
            settle(other_set, &dirs.old);
        }
    }
    old.entry().touch_ctime();
    inode.mark_dirty();
    Ok(())
}

/// The entry `..` of a directory that gets another parent.
struct Up<'a> {
    dir: Held<'a, Rext2, Excl>,
    slot: Slot<'a>,
}

impl<'a> Up<'a> {
    fn of<'m, E: Moved<'m>>(moved: &'a mut E) -> Result<Option<Self>> {
        let Some(dir) = moved.moved_dir() else {
            return Ok(None);
        };
        let slot = dir::dot_dot(dir.inode())?;
        Ok(Some(Self { dir, slot }))
    }

    fn set(mut self, parent: &INode<Rext2>) -> Result {
        let changed = self.slot.set_parent(&mut self.dir, parent)?;
        settle(changed, &self.dir);
        Ok(())
    }
}

/// Finds the entry of a name that the VFS knows.
fn slot_of<'a>(dir: &'a INode<Rext2>, entry: &Entry<'_, Rext2>) -> Result<Slot<'a>> {
    let slot = dir::find_slot(dir, entry.name())?.ok_or(ENOENT)?;
    let (ino, known) = (slot.ino(), entry.inode().ino());
    if u64::from(ino) != known {
        inode::corrupted(
            dir,
            format_args!("directory entry with inode {ino}, which was {known}"),
        );
        return Err(EIO);
    }
    Ok(slot)
}

/// Refuses a directory with names in it. One that is damaged may have some.
fn check_empty(dir: &INode<Rext2>) -> Result {
    match dir::is_empty(dir) {
        Ok(true) => Ok(()),
        _ => Err(ENOTEMPTY),
    }
}

/// Writes a change for which it is late to fail.
fn settle(changed: Changed<'_>, dir: &INode<Rext2>) {
    let _seen_by_fsync = changed.sync(dir);
}

/// Writes a change for which it is late to fail, in any case.
fn settle_now(changed: &Changed<'_>, dir: &INode<Rext2>) {
    let _seen_by_fsync = changed.sync_now(dir);
}

/// An inode has lost a name.
fn lose_name(mut inode: Held<'_, Rext2, Excl>) {
    if inode.nlink() == 0 {
        inode::corrupted(&inode, format_args!("i_links_count is less than its names"));
    }
    inode.dec_nlink();
    inode.touch_ctime();
    inode.mark_dirty();
}

/// A directory has lost its name, and is empty.
fn lose_dir(mut dir: Held<'_, Rext2, Excl>) -> Result {
    dir.clear_nlink();
    dir.touch_ctime();
    dir.set_size(0)?;
    dir.mark_dirty();
    Ok(())
}

/// A directory has got a subdirectory, whose `..` is one more link.
fn gain_subdir(dir: &mut Held<'_, Rext2, Excl>) {
    dir.inc_nlink();
    dir.mark_dirty();
}

/// A directory has lost a subdirectory. Two links are left as long as it has a name.
fn lose_subdir(dir: &mut Held<'_, Rext2, Excl>) {
    let links = dir.nlink();
    if links <= 2 {
        inode::corrupted(
            dir,
            format_args!("i_links_count {links} of a directory with a subdirectory"),
        );
        return;
    }
    dir.dec_nlink();
    dir.mark_dirty();
}
